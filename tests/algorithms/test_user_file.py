"""A kernel's TOML file: what is read, and one sentence for everything that is off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fa_bench.algorithms.user_file import UserFile, UserScalar, read
from fa_bench.errors import UsageError

GOOD = """
summary = "a test"
source = "k.cu"

[supports]
dtypes = ["fp16"]

[tile]
block_m = 64
block_n = "64 if head_dim <= 64 else 32"

[workspaces.P]
dtype = "fp32"
shape = ["slices", "seq_q", "seq_kv"]

[[kernels]]
entry = "scores"
defines = { BLOCK_M = "block_m", CAUSAL = "causal" }
grid = ["ceil_div(seq_q, block_m)", "slices"]
block = [128]
smem_bytes = "2 * block_n * padded_head_dim * itemsize"
args = ["Q", "K", "P", "i64 q_row_stride", "i32 seq_q", "f32 scale * 1.4426950408889634"]

[[kernels]]
entry = "output"
source = "k.ptx"
grid = [1]
block = ["32 * num_warps", 2, 1]
args = ["P", "V", "O"]
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write `GOOD`, with one text in it replaced by another, and its sources."""
    (tmp_path / "k.cu").write_text('#include "k.cuh"\n')
    (tmp_path / "k.cuh").write_text("// nothing\n")
    (tmp_path / "k.ptx").write_text(".version 8.0\n")

    def make(old: str = "", new: str = "", text: str = GOOD) -> Path:
        assert not old or text.count(old) == 1, f"{old!r} is not once in the file"
        path = tmp_path / "mine.toml"
        path.write_text(text.replace(old, new) if old else text)
        return path

    return make


def test_a_file_is_read(write: Callable[..., Path]) -> None:
    file = read(write())
    assert file.summary == "a test"
    assert file.supports.dtypes == ("fp16",)
    assert (file.supports.head_dims, file.supports.layouts, file.supports.causal) == ((), ("bhsd",), (False,))
    assert file.tile is not None
    assert (file.tile.block_n.text, file.tile.stages.text, file.tile.num_warps.text) == (
        "64 if head_dim <= 64 else 32",
        "1",
        "4",
    )
    (workspace,) = file.workspaces
    assert (workspace.name, workspace.dtype, len(workspace.shape)) == ("P", "fp32", 3)
    scores, output = file.kernels
    assert (scores.key, scores.source.name, scores.entry) == ("kernels[0]", "k.cu", "scores")
    assert [(name, value.text) for name, value in scores.defines] == [("BLOCK_M", "block_m"), ("CAUSAL", "causal")]
    assert scores.args[:3] == ("Q", "K", "P")
    scale = scores.args[-1]
    assert isinstance(scale, UserScalar)
    assert (scale.ctype, scale.value.text) == ("f32", "scale * 1.4426950408889634")
    assert (output.source.name, len(output.grid), len(output.block), output.smem_bytes.text) == ("k.ptx", 1, 3, "0")


def test_the_content_is_that_of_the_file_its_sources_and_their_headers(write: Callable[..., Path]) -> None:
    path = write()
    contents = [read(path).content]
    for name, text in (("k.cuh", "// more\n"), ("k.cu", "// no header\n"), ("k.ptx", ".version 8.1\n")):
        (path.parent / name).write_text(text)
        contents.append(read(path).content)
    contents.append(read(write("a test", "another test")).content)
    assert len(set(contents)) == len(contents)
    assert {len(content) for content in contents} == {16}


KERNEL = "[[kernels]]"
#: (what is replaced, by what, what the sentence says, what the next step says)
OFF: list[tuple[str, str, str, str]] = [
    ("summary =", "sumary =", "there is no key sumary.", "'summary'"),
    ('"a test"', "3", "summary must be text, not 3.", ""),
    ('source = "k.cu"', "", "kernels[0].source is missing; it must be the .cu or .ptx file", ""),
    ('source = "k.cu"', 'source = "k.c"', "source must be the .cu or .ptx file that it is about", ""),
    ('source = "k.cu"', 'source = "j.cu"', "source is 'j.cu', and there is no such file in", ""),
    ('source = "k.cu"', "source = []", "source must be the .cu or .ptx file", ""),
    ("[supports]", "[other]", "there is no key other.", ""),
    ('[supports]\ndtypes = ["fp16"]', "", "supports is missing; it must be a table.", ""),
    ('dtypes = ["fp16"]', "", "supports.dtypes is missing; it must be a list of fp16, bf16, fp32.", ""),
    ('["fp16"]', '["fp61"]', "supports.dtypes must be a list of fp16, bf16, fp32, not ['fp61'].", ""),
    ('["fp16"]', "[]", "supports.dtypes must be a list of fp16, bf16, fp32, not [].", ""),
    ('["fp16"]', '["fp16"]\nhead_dim = [64]', "there is no key supports.head_dim.", "'head_dims'"),
    ('["fp16"]', '["fp16"]\nhead_dims = 64', "supports.head_dims must be a list of whole numbers", ""),
    ('["fp16"]', '["fp16"]\nhead_dims = [64.0]', "supports.head_dims must be a list of whole numbers", ""),
    ('["fp16"]', '["fp16"]\nlayouts = ["bshq"]', "supports.layouts must be a list of bhsd, bshd", ""),
    ('["fp16"]', '["fp16"]\ncausal = true', "supports.causal must be a list of true and false", ""),
    ('["fp16"]', '["fp16"]\ncompute_capability = "8.0"', "compute_capability must be a number such as 8.0", ""),
    ('["fp16"]', '["fp16"]\nrequires = ["seq == 1"]', "supports.requires[0] uses 'seq', which is no field.", "'seq_"),
    ("[tile]\nblock_m = 64", "[tile]\nblok_m = 64", "there is no key tile.blok_m.", "'block_m'"),
    ("block_m = 64\n", "", "tile.block_m is missing; it must be a whole number or an expression.", ""),
    ("block_m = 64\n", "block_m = [64]\n", "tile.block_m must be a whole number or an expression, not [64].", ""),
    ("block_m = 64\n", 'block_m = "block_n"\n', "tile.block_m uses 'block_n', which is no field.", ""),
    ("[workspaces.P]", "[workspaces.Q]", "workspaces.Q is a tensor of every case", ""),
    ("[workspaces.P]", "[workspaces]", "workspaces must be a table of tables", ""),
    ('dtype = "fp32"', 'dtype = "half"', "workspaces.P.dtype must be one of fp16, bf16, fp32", ""),
    ('dtype = "fp32"', "", "workspaces.P.dtype is missing", ""),
    ('["slices", "seq_q", "seq_kv"]', '"slices"', "workspaces.P.shape must be a list of expressions", ""),
    ('["slices", "seq_q", "seq_kv"]', '["slices * rows"]', "workspaces.P.shape[0] uses 'rows'", ""),
    ('entry = "scores"', "", "kernels[0].entry is missing; it must be the name of an extern \"C\" kernel.", ""),
    ('entry = "scores"', "gird = 1", "there is no key kernels[0].gird.", "'grid'"),
    ('BLOCK_M = "block_m"', '"BLOCK-M" = "block_m"', "kernels[0].defines holds 'BLOCK-M'", ""),
    ('BLOCK_M = "block_m"', 'BLOCK_M = "block"', "kernels[0].defines.BLOCK_M uses 'block'", "'block_"),
    ('BLOCK_M = "block_m"', "BLOCK_M = []", "defines.BLOCK_M must be a number or an expression, not [].", ""),
    ('{ BLOCK_M = "block_m", CAUSAL = "causal" }', "3", "kernels[0].defines must be a table of expressions", ""),
    ("grid = [1]", "", "kernels[1].grid is missing; it must be one to three expressions", ""),
    ("grid = [1]", "grid = [1, 1, 1, 1]", "kernels[1].grid must be one to three expressions", ""),
    ("grid = [1]", "grid = 1", "kernels[1].grid must be one to three expressions", ""),
    ("grid = [1]", "grid = []", "kernels[1].grid must be one to three expressions", ""),
    ("grid = [1]", 'grid = ["seq_q +"]', "kernels[1].grid[0] is no expression: 'seq_q +'.", "An expression has"),
    ("grid = [1]", 'grid = ["seq_q ** 2"]', "kernels[1].grid[0] holds 'seq_q ** 2', which is no arithmetic.", ""),
    ('"32 * num_warps", 2, 1', '"32 * warps"', "kernels[1].block[0] uses 'warps', which is no field.", ""),
    ('smem_bytes = "2', 'smem = "2', "there is no key kernels[0].smem.", "smem_bytes"),
    ('"2 * block_n * padded_head_dim * itemsize"', "[1]", "kernels[0].smem_bytes must be an expression", ""),
    ('["P", "V", "O"]', "[]", "kernels[1].args must be a list in the order of the kernel's parameters", ""),
    ('["P", "V", "O"]', '["P", "V", "O", 3]', "kernels[1].args must be a list", ""),
    ('["P", "V", "O"]', '["P", "V", "O", "W"]', "kernels[1].args[3] is 'W', which is neither a tensor", "Q, K, V, O"),
    ('"i32 seq_q"', '"seq_q"', "kernels[0].args[4] is 'seq_q', which is neither", "as in 'i32 seq_q'"),
    ('"i32 seq_q"', '"int seq_q"', "kernels[0].args[4] is 'int seq_q', which is neither", "bool, i32"),
    ('"i32 seq_q"', '"i32"', "kernels[0].args[4] is 'i32', which is neither", ""),
    ('"i32 seq_q"', '"i32 seq_k"', "kernels[0].args[4] uses 'seq_k', which is no field.", "'seq_kv'"),
    ('"V", "O"]', '"V"]', "no kernel has O in its args", ""),
    ('["Q", "K", "P",', '["Q", "K",', "", ""),
    ('source = "k.ptx"', 'source = "k.ptx"\ndefines = { N = 1 }', "kernels[1].defines can't change k.ptx", ""),
    (KERNEL + '\nentry = "output"', "[output]\nentry = 1", "there is no key output.", ""),
    ("[tile]", "[tile", "is not valid TOML", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "said", "step"), OFF, ids=[f"{said or 'fine'}|{new}" for _, new, said, _ in OFF]
)
def test_what_is_off_is_one_sentence_with_file_and_key(
    old: str, new: str, said: str, step: str, write: Callable[..., Path]
) -> None:
    path = write(old, new)
    if not said:  # the other kernel still takes it
        assert isinstance(read(path), UserFile)
        return
    with pytest.raises(UsageError) as refused:
        read(path)
    assert said in refused.value.message
    assert refused.value.message.startswith((f"{path}: ", f"'{path}' "))
    assert refused.value.message.endswith(".")
    assert step in refused.value.hint


def test_a_workspace_that_nobody_takes_is_refused(write: Callable[..., Path]) -> None:
    text = GOOD.replace('["Q", "K", "P",', '["Q", "K",').replace('["P", "V", "O"]', '["V", "O"]')
    with pytest.raises(UsageError, match="no kernel has the workspace P in its args; name it there or leave it out"):
        read(write(text=text))


def test_without_a_tile_its_names_are_no_fields(write: Callable[..., Path]) -> None:
    start, _, rest = GOOD.partition("[tile]")
    text = start + rest.partition("[workspaces.P]")[1] + rest.partition("[workspaces.P]")[2]
    with pytest.raises(UsageError, match="uses 'block_m', which is no field"):
        read(write(text=text))


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "There is no file"), (b"\xff\xfe", "is not UTF-8 text"), ("folder", "can't be read: Is a directory")],
)
def test_a_file_that_cannot_be_read(content: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.mkdir()
    with pytest.raises(UsageError) as refused:
        read(path)
    assert said in refused.value.message
    assert str(path) in refused.value.message
