"""PTX that comes with fa-bench: current, complete, found by content, refused in a sentence where it is not there."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from fa_bench import algorithms, nvrtc, shipped
from fa_bench.algorithms.base import KernelSpec
from fa_bench.cli.axes import merge_axes, sweep_request
from fa_bench.cli.planning import ModelOnly, resolved, target_gpu
from fa_bench.compiler import compile_kernel, kernels_dir, nvrtc_available, ptx_available
from fa_bench.errors import DeviceUnavailable
from fa_bench.shipped import ShippedKernel
from fa_bench.sweep.plan import plan
from fa_bench.tracing.patches import changed_kernels

ROOT = Path(__file__).resolve().parents[1]

needs_nvrtc = pytest.mark.skipif(nvrtc_available() is not None, reason=str(nvrtc_available()))


def script() -> ModuleType:
    """scripts/ship_ptx.py as a module."""
    spec = importlib.util.spec_from_file_location("ship_ptx", ROOT / "scripts" / "ship_ptx.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = script()
SPECS: tuple[KernelSpec, ...] = SCRIPT.kernels()


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without NVRTC."""
    monkeypatch.setenv(nvrtc.HIDE, "1")
    nvrtc.load.cache_clear()
    yield
    nvrtc.load.cache_clear()


# --- the archive -----------------------------------------------------------------------------------------------------


def test_the_archive_is_current() -> None:
    assert SCRIPT.stale(SPECS) == [], "run: python scripts/ship_ptx.py"


def test_the_archive_is_small() -> None:
    assert shipped.ARCHIVE.stat().st_size < 2**20


@pytest.mark.parametrize(
    "options",
    [
        {"seq": "512..16k"},  # make sweep
        {"seq": "512..16k", "head_dim": "64,128", "dtype": "fp16,bf16,fp32", "causal": "both"},
        {"seq": "1k..4k", "head_dim": "64,128", "causal": "both", "block": "64x64,128x64"},  # README.md
        {"seq": "300", "causal": "both"},  # .ci/check_wheel.py
        # README.md
        {"seq": "1k", "impl": "flash2", "window": "128:0", "features": "softcap=30+alibi+dropout=0.1"},
        {"seq": "512", "impl": "standard,flash2", "direction": "fwd+bwd"},
    ],
    ids=str,
)
def test_what_the_commands_plan_is_shipped(options: dict[str, str]) -> None:
    request = resolved(sweep_request(merge_axes({"impl": "auto", **options}), "emulator", None), (ModelOnly(),))
    assert not unshipped(plan(request, (ModelOnly(),), target_gpu(None, ())).cases)


def test_the_quick_preset_and_the_default_check_are_shipped() -> None:
    from fa_bench.cli.check import DEFAULT_AXES, _plan

    quick = resolved(sweep_request(merge_axes({}, "quick"), "emulator", None), (ModelOnly(),))
    assert not unshipped(plan(quick, (ModelOnly(),), target_gpu(None, ())).cases)
    cells = list(_plan({}, DEFAULT_AXES, [ModelOnly()], target_gpu(None, ())))  # type: ignore[list-item]
    assert len(cells) > 200
    assert not unshipped(cells)


def unshipped(cells: object) -> set[KernelSpec]:
    """Kernels of a plan that are not shipped."""
    found = set()
    for cell in cells:  # type: ignore[attr-defined]
        if cell.status == "run":
            launches = algorithms.get(cell.case.impl).program(cell.case).launches
            found |= {launch.kernel for launch in launches} - set(SPECS)
    return found


def test_a_changed_source_makes_its_kernels_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in kernels_dir().rglob("*.cu*"):
        copy = tmp_path / path.relative_to(kernels_dir())
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(path.read_text())
    monkeypatch.setattr(SCRIPT, "kernels_dir", lambda: tmp_path)
    assert SCRIPT.stale(SPECS) == []
    softmax = tmp_path / "common" / "softmax.cuh"
    softmax.write_text(softmax.read_text() + "\n// changed\n")
    stale = SCRIPT.stale(SPECS)
    with changed_kernels(tmp_path) as folder:
        users = {
            spec.source
            for spec in SPECS
            if any(path.name == softmax.name for path in shipped.closure(folder / spec.source))
        }
    # A traced kernel changes with the one that it is made of.
    assert {"flash2/flash2_fwd.cu", "standard/softmax.cu", "traced/flash2/flash2_fwd.cu"} <= users
    assert "standard/pv.cu" not in users
    assert len(stale) == sum(spec.source in users for spec in SPECS)
    assert all(line.endswith("is of an older source") for line in stale)


def test_what_is_missing_or_in_vain_is_stale() -> None:
    extra = replace(SPECS[0], defines=(("NEW", "1"),))
    name = shipped.variant(extra, "sm_80")
    assert SCRIPT.stale((*SPECS, extra)) == [f"{name} is not shipped"]
    assert SCRIPT.stale(SPECS[1:]) == [f"{shipped.variant(SPECS[0], 'sm_80')} is in vain"]


