"""NVRTC found or missed, kernels compiled, their resources read, the cache by content."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fa_bench import nvrtc
from fa_bench.algorithms.base import KernelSpec
from fa_bench.compiler import CompiledKernel, _resources, compile_kernel, kernels_dir, nvrtc_available
from fa_bench.errors import CompileError, DeviceUnavailable
from fa_bench.filecache import KERNELS

needs_nvrtc = pytest.mark.skipif(nvrtc_available() is not None, reason=str(nvrtc_available()))

SOURCE = """
#include "scale.cuh"
extern "C" __global__ void first(float* x) { x[threadIdx.x] *= scale(); }
extern "C" __global__ void second(float* x) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = FACTOR * tile[63 - threadIdx.x];
}
"""
SPEC = KernelSpec("room/kernel.cu", "second", (("FACTOR", "2"),))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root of kernel sources, and an empty cache."""
    monkeypatch.setenv("FA_BENCH_CACHE", str(tmp_path / "cache"))
    room = tmp_path / "kernels" / "room"
    room.mkdir(parents=True)
    (room / "kernel.cu").write_text(SOURCE)
    (room / "scale.cuh").write_text("#pragma once\n__device__ float scale() { return 3.f; }\n")
    return tmp_path / "kernels"


@pytest.fixture
def fresh_nvrtc() -> Iterator[None]:
    """Nothing that a test does to the search for NVRTC stays."""
    nvrtc.load.cache_clear()
    yield
    nvrtc.load.cache_clear()


# --- compiling -------------------------------------------------------------------------------------------------------


@needs_nvrtc
def test_one_compilation_gives_ptx_cubin_and_resources(folder: Path) -> None:
    kernel = compile_kernel(SPEC, "sm_80", folder=folder)
    assert kernel.entry == "second"
    assert ".target sm_80" in kernel.ptx and ".entry second(" in kernel.ptx
    assert kernel.cubin.startswith(b"\x7fELF")
    assert kernel.static_smem_bytes == 64 * 4
    assert kernel.spill_bytes == 0
    assert 0 < kernel.registers <= 32
    assert kernel.compile_ms > 0
    assert kernel.nvrtc_version.split(".")[0] in {"12", "13"}


@needs_nvrtc
def test_the_architecture_and_line_information_are_the_callers(folder: Path) -> None:
    plain = compile_kernel(SPEC, "sm_90", folder=folder)
    assert ".target sm_90" in plain.ptx and ".loc" not in plain.ptx
    assert ".loc" in compile_kernel(SPEC, "sm_90", folder=folder, lineinfo=True).ptx


@needs_nvrtc
def test_an_error_is_the_compilers_first_line(folder: Path) -> None:
    with pytest.raises(CompileError, match=r'room/kernel\.cu\(8\): error: identifier "FACTOR" is undefined') as caught:
        compile_kernel(KernelSpec(SPEC.source, SPEC.entry), "sm_80", folder=folder)
    assert "\n" not in caught.value.message
    with pytest.raises(CompileError, match="gpu-architecture"):
        compile_kernel(SPEC, "sm_1", folder=folder)


@needs_nvrtc
def test_what_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(CompileError, match="no kernel called third"):
        compile_kernel(KernelSpec(SPEC.source, "third", SPEC.defines), "sm_80", folder=folder)
    with pytest.raises(CompileError, match=r"source room/none\.cu can't be read"):
        compile_kernel(KernelSpec("room/none.cu", "second"), "sm_80", folder=folder)


def test_resources_are_those_of_the_entry() -> None:
    log = """
ptxas info    : Compiling entry function 'one' for 'sm_80'
ptxas info    : Function properties for one
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers, 352 bytes cmem[0]
ptxas info    : Compiling entry function 'two' for 'sm_80'
ptxas info    : Function properties for two
ptxas         .     32 bytes stack frame, 28 bytes spill stores, 40 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 4096 bytes smem, 352 bytes cmem[0]
"""
    assert _resources(log, "one") == (12, 0, 0)
    assert _resources(log, "two") == (255, 4096, 28 + 40)


def test_the_kernels_are_found() -> None:
    assert (kernels_dir() / "flash2" / "flash2_fwd.cu").is_file()


# --- cache -----------------------------------------------------------------------------------------------------------


