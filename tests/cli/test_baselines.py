"""Libraries on the command line: what is not here is listed with what installs it, and asking for it is exit code 3."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from fa_bench import backends
from fa_bench.backends import baselines
from fa_bench.backends.baselines import Library
from fa_bench.compiler import nvrtc_available

needs_nvrtc = pytest.mark.skipif(nvrtc_available() is not None, reason=nvrtc_available() or "")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Modules that are installed, for the test to choose; no GPU can be used."""
    modules: set[str] = set()
    monkeypatch.setattr(Library, "is_here", lambda self: self.module in modules)
    why_not = backends.why_not
    monkeypatch.setattr(backends, "why_not", lambda name: "There is none." if name == "cuda" else why_not(name))
    return modules


@pytest.mark.parametrize(
    ("impl", "said", "hint"),
    [
        ("flash-attn-2", "flash-attn is not installed.", "pip install flash-attn --no-build-isolation"),
        ("xformers", "xformers is not installed.", "pip install xformers"),
        ("torch-cudnn", "it needs a GPU, and none can be used.", "See fa-bench doctor."),
    ],
)
def test_a_baseline_that_is_not_here_is_exit_code_3_with_what_would_help(
    cli: Callable, here: set[str], impl: str, said: str, hint: str
) -> None:
    here.add("torch")
    ran = cli("sweep", "--impl", impl, "--seq", "64", "--dry-run")
    assert ran.code == 3
    assert ran.err.splitlines() == [f"Error: {impl} does not run here: {said}", f"       {hint}"]


def test_without_pytorch_both_are_named(cli: Callable, here: set[str]) -> None:
    ran = cli("sweep", "--impl", "flash-attn-2", "--seq", "64", "--dry-run")
    assert ran.code == 3
    assert "torch and flash-attn are not installed." in ran.err
    assert "pip install 'fa-bench[torch]' && pip install flash-attn" in ran.err


def test_a_baseline_on_another_device_than_its_own_is_a_wrong_command(cli: Callable, here: set[str]) -> None:
    here.add("torch")
    ran = cli("sweep", "--impl", "torch-efficient", "--device", "host", "--seq", "64", "--dry-run")
    assert ran.code == 2
    assert ran.err.splitlines() == [
        "Error: torch-efficient does not run on host.", "       It runs on cuda."
    ]  # fmt: skip


def test_a_name_that_nobody_has_is_a_wrong_command(cli: Callable, here: set[str]) -> None:
    ran = cli("sweep", "--impl", "flash-atn-2", "--seq", "64", "--dry-run")
    assert ran.code == 2
    assert "Did you mean 'flash-attn-2'?" in ran.err


@needs_nvrtc
def test_kernels_lists_what_is_known_and_not_here_with_how_to_install_it(cli: Callable, here: set[str]) -> None:
    here |= {"torch", "flash_attn"}
    lines = cli("kernels", "--head-dim", "64").out.splitlines()
    assert max(map(len, lines)) <= 80
    start = lines.index("Libraries' implementations that can't be used here")
    listed = {line.split()[0]: " ".join(line.split()[1:]) for line in lines[start + 3 :]}
    assert listed == {
        "torch-efficient": "a GPU -",
        "torch-cudnn": "a GPU -",
        "flash-attn-2": "a GPU -",
        "flash-attn-3": "flash-attn-3 build github.com/Dao-AILab/flash-attention, hopper/",
        "flashinfer": "flashinfer pip install flashinfer-python",
        "xformers": "xformers pip install xformers",
        "triton-flash": "triton pip install triton",
    }


@needs_nvrtc
def test_kernels_lists_no_library_where_all_are_here_or_one_kernel_is_asked_for(
    cli: Callable, here: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Libraries' implementations" not in cli("kernels", "--impl", "flash2", "--head-dim", "64").out
    here |= {library.module for library in baselines.libraries()}
    monkeypatch.setattr(backends, "why_not", lambda name: None)
    assert "Libraries' implementations" not in cli("kernels", "--head-dim", "64").out
    # Data are the kernels alone.
    here.clear()
    assert {row["impl"] for row in json.loads(cli("kernels", "--format", "json").out)} == {
        "standard",
        "flash1",
        "flash2",
    }


def test_doctor_names_the_libraries_that_are_here(here: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from fa_bench.cli import probes

    assert (probes.libraries().state, probes.libraries().advice) == ("missing", "fa-bench kernels lists them.")
    here |= {"torch", "flash_attn", "xformers"}
    monkeypatch.setattr(Library, "version", lambda self: f"{self.name} 1.0")
    found = probes.libraries()
    assert (found.state, found.detail) == ("ok", "flash-attn 1.0, xformers 1.0")
