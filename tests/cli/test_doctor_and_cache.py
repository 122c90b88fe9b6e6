"""``doctor``, ``cache``, ``gpus`` and ``kernels``: short commands, each in every format that matters."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from fa_bench.cli import probes
from fa_bench.cli.probes import Finding
from fa_bench.compiler import nvrtc_available

needs_nvrtc = pytest.mark.skipif(nvrtc_available() is not None, reason=f"no compiler: {nvrtc_available()}")


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("FA_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def findings(monkeypatch: pytest.MonkeyPatch, *found: Finding) -> None:
    monkeypatch.setattr(probes, "PROBES", tuple((f.subject, lambda f=f: f) for f in found))


def test_doctor_looks_at_everything(cli: Callable, own_cache: Path) -> None:
    ran = cli("doctor", "--format", "json")
    subjects = [finding["subject"] for finding in json.loads(ran.out)]
    assert subjects == [
        "Python", "CPU", "emulator", "NVRTC", "shipped PTX", "driver", "CuPy", "GPU", "NVML", "peaks", "ncu", "torch",
        "libraries", "terminal", "cache",
    ]  # fmt: skip
    assert ran.code == 0, ran.out


def test_doctor_fits_80_columns(cli: Callable, own_cache: Path) -> None:
    assert max(map(len, cli("doctor").out.splitlines())) <= 80


def test_doctor_says_when_the_cache_cannot_be_written(
    cli: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FA_BENCH_CACHE", str(tmp_path / "file"))
    found = json.loads(cli("doctor", "--format", "json").out)[-1]
    assert found["subject"] == "cache" and found["state"] == "missing"
    assert "can't be written" in found["detail"] and "FA_BENCH_CACHE" in found["advice"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, typer.Abort])
def test_ctrl_c_is_exit_code_130(cli: Callable, monkeypatch: pytest.MonkeyPatch, stop: type[BaseException]) -> None:
    def interrupted() -> None:
        raise stop

    monkeypatch.setattr(probes, "examine", interrupted)
    assert cli("doctor").code == 130


def test_what_is_missing_is_no_failure_and_has_advice(cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    findings(monkeypatch, Finding("torch", "missing", "not installed", "pip install torch"))
    ran = cli("doctor")
    assert ran.code == 0
    assert "pip install torch" in ran.out
    assert "io-model --no-measure" in ran.err


def test_what_is_broken_is_a_failure(cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    findings(monkeypatch, Finding("NVRTC", "broken", "it crashed", "reinstall"))
    assert cli("doctor").code == 1


def test_a_probe_that_raises_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode() -> Finding:
        raise OSError("two\nlines")

    monkeypatch.setattr(probes, "PROBES", (("thing", explode),))
    (finding,) = probes.examine()
    assert (finding.subject, finding.state, finding.detail) == ("thing", "broken", "OSError: two lines")


def test_no_nvrtc_and_no_packages_are_ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    from fa_bench import nvrtc
    from fa_bench.errors import DeviceUnavailable

    def absent() -> None:
        raise DeviceUnavailable("NVRTC is not installed.", hint="Install it.")

    monkeypatch.setattr(nvrtc, "load", absent)
    monkeypatch.setattr(probes, "_version", lambda package: None)
    monkeypatch.setattr("fa_bench.measure.ncu.find", lambda: None)
    for probe in (probes.nvrtc, probes.emulator, probes.cupy, probes.torch, probes.ncu):
        finding = probe()
        assert finding.state == "missing"
        assert finding.advice


def test_an_ncu_that_may_not_read_counters_is_told_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    from fa_bench.measure.ncu import Probe

    for admin_only, advised in ((True, True), (False, False), (None, False)):
        found = Probe("/opt/ncu", "2024.3.2.0", admin_only, privileged=False)
        monkeypatch.setattr("fa_bench.measure.ncu.probe", lambda found=found: found)
        finding = probes.ncu()
        assert finding.state == "ok" and finding.detail.startswith("2024.3.2.0 (/opt/ncu); ")
        assert ("NVreg_RestrictProfilingToAdminUsers=0" in finding.advice) is advised


class FakeNvml:
    """An NVIDIA driver that supports CUDA 12."""

    def unavailable(self) -> None:
        return None

    def driver_version(self) -> str:
        return "550.54"

    def ask(self, function: str) -> int:
        assert function == "nvmlSystemGetCudaDriverVersion_v2"
        return 12040

    def close(self) -> None:
        pass


def test_a_driver_asks_for_the_cuda_packages_of_its_major(monkeypatch: pytest.MonkeyPatch) -> None:
    from fa_bench import nvrtc
    from fa_bench.measure import nvml

    monkeypatch.setattr(nvml, "Nvml", FakeNvml)
    monkeypatch.setattr(probes, "_version", lambda package: None)
    assert probes.cupy().advice == "pip install 'fa-bench[cuda12]'"

    newest = {None: None, 13: None, 12: "NVRTC 12 is not installed."}
    monkeypatch.setattr(nvrtc, "unavailable", lambda major=None: newest[major])
    found = probes.driver()
    assert (found.state, found.detail) == ("ok", "550.54, CUDA 12")
    assert found.advice == "NVRTC is newer than the driver: pip install 'fa-bench[cuda12]'"
    monkeypatch.setattr(nvrtc, "unavailable", lambda major=None: None)
    assert probes.driver().advice == ""


class BrokenNvml:
    """A driver that fails; ``Nvml`` is asked why, and whether it is one that an ordinary machine has."""

    def __init__(self, name: str) -> None:
        from fa_bench.measure.nvml import Nvml

        error = type(name, (Exception,), {})

        def init() -> None:
            raise error

        self.nvml = Nvml(SimpleNamespace(NVMLError=Exception, nvmlInit=init))


@pytest.mark.parametrize(
    ("error", "state", "said"),
    [
        ("NVMLError_LibraryNotFound", "missing", "not on this machine"),
        ("NVMLError_DriverNotLoaded", "missing", "not loaded"),
        ("NVMLError_LibRmVersionMismatch", "broken", "different versions"),
        ("NVMLError_FunctionNotFound", "broken", "too old"),
        ("NVMLError_NoPermission", "broken", "may not talk"),
        ("NVMLError_Unknown", "broken", "does not start"),
    ],
)
def test_doctor_says_why_nvml_does_not_start(
    error: str, state: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fa_bench.measure import nvml

    fake = BrokenNvml(error).nvml
    monkeypatch.setattr(nvml, "Nvml", lambda: fake)
    found = probes.driver()
    assert found.state == state and said in found.detail and found.advice


def test_doctor_says_which_figures_of_nvml_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from fa_bench import backends
    from fa_bench.backends import cuda_device
    from fa_bench.measure import nvml

    assert probes.board().state == ("missing" if backends.why_not("cuda") else "ok")
    devices = {"GPU-a": {"power": "not supported"}, "GPU-b": {}, "GPU-c": None}

    def card(cupy: object, ordinal: int) -> SimpleNamespace:
        return SimpleNamespace(name=f"card {ordinal}", uuid=list(devices)[ordinal], pci_bus_id="")

    def device(uuid: str, bus: str) -> SimpleNamespace | None:
        missing = devices[uuid]
        if missing is None:
            return None
        nothing: Callable[[], None] = lambda: None  # noqa: E731
        return SimpleNamespace(read=nothing, energy_mj=nothing, missing=lambda: missing, memory_source="f")

    runtime = SimpleNamespace(getDeviceCount=lambda: 3)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))  # type: ignore[arg-type]
    monkeypatch.setattr(backends, "why_not", lambda name: None)
    monkeypatch.setattr(cuda_device, "CudaDevice", card)
    fake = SimpleNamespace(device=device, unavailable=lambda: None, close=lambda: None)
    monkeypatch.setattr(nvml, "Nvml", lambda: fake)
    found = probes.board()
    assert found.detail == "card 0: memory by f, card 1: memory by f, card 2: not found by UUID or PCI bus id"
    assert found.advice == "Empty columns: power: not supported."


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (("GPU", "NVRTC", "emulator"), "timed on the GPU"),
        (("NVRTC", "emulator"), "bytes are counted"),
        (("shipped PTX", "emulator"), "bytes are counted"),
        (("emulator",), "NumPy and torch"),
    ],
)
def test_doctor_ends_with_what_can_be_done(
    found: tuple[str, ...], said: str, cli: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings(monkeypatch, *(Finding(subject, "ok", "") for subject in found))
    assert said in cli("doctor").err


def test_the_caches_are_shown_and_emptied(cli: Callable, own_cache: Path) -> None:
    entry = own_cache / "kernels" / "x"
    entry.parent.mkdir(parents=True)
    entry.write_text("1234")
    shown = {row["cache"]: row for row in json.loads(cli("cache", "--format", "json").out)}
    assert (shown["kernels"]["folder"], shown["kernels"]["entries"], shown["kernels"]["nbytes"]) == (
        str(own_cache / "kernels"),
        1,
        4,
    )
    assert sum(row["entries"] for row in shown.values()) == 1
    assert str(own_cache) in "".join(cli("cache").out.split())
    ran = cli("cache", "clear")
    assert ran.code == 0
    assert "Removed 1 entries." in ran.err
    assert not entry.exists()


def test_gpus_as_table_and_data(cli: Callable) -> None:
    ran = cli("gpus")
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) <= 80
    rows = list(csv.DictReader(io.StringIO(cli("gpus", "--format", "csv").out)))
    a100 = next(row for row in rows if row["slug"] == "a100-sxm-80")
    assert (a100["sm_count"], a100["compute_capability"], a100["smem_per_block_bytes"]) == ("108", "8.0", "166912")
    assert "| a100-sxm-80 |" in cli("gpus", "--format", "md").out


def test_one_gpu_with_its_sources(cli: Callable) -> None:
    ran = cli("gpus", "NVIDIA A100-SXM4-80GB")
    assert "8.0 (sm_80)" in ran.out
    assert "sources" in ran.out
    assert json.loads(cli("gpus", "a100", "--format", "json").out)["slug"] == "a100-sxm-80"


@needs_nvrtc
def test_kernels_on_a_gpu_that_is_not_here(cli: Callable, own_cache: Path) -> None:
    ran = cli("kernels", "--impl", "flash2", "--block", "64x64", "--gpu", "rtx-4090", "--format", "json")
    assert ran.code == 0
    (row,) = json.loads(ran.out)
    # Q 64 rows and one stage of K and V, 64 rows each: 192 rows of 64 halves.
    assert (row["gpu"], row["kernel"], row["smem_bytes"]) == ("rtx-4090", "flash2_fwd", 192 * 64 * 2)
    assert row["registers"] > 0
    assert row["blocks_per_sm"] >= 1
    table = cli("kernels", "--impl", "flash2", "--block", "64x64", "--gpu", "rtx-4090")
    assert max(map(len, table.out.splitlines())) <= 80


@needs_nvrtc
@pytest.mark.parametrize("gpu", ["a100-sxm-80", "rtx-4090"])
def test_names_of_kernels_stand_whole_in_80_columns(cli: Callable, gpu: str) -> None:
    lines = cli("kernels", "--dtype", "fp16,fp32", "--gpu", gpu).out.splitlines()
    assert max(map(len, lines)) <= 80
    names = ["standard_scores", "standard_softmax", "standard_pv", "flash1_init", "flash1_fwd", "flash2_fwd"]
    first_words = [line.split()[0] for line in lines if "x" in line and "/" in line and "warps" not in line]
    assert first_words == 2 * names
    assert [line for line in lines if line.startswith(gpu)] == [
        f"{gpu} (sm_{80 if gpu[0] == 'a' else 89}), {t}, D=64" for t in ("fp16", "fp32")
    ]


def test_kernels_without_a_compiler_is_exit_code_3(cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    from fa_bench import nvrtc
    from fa_bench.errors import DeviceUnavailable

    def absent(major: int | None = None) -> None:
        raise DeviceUnavailable("The CUDA compiler NVRTC 13 or 12 is not installed.", hint="Install it.")

    monkeypatch.setattr(nvrtc, "load", absent)
    ran = cli("kernels", "--gpu", "rtx-4090")
    assert ran.code == 3
    assert ran.err.startswith("Error: There is no compiler (NVRTC) here, and standard_scores for sm_89")
    assert "Install it." in ran.err


@needs_nvrtc
def test_a_kernel_that_cannot_be_is_said(cli: Callable, own_cache: Path) -> None:
    # fp32 at D = 256, 64 rows of Q and two stages of 64 rows of K and V: 320 rows of 1 KiB, more than 163 KiB.
    ran = cli(
        "kernels", "--impl", "flash2", "--block", "64x64", "--stages", "2", "--head-dim", "256", "--dtype", "fp32"
    )
    assert ran.code == 0
    assert "320 KiB" in ran.err


@needs_nvrtc
def test_kernels_of_the_backward_pass_and_with_features(cli: Callable) -> None:
    asked = ("kernels", "--direction", "fwd,bwd", "--features", "none,dropout=0.1", "--head-dim", "64")
    rows = json.loads(cli(*asked, "--format", "json").out)
    found = {(row["kernel"], row["direction"], row["features"]) for row in rows}
    assert {
        ("flash2_fwd", "fwd", ""),
        ("flash2_fused", "fwd", "dropout 0.1"),
        ("standard_softmax", "fwd", "dropout 0.1"),
        ("standard_bwd_ds", "bwd", "dropout 0.1"),
        ("flash2_bwd_preprocess", "bwd", ""),
        ("flash2_bwd_atomic", "bwd", "dropout 0.1"),
    } <= found
    # Without --impl what a kernel was not made for is left out without a word.
    assert {row["impl"] for row in rows if row["features"]} == {"standard", "flash2", "flash2-atomic"}
    table = cli(*asked)
    assert max(map(len, table.out.splitlines())) <= 80
    assert "a100-sxm-80 (sm_80), fp16, D=64, bwd, dropout 0.1" in table.out
    assert "flash2_bwd_preprocess " in table.out
    assert table.err == ""


@needs_nvrtc
def test_a_default_tile_is_explained_by_figures(cli: Callable) -> None:
    asked = ("kernels", "--explain", "--impl", "flash2", "--head-dim", "128", "--gpu", "rtx-4090")
    rows = json.loads(cli(*asked, "--format", "json").out)
    default = rows[0]
    assert (default["block_m"], default["block_n"], default["num_warps"], default["is_default"]) == (128, 32, 4, True)
    assert [row["is_default"] for row in rows[1:]] == [False] * (len(rows) - 1)
    # Of K and V 64 KiB of shared memory and Q's 32: one CTA on an SM of 100 KiB, where the default has two.
    wide = next(row for row in rows if (row["block_n"], row["num_warps"]) == (64, 8))
    assert (default["blocks_per_sm"], wide["blocks_per_sm"]) == (2, 1)
    assert wide["against"] == ["one CTA", "wavefronts"]
    assert wide["instructions_per_score"] < default["instructions_per_score"]
    table = cli(*asked).out
    assert max(map(len, table.splitlines())) <= 80
    assert "flash2, 1k fp16 D=128 full, rtx-4090 (sm_89)" in table
    assert "the default" in table and "one CTA, wavef" in table


def test_explain_is_about_default_tiles(cli: Callable) -> None:
    ran = cli("kernels", "--explain", "--block", "64x64")
    assert (ran.code, ran.out) == (2, "")
    assert "--explain is about default tiles: leave out --block and --stages." in ran.err
    ran = cli("kernels", "--explain", "--impl", "flash2-atomic")
    assert (ran.code, ran.out) == (2, "")
    assert "none of these kernels has one here" in ran.err
