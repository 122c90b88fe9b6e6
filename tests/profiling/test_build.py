"""A source made ready to run: CUDA with includes, definitions and templates; PTX with and without ptxas."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from fa_bench import nvrtc as library
from fa_bench.errors import CompileError, UsageError
from fa_bench.filecache import KERNELS
from fa_bench.model import gpus
from fa_bench.profiling.build import NO_PTXAS, BuiltFile, KernelFile, build
from fa_bench.profiling.lines import Place

A100 = gpus.get("a100-sxm-80")

SOURCE = """
#include "scale.cuh"
#include <cstdint>
__global__ void __launch_bounds__(64, 1) first(float* x) { x[threadIdx.x] *= scale() * FACTOR; }
template <typename T, int N> __global__ void second(T* x, uint32_t n) { if (n) x[threadIdx.x] += N; }
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache."""
    monkeypatch.setenv("FA_BENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def file(tmp_path: Path, nvrtc: None) -> KernelFile:
    (tmp_path / "scale.cuh").write_text("#pragma once\n__device__ float scale() { return 3.f; }\n")
    return KernelFile("kernel.cu", SOURCE, tmp_path, defines=(("FACTOR", "2"),))


def test_the_users_headers_definitions_and_launch_bounds(file: KernelFile) -> None:
    built = build(file, ["first"], A100)
    entry = built.entry("first")
    assert built.launch_bounds(entry) == (64, 1, 1)
    kernel = built.load(entry)
    assert [str(p) for p in built.parameters(kernel)] == ["x (float*)"]
    registers, static_bytes, spills = built.compiled.resources(entry)
    assert (registers > 0, static_bytes, spills) == (True, 0, 0)
    # 3 x 2 = 6 is 0x40C00000 in fp32.
    assert "0f40C00000" in built.compiled.ptx
    assert built.compiled.compiler.startswith("NVRTC ")
    places = {built.lines.place(instruction.line) for instruction in kernel.instructions}
    assert places == {Place("kernel.cu", 4)}


def test_an_instance_of_a_template_is_made_on_demand(file: KernelFile) -> None:
    built = build(file, ["second<float, 7>"], A100)
    entry = built.entry("second<float, 7>")
    assert built.load(entry).name == entry != "second"
    assert [str(p) for p in built.parameters(built.load(entry))] == ["x (T*)", "n (uint32_t)"]


def test_a_template_without_an_instance_says_how_to_name_one(file: KernelFile) -> None:
    with pytest.raises(UsageError, match="second is a template") as refused:
        build(file, ["second"], A100).entry("second")
    assert "second<64>" in refused.value.hint
    with pytest.raises(UsageError, match="name is not understood"):
        build(file, ["third<4>"], A100)


def test_whatever_changes_the_product_is_compiled_anew(file: KernelFile, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compile_source = library.Nvrtc.compile

    def counted(self: library.Nvrtc, source: str, name: str, *rest: object) -> library.Compilation:
        compiled.append(name)
        return compile_source(self, source, name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(library.Nvrtc, "compile", counted)
    first = build(file, [None], A100).compiled
    assert build(file, [None], A100).compiled == first
    assert len(compiled) == 1
    for changed in (
        replace(file, defines=(("FACTOR", "3"),)),
        replace(file, options=("--use_fast_math",)),
        replace(file, text=file.text + "\n"),
    ):
        build(changed, [None], A100)
        build(changed, [None], A100)
    build(file, ["second<float, 1>"], A100)
    build(file, [None], gpus.get("h100-sxm"))
    assert len(compiled) == 6
    assert file.root is not None
    (file.root / "scale.cuh").write_text("#pragma once\n__device__ float scale() { return 4.f; }\n")
    build(file, [None], A100)
    assert len(compiled) == 7
    for entry in KERNELS.folder.iterdir():
        entry.write_bytes(b"{}")
    assert build(file, [None], A100).compiled.ptx
    assert len(compiled) == 8


def test_an_error_is_the_compilers_first_line_and_a_next_step(file: KernelFile) -> None:
    with pytest.raises(CompileError, match=r'^kernel\.cu\(4\): error: identifier "FACTOR" is undefined') as refused:
        build(replace(file, defines=()), [None], A100)
    with pytest.raises(CompileError, match="cannot open source file") as refused:
        build(replace(file, text='#include "none.cuh"\n'), [None], A100)
    assert "--include" in refused.value.hint
    with pytest.raises(CompileError, match="cannot open source file") as refused:
        build(replace(file, text="#include <cuda/none>\n"), [None], A100)
    assert "CCCL" in refused.value.hint


def test_headers_are_found_in_a_folder_that_is_named(file: KernelFile, tmp_path: Path) -> None:
    folder = tmp_path / "include"
    folder.mkdir()
    (folder / "more.cuh").write_text("#define FACTOR 5\n")
    text = '#include "more.cuh"\n' + file.text
    build(replace(file, text=text, defines=(), includes=(folder,)), [None], A100)


def test_host_code_is_left_out_and_said_so(kernels: Path, nvrtc: None) -> None:
    file = KernelFile("transpose.cu", (kernels / "transpose.cu").read_text(), kernels)
    built = build(file, [None], A100)
    assert built.notes == ("The file's host code was left out.",)
    assert built.load(built.entry(None)).static_smem_bytes == 32 * 32 * 4


def test_a_file_without_a_kernel(nvrtc: None) -> None:
    with pytest.raises(UsageError, match=r"empty\.cu has no kernel"):
        build(KernelFile("empty.cu", "__device__ int x;\n"), [None], A100).entry(None)


# --- PTX -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_ptxas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "find_tool", lambda name: None)


@pytest.mark.usefixtures("no_ptxas")
def test_ptx_without_ptxas_runs_and_says_what_is_not_known(scale_ptx: str) -> None:
    built = build(KernelFile("scale.ptx", scale_ptx), [None], A100)
    assert built.notes == (NO_PTXAS,)
    assert built.compiled.cubin == b""
    kernel = built.load(built.entry(None))
    # Only f32 and f64 parameters say their type in PTX.
    assert [str(p) for p in built.parameters(kernel)] == [
        "scale_x (8 bytes)",
        "scale_y (8 bytes)",
        "scale_factor (float)",
    ]
    assert built.launch_bounds("scale") is None


@pytest.mark.usefixtures("no_ptxas")
def test_another_kernel_of_the_file_need_not_be_executable(scale_ptx: str) -> None:
    other = scale_ptx.partition(".visible")[2].replace("scale", "other").replace("mul.f32 %f3", "wgmma.fence %f3")
    text = scale_ptx + ".visible" + other
    built = build(KernelFile("two.ptx", text), [None], A100)
    kernel = built.load("scale")
    # Lines stay where they were.
    assert text.splitlines()[kernel.instructions[-1].line - 1].strip() == "ret;"
    with pytest.raises(Exception, match="wgmma"):
        built.load("other")


def ptxas(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a shell script stand for ptxas."""
    tool = folder / "ptxas"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(library, "find_tool", lambda name: tool if name == "ptxas" else None)