@needs_nvrtc
def test_a_shipped_kernel_is_what_the_compiler_makes() -> None:
    index = shipped.index()
    assert index is not None
    if index.nvrtc_version != nvrtc.load().version:
        pytest.skip(f"the archive is by NVRTC {index.nvrtc_version}")
    with changed_kernels() as folder:
        for spec in (SPECS[0], SPECS[-1]):
            compiled = compile_kernel(spec, "sm_80", folder=folder)
            assert shipped.find(spec, "sm_80", folder) == ShippedKernel(
                compiled.ptx,
                compiled.registers or 0,
                compiled.static_smem_bytes or 0,
                compiled.spill_bytes or 0,
                compiled.nvrtc_version,
            )


# --- packing ---------------------------------------------------------------------------------------------------------

ONE = KernelSpec("room/one.cu", "one", (("N", "1"),))
TWO = KernelSpec("room/one.cu", "one", (("N", "2"),))
THREE = KernelSpec("room/two.cu", "two")
KERNEL = ShippedKernel("// ptx 1", 32, 128, 0, "13.0")


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An archive of three kernels whose sources lie in ``tmp_path / kernels``, in place of the one that is shipped."""
    folder = tmp_path / "kernels"
    (folder / "room").mkdir(parents=True)
    (folder / "room" / "one.cu").write_text("// one\n")
    (folder / "room" / "two.cu").write_text("// two\n")
    kernels = [
        (spec, "sm_80", shipped.content(spec, folder), replace(KERNEL, ptx=f"// ptx {k}"))
        for k, spec in enumerate((ONE, TWO, THREE))
    ]
    monkeypatch.setattr(shipped, "ARCHIVE", tmp_path / "ptx.zip")
    assert shipped.pack(kernels) == shipped.pack(kernels)
    shipped.ARCHIVE.write_bytes(shipped.pack(kernels))
    for cached in (shipped.index, shipped._kernels):
        cached.cache_clear()
    yield folder
    for cached in (shipped.index, shipped._kernels):
        cached.cache_clear()


def test_a_kernel_is_found_by_defines_architecture_and_content(archive: Path) -> None:
    assert shipped.find(ONE, "sm_80", archive) == replace(KERNEL, ptx="// ptx 0")
    assert shipped.find(TWO, "sm_80", archive) == replace(KERNEL, ptx="// ptx 1")
    assert shipped.find(THREE, "sm_80", archive) == replace(KERNEL, ptx="// ptx 2")
    assert shipped.find(ONE, "sm_90", archive) is None
    assert shipped.find(replace(ONE, entry="other"), "sm_80", archive) is None
    assert shipped.find(replace(ONE, defines=(("N", "3"),)), "sm_80", archive) is None
    (archive / "room" / "one.cu").write_text("// another one\n")
    assert shipped.find(ONE, "sm_80", archive) is None
    assert shipped.missing(ONE, "sm_80") == (
        "room/one.cu was changed since its PTX was made, and there is no compiler (NVRTC) here to compile it."
    )
    assert shipped.missing(ONE, "sm_90") == (
        "There is no compiler (NVRTC) here, and one for sm_90 with N=1 is not among the kernels that come compiled."
    )


def test_the_archive_is_a_plain_zip_file_with_a_member_per_source(archive: Path) -> None:
    with zipfile.ZipFile(shipped.ARCHIVE) as file:
        assert file.namelist() == ["index.json", "room/one.cu", "room/two.cu"]
    index = shipped.index()
    assert index is not None
    assert (len(index.contents), index.nvrtc_version, index.architectures) == (3, "13.0", ("sm_80",))


def test_kernels_of_two_compilers_make_no_archive() -> None:
    with pytest.raises(ValueError, match="not of"):
        shipped.pack([(ONE, "sm_80", "", KERNEL), (TWO, "sm_80", "", replace(KERNEL, nvrtc_version="12.9"))])


# --- the compiler without NVRTC --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("hidden")
def test_without_nvrtc_the_shipped_kernel_is_taken() -> None:
    assert nvrtc_available() == (
        "The CUDA compiler NVRTC is hidden here, since the variable FA_BENCH_HIDE_NVRTC is set."
    )
    assert ptx_available() is None
    kernel = compile_kernel(SPECS[0], "sm_80")
    assert f".entry {SPECS[0].entry}(" in kernel.ptx
    assert (kernel.cubin, kernel.compile_ms) == (b"", None)
    assert kernel.registers is not None and kernel.registers > 0
    assert kernel.nvrtc_version


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize(("sm", "options"), [("sm_90", {}), ("sm_80", {"lineinfo": True}), ("sm_80", {"major": 13})])
def test_what_is_not_shipped_is_refused(sm: str, options: dict[str, object]) -> None:
    with pytest.raises(DeviceUnavailable) as refused:
        compile_kernel(SPECS[0], sm, **options)  # type: ignore[arg-type]
    assert refused.value.message.endswith(".")
    assert "NVRTC" in refused.value.message


@pytest.mark.usefixtures("hidden")
def test_without_either_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "index", lambda: None)
    reason = ptx_available()
    assert reason is not None and "NVRTC" in reason
