"""Source lines of PTX: through inlined functions, past CUDA's headers, and without line information."""

from __future__ import annotations

from pathlib import Path

from fa_bench.profiling.lines import LineTable, Place

# Line numbers of this text are counted from its first line, which is 1.
PTX = """.entry k()
{
	.loc	1 10 3
	mov.u32 %r1, %tid.x;
	.loc	2 5 1, function_name $L__info_string0, inlined_at 1 11 7
	add.s32 %r1, %r1, 1;
	.loc	3 99 1, function_name $L__info_string1, inlined_at 2 5 1
	add.s32 %r1, %r1, 2;
	.loc	3 77 1, function_name $L__info_string2, inlined_at 4 6 2
	add.s32 %r1, %r1, 3;
	.loc	1 0 7
	add.s32 %r1, %r1, 4;
}
.entry other()
{
	ret;
	.loc	1 20 1
	ret;
}
	.file	1 "/home/me/lab/kernel.cu"
	.file	2 "/home/me/lab/common/tile.cuh"
	.file	3 "/usr/local/cuda/include/cuda_fp16.hpp"
	.file	4 "/venv/lib/python3.11/site-packages/triton/language/standard.py"
"""


def table(**options: Path | dict[str, str]) -> LineTable:
    return LineTable(PTX, "kernel.ptx", **{"root": Path("/home/me/lab"), **options})  # type: ignore[arg-type]


def test_an_instruction_has_the_line_of_the_last_loc_before_it() -> None:
    assert table().place(4) == Place("kernel.cu", 10)


def test_an_inlined_function_of_the_users_counts_where_it_stands() -> None:
    assert table().place(6) == Place("common/tile.cuh", 5)


def test_an_inlined_function_of_cudas_headers_counts_where_it_is_called() -> None:
    # cuda_fp16.hpp:99 was inlined at tile.cuh:5, which itself was inlined at kernel.cu:11.
    assert table(system=Path("/usr/local/cuda/include")).place(8) == Place("common/tile.cuh", 5)
    # Who does not know which headers are CUDA's sees them.
    assert table().place(8) == Place("../../../usr/local/cuda/include/cuda_fp16.hpp", 99)


def test_the_way_out_of_inlined_functions() -> None:
    # cuda_fp16.hpp:99 in tile.cuh:5 in kernel.cu:11; line 10 leads to a package, line 12 nowhere.
    lines = table(system=Path("/usr/local/cuda/include"))
    assert lines.places(8) == (Place("common/tile.cuh", 5), Place("kernel.cu", 11))
    assert lines.chain(8) == "tile.cuh:5 from kernel.cu:11"
    assert lines.chain(4) == "kernel.cu:10"
    assert lines.chain(10) == lines.chain(12) == ""


def test_an_installed_package_is_not_the_users_either() -> None:
    # cuda_fp16.hpp:77, inlined in a package's file, of which no caller is known.
    assert table(system=Path("/usr/local/cuda/include")).place(10) is None


def test_code_that_the_compiler_made_has_no_line() -> None:
    assert table().place(12) is None


def test_a_function_does_not_inherit_the_line_of_the_one_before() -> None:
    assert table().place(16) is None
    assert table().place(18) == Place("kernel.cu", 20)


def test_without_a_folder_files_have_their_full_paths() -> None:
    assert LineTable(PTX, "kernel.ptx").place(4) == Place("/home/me/lab/kernel.cu", 10)


def test_a_source_that_is_no_file_is_found_by_its_name() -> None:
    text = "\n" * 9 + "  int i = threadIdx.x;  \n"
    lines = LineTable(PTX, "kernel.ptx", texts={"kernel.cu": text})
    place = lines.place(4)
    assert place == Place("kernel.cu", 10)
    assert lines.text(place) == "int i = threadIdx.x;"


def test_the_text_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text("one\n  two\n")
    lines = LineTable(PTX, "kernel.ptx", tmp_path)
    assert lines.text(Place("kernel.cu", 2)) == "two"
    assert lines.text(Place("kernel.cu", 3)) == ""
    assert lines.text(Place("missing.cu", 1)) == ""


def test_ptx_without_line_information_is_its_own_source(scale_ptx: str) -> None:
    lines = LineTable(scale_ptx, "scale.ptx")
    number = scale_ptx.splitlines().index("    mul.f32 %f3, %f2, %f1;") + 1
    assert lines.place(number) == Place("scale.ptx", number)
    assert lines.text(Place("scale.ptx", number)) == "mul.f32 %f3, %f2, %f1;"
    assert lines.chain(number) == ""
