"""``fa-bench profile`` and ``fa-bench diff``, as a user types them."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fa_bench.cli.app import run

SCALE = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 scale_x, .param .u64 scale_y, .param .f32 scale_factor)
{
    .reg .b32 %r<2>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [scale_x];
    ld.param.u64 %rd2, [scale_y];
    ld.param.f32 %f1, [scale_factor];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.f32 %f2, [%rd4];
    mul.f32 %f3, %f2, %f1;
    st.global.f32 [%rd5], %f3;
    ret;
}
"""
ARGUMENTS = "--grid 1 --block 64 --arg x=range:f32[64] --arg y=out:f32[64] --arg factor=2"


@pytest.fixture(autouse=True)
def no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither ptxas nor nvdisasm, so that the same is known everywhere."""
    monkeypatch.setattr("fa_bench.nvrtc.find_tool", lambda name: None)


@pytest.fixture
def profile(cli: Callable, tmp_path: Path) -> Callable:
    """Run ``fa-bench profile scale.ptx`` with these words."""

    def call(words: str = ARGUMENTS, ptx: str = SCALE) -> object:
        (tmp_path / "scale.ptx").write_text(ptx)
        return cli("profile", "scale.ptx", *shlex.split(words))

    return call


def test_a_table(profile: Callable) -> None:
    ran = profile()
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == "scale, grid 1, block 64"
    assert "x f32[64] read 2 8 256 B 128 128 1.00×" in [" ".join(line.split()) for line in lines]
    assert "active lanes 32.0 of 32 (100.0 %)" in [" ".join(line.split()) for line in lines]
    assert "pip install nvidia-cuda-nvcc" in " ".join(ran.out.split())
    assert max(map(len, lines)) <= 80


def test_json_is_the_document_that_save_keeps(profile: Callable, tmp_path: Path) -> None:
    ran = profile(f"{ARGUMENTS} --format json --save kept")
    assert json.loads(ran.out) == json.loads((tmp_path / "kept.json").read_text())
    assert "Kept in kept.json." in ran.err
    (launch,) = json.loads(ran.out)["launches"]
    assert launch["global_bytes"] == 512


def test_csv_has_a_row_per_line(profile: Callable) -> None:
    rows = list(csv.DictReader(profile(f"{ARGUMENTS} --format csv").out.splitlines()))
    assert len(rows) == 11
    (load,) = (row for row in rows if row["text"].startswith("ld.global"))
    assert (load["bytes"], load["tensors"]) == ("256", "x")


def test_markdown(profile: Callable) -> None:
    assert "| x | f32[64] | read | 2 | 8 | 256 B | 128 | 128 | 1.00× |" in profile(f"{ARGUMENTS} --format md").out


def test_outputs_are_kept(profile: Callable, tmp_path: Path) -> None:
    assert profile(f"{ARGUMENTS} --save-output out -q").err == ""
    assert np.load(tmp_path / "out" / "y.npy").tolist() == [2 * i for i in range(64)]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["y.npy"]


def test_data_from_a_file(profile: Callable, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full(64, 5, np.float32))
    profile(f"{ARGUMENTS.replace('range:f32[64]', 'x.npy')} --save-output out")
    assert np.load(tmp_path / "out" / "y.npy")[0] == 10


def test_arguments_and_launches_from_a_file(profile: Callable, tmp_path: Path) -> None:
    (tmp_path / "args.toml").write_text('[args]\nx = "range:f32[64]"\ny = "out:f32[64]"\nfactor = 2\n')
    assert profile("--args args.toml --grid 1 --block 64").code == 0
    # An option replaces what the file says.
    profile("--args args.toml --grid 1 --block 64 --arg factor=3 --save-output out")
    assert np.load(tmp_path / "out" / "y.npy")[1] == 3
    with (tmp_path / "args.toml").open("a") as file:
        file.write('[[launch]]\nkernel = "scale"\ngrid = 1\nblock = 64\nargs = ["x", "y", "factor"]\n' * 2)
    assert len(json.loads(profile("--args args.toml --format json").out)["launches"]) == 2
    ran = profile("--args args.toml --grid 1")
    assert ran.code == 2
    assert "--grid can't be given" in ran.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "--grid is missing"),
        ("--grid 0", "--grid: '0' is not one to three extents"),
        (f"{ARGUMENTS} --seed -1", "The seed must be at least 0, not -1."),
        (ARGUMENTS.replace("--grid 1", "--grid 99999999999"),
         "A grid has at most 2147483647,65535,65535 CTAs in x, y and z, not 99999999999,1,1."),
        (ARGUMENTS.replace("--grid 1", "--grid 1,65536"), "not 1,65536,1."),
        (ARGUMENTS.replace("--grid 1", "--grid 1,1,65536"), "not 1,1,65536."),
        ("--grid 1 --block 2048 --arg x=f32[64] --arg y=f32[64] --arg f=1", "at most 1024 threads"),
        ("--grid 1 --kernel scael", "There is no kernel 'scael'"),
        ("--grid 1", "Kernel scale takes 3 arguments, not 0"),
        ("--grid 1 --arg x", "is not NAME=SPECIFICATION"),
        ("--grid 1 --arg x=f32[64] --arg x=f32[64]", "Argument x is given twice"),
        ("--grid 1 --arg x=f32=1 --arg y=f32[1] --arg f=1", "can't be f32=1.0"),
        ("--grid 1 --smem much", "is not a whole number"),
        ("--grid 1 --define 1=2", "is not NAME or NAME=VALUE"),
        ("--grid 1 --gpu a1000", "There is no GPU 'a1000'"),
        ("--grid 1 --args none.toml", "There is no file 'none.toml'"),
        (f"{ARGUMENTS} --save scale.ptx/x", "can't be written"),
    ],
)  # fmt: skip
def test_a_wrong_word_is_one_sentence_and_exit_code_2(profile: Callable, words: str, sentence: str) -> None:
    ran = profile(words)
    assert ran.code == 2
    assert sentence in ran.err
    assert "Traceback" not in ran.err


def test_a_fault_is_exit_code_1(profile: Callable) -> None:
    ran = profile(ARGUMENTS.replace("range:f32[64]", "f32[32]"))
    assert ran.code == 1
    assert "which is outside every buffer. It is scale.ptx:17: ld.global.f32" in ran.err


def test_what_is_no_kernel(cli: Callable, tmp_path: Path) -> None:
    ran = cli("profile", "none.cu", "--grid", "1")
    assert (ran.code, ran.err) == (2, "Error: There is no file 'none.cu'.\n")


# --- diff ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(profile: Callable) -> None:
    """Two profiles: ``a``, and ``b`` whose store is strided by 32 bytes."""
    assert profile(f"{ARGUMENTS} --save a").code == 0
    strided = SCALE.replace("add.s64 %rd5, %rd2, %rd3", "shl.b64 %rd3, %rd3, 3;\n    add.s64 %rd5, %rd2, %rd3")
    assert profile(f"{ARGUMENTS.replace('out:f32[64]', 'out:f32[512]')} --save b", strided).code == 0


@pytest.mark.usefixtures("kept")
def test_a_change_is_shown_on_its_line(cli: Callable) -> None:
    ran = cli("diff", "a", "b")
    assert ran.code == 0
    # 64 lanes with a sector each instead of 8 in all: 56 more.
    assert any(line.split() == ["bytes:", "y", "write", "256", "2,048", "+1,792"] for line in ran.out.splitlines())
    assert any(line.split()[:3] == ["19", "20", "+1,792"] for line in ran.out.splitlines())


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("rules", "code"),
    [("bytes:0", 1), ("bytes:1791", 1), ("bytes:1792", 0), ("conflicts:0,instructions:10%", 0), ("registers:0", 1)],
)
def test_a_broken_rule_is_exit_code_1(cli: Callable, rules: str, code: int) -> None:
    assert cli("diff", "a", "b", "--fail-on", rules).code == code
    assert cli("diff", "a", "a.json", "--fail-on", "bytes:0,instructions:0").code == 0


@pytest.mark.usefixtures("kept")
def test_a_broken_rule_names_the_line(cli: Callable) -> None:
    ran = cli("diff", "a", "b", "--fail-on", "bytes:0", "--format", "json", "-q")
    sentence = "scale: bytes grew from 512 to 2,304, most at scale.ptx:20: st.global.f32 [%rd5], %f3;"
    assert ran.err == sentence + "\n"
    assert json.loads(ran.out)["broken_rules"] == [sentence]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("none a", "There is no profile 'none.json'"),
        ("a none", "There is no profile 'none.json'"),
        ("a b --fail-on byte:0", "no metric 'byte'"),
        ("a", "Missing argument"),
    ],
)
@pytest.mark.usefixtures("kept")
def test_what_cannot_be_compared_is_exit_code_2(cli: Callable, words: str, sentence: str) -> None:
    ran = cli("diff", *words.split())
    assert ran.code == 2
    assert sentence in ran.err


@pytest.mark.usefixtures("nvrtc")
def test_cuda_with_definitions_headers_and_options(cli: Callable, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "factor.cuh").write_text("#define FACTOR BASE\n")
    (tmp_path / "k.cu").write_text(
        '#include "factor.cuh"\n__global__ void k(float* x) {\n#ifdef ON\n  x[threadIdx.x] = FACTOR;\n#endif\n}\n'
    )
    words = "--grid 1 --block 32 --arg x=out:f32[32] --define BASE=7 --define ON --include more"
    ran = cli("profile", "k.cu", *words.split(), "--compiler-option=--use_fast_math", "--save-output", "out")
    assert ran.code == 0, ran.err
    assert np.load(tmp_path / "out" / "x.npy").tolist() == [7.0] * 32


def test_commands_are_light_until_they_run(tmp_path: Path) -> None:
    assert run(["profile", "--help"]) == run(["diff", "--help"]) == 0


@pytest.fixture
def nvrtc() -> None:
    """Skip where there is no compiler."""
    from fa_bench.compiler import nvrtc_available

    if (reason := nvrtc_available()) is not None:
        pytest.skip(reason)