def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the sources that NVRTC compiles from now on."""
    names = []
    compile_source = nvrtc.Nvrtc.compile

    def counted(self: nvrtc.Nvrtc, source: str, name: str, options: Sequence[str]) -> nvrtc.Compilation:
        names.append(name)
        return compile_source(self, source, name, options)

    monkeypatch.setattr(nvrtc.Nvrtc, "compile", counted)
    return names


@needs_nvrtc
def test_the_same_content_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compilations(monkeypatch)
    first = compile_kernel(SPEC, "sm_80", folder=folder)
    assert compile_kernel(SPEC, "sm_80", folder=folder) == first
    assert len(compiled) == 1
    assert KERNELS.info().entries == 1


@needs_nvrtc
def test_whatever_changes_the_product_changes_the_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compilations(monkeypatch)

    def build(defines: tuple[tuple[str, str], ...] = SPEC.defines, sm: str = "sm_80") -> CompiledKernel:
        return compile_kernel(KernelSpec(SPEC.source, SPEC.entry, defines), sm, folder=folder)

    build()
    build(defines=(("FACTOR", "3"),))
    build(sm="sm_90")
    assert len(compiled) == 3
    source = folder / "room" / "kernel.cu"
    source.write_text(source.read_text() + "\n")
    build()
    assert len(compiled) == 4
    header = folder / "room" / "scale.cuh"
    header.write_text(header.read_text().replace("3.f", "4.f"))
    build()
    assert len(compiled) == 5
    build()
    assert len(compiled) == 5


@needs_nvrtc
def test_a_damaged_entry_is_compiled_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compilations(monkeypatch)
    first = compile_kernel(SPEC, "sm_80", folder=folder)
    (entry,) = KERNELS.folder.iterdir()
    for damage in (b"", b"{}", b"[1]", entry.read_bytes()[:-20]):
        entry.write_bytes(damage)
        assert compile_kernel(SPEC, "sm_80", folder=folder).cubin == first.cubin
    assert len(compiled) == 5


# --- NVRTC that is not there -----------------------------------------------------------------------------------------


def hide(*_: object) -> None:
    """A search that finds nothing."""


@pytest.mark.usefixtures("fresh_nvrtc")
def test_a_missing_library_is_one_sentence_with_the_remedy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_load_library", hide)
    monkeypatch.setattr(sys, "platform", "linux")
    assert nvrtc_available() == (
        "The CUDA compiler NVRTC 13 or 12 is not installed. "
        "Install it with: pip install nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-crt"
    )
    assert nvrtc_available(12) == (
        "The CUDA compiler NVRTC 12 is not installed. "
        "Install it with: pip install nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12"
    )
    with pytest.raises(DeviceUnavailable) as refused:
        compile_kernel(SPEC, "sm_80", folder=folder)
    assert refused.value.exit_code == 3


@pytest.mark.usefixtures("fresh_nvrtc")
def test_macos_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_load_library", hide)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert nvrtc_available() == ("NVIDIA has no CUDA compiler (NVRTC) for macOS, so kernels can't be compiled here.")


@needs_nvrtc
@pytest.mark.usefixtures("fresh_nvrtc")
def test_missing_headers_are_told_from_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_include_folders", lambda major: iter(()))
    reason = nvrtc_available()
    assert reason is not None and "its headers (cuda_fp16.h) are not. Install them with: pip install" in reason


@pytest.mark.usefixtures("fresh_nvrtc")
def test_a_library_that_does_not_load_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A wheel of another platform, say: the file exists, the loader refuses it.
    broken = tmp_path / "libnvrtc.so.13"
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(nvrtc, "_library_candidates", lambda major: iter([str(broken), str(tmp_path / "absent.so")]))
    assert nvrtc_available() is not None


def test_the_built_ins_are_loaded_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC opens them by bare name, which wheels of CUDA 13.0 alone do not resolve."""
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libnvrtc-builtins.alt.so.13.0"):
        (tmp_path / name).touch()
    loaded: list[str] = []
    monkeypatch.setattr(nvrtc.ctypes, "CDLL", lambda name: loaded.append(Path(name).name))
    monkeypatch.setattr(nvrtc, "_library_candidates", lambda major: [str(tmp_path / "libnvrtc.so.13")])
    nvrtc._load_library(13)
    assert loaded == ["libnvrtc-builtins.so.13.0", "libnvrtc.so.13"]


@needs_nvrtc
def test_an_option_that_the_compiler_does_not_know_is_named() -> None:
    with pytest.raises(CompileError, match="unrecognized option --no-such-option"):
        nvrtc.load().compile("", "empty.cu", ["--no-such-option"])