#: Says what a ptxas says, with what it was asked for as the number of registers, and makes a file.
PTXAS = """
if [ "$1" = --version ]; then echo 'Cuda compilation tools, release 13.0, V13.0.88'; exit; fi
echo "ptxas info    : Compiling entry function 'scale' for '$2'" >&2
echo "ptxas info    : Used ${2#-arch=sm_} registers, 352 bytes cmem[0]" >&2
echo cubin > "$5"
"""


@pytest.mark.skipif(os.name != "posix", reason="a shell script stands for ptxas")
def test_ptxas_says_what_a_kernel_takes_on_the_target(
    scale_ptx: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ptxas(tmp_path, PTXAS, monkeypatch)

    def registers(text: str, gpu: str) -> tuple[int, BuiltFile]:
        built = build(KernelFile("scale.ptx", text), [None], gpus.get(gpu))
        return built.compiled.resources("scale")[0], built

    assert registers(scale_ptx, "a100-sxm-80")[0] == 80
    found, built = registers(scale_ptx, "h100-sxm")
    assert (found, built.notes, built.compiled.compiler) == (90, (), "ptxas 13.0.88")
    # Newer PTX than the GPU runs is assembled for its own target, and that is said.
    found, built = registers(scale_ptx.replace("sm_80", "sm_90"), "a100-sxm-80")
    assert found == 90
    assert "sm_90" in built.notes[0] and "a100-sxm-80" in built.notes[0]


@pytest.mark.skipif(os.name != "posix", reason="a shell script stands for ptxas")
def test_a_ptxas_that_refuses_is_quoted(scale_ptx: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ptxas(tmp_path, 'echo "ptxas $3, line 2; fatal   : Unsupported .version 7.0" >&2; exit 1', monkeypatch)
    built = build(KernelFile("scale.ptx", scale_ptx), [None], A100)
    assert built.compiled.log == ""
    assert built.notes[0].endswith("not known: ptxas the file, line 2; fatal : Unsupported .version 7.0.")


@pytest.mark.skipif(library.find_tool("ptxas") is None, reason="ptxas is not here")
def test_the_real_ptxas(scale_ptx: str) -> None:
    built = build(KernelFile("scale.ptx", scale_ptx), [None], A100)
    registers, static_bytes, spills = built.compiled.resources("scale")
    assert (0 < registers < 32, static_bytes, spills) == (True, 0, 0)
    assert built.compiled.cubin.startswith(b"\x7fELF")


# --- CUDA's programs -------------------------------------------------------------------------------------------------


def test_a_program_is_found_in_a_wheel_then_a_toolkit_then_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "nvdisasm.exe" if os.name == "nt" else "nvdisasm"
    places = [tmp_path / "wheel" / "cu13" / "bin" / name, tmp_path / "toolkit" / "bin" / name, tmp_path / "path" / name]
    for place in places:
        place.parent.mkdir(parents=True)
        place.write_text("")
        place.chmod(0o755)
    monkeypatch.setattr(library, "_wheel_roots", lambda: iter([tmp_path / "wheel"]))
    monkeypatch.setattr(library, "_toolkit_roots", lambda: iter([tmp_path / "toolkit"]))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    for place in places:
        assert library.find_tool("nvdisasm") == place
        place.unlink()
    assert library.find_tool("nvdisasm") is None
