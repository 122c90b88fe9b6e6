"""The TOML file of arguments and launches, and extents."""

from __future__ import annotations

from pathlib import Path

import pytest

from fa_bench.errors import UsageError
from fa_bench.profiling.args import Scalar, parse
from fa_bench.profiling.launchfile import LaunchFile, parse_dim, read, single_launch


def written(folder: Path, text: str) -> LaunchFile:
    (folder / "args.toml").write_text(text)
    return read(folder / "args.toml")


def test_arguments_definitions_and_launches(tmp_path: Path) -> None:
    stated = written(
        tmp_path,
        """
        [args]
        Q = "f16[64,64]"
        S = "out:f32[64,64]"
        n = 64
        scale = 0.5

        [define]
        DIM = 64
        FAST = true
        KIND = "half"

        [[launch]]
        kernel = "scores"
        grid = [8, 2]
        block = 128
        smem = "48k"
        args = ["Q", "S", "n"]

        [[launch]]
        kernel = "softmax"
        grid = "8x4"
        """,
    )
    assert list(stated.arguments) == ["Q", "S", "n", "scale"]
    assert stated.arguments["n"] == Scalar("n", None, 64)
    assert stated.defines == (("DIM", "64"), ("FAST", "1"), ("KIND", "half"))
    scores, softmax = stated.launches
    assert (scores.kernel, scores.grid, scores.block, scores.smem_bytes) == ("scores", (8, 2, 1), (128, 1, 1), 49152)
    assert [argument.name for argument in scores.arguments] == ["Q", "S", "n"]
    assert (scores.positional, scores.surplus) == (True, False)
    assert (softmax.grid, softmax.block, softmax.smem_bytes) == ((8, 4, 1), None, 0)
    # By name: the kernel takes what it has parameters for.
    assert len(softmax.arguments) == 4
    assert (softmax.positional, softmax.surplus) == (False, True)


def test_the_command_line_replaces_and_adds(tmp_path: Path) -> None:
    (tmp_path / "args.toml").write_text('[args]\nn = 1\nQ = "f16[4]"\n')
    stated = read(tmp_path / "args.toml", [parse("n", "2"), parse("m", "3")])
    assert [(a.name, a.text) for a in stated.arguments.values()] == [("n", "2"), ("Q", "f16[4]"), ("m", "3")]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a = ", "is not valid TOML"),
        ("arg = 1", "unknown key 'arg'"),
        ("args = 1", "args is not a table"),
        ("[args]\nx = [1]", "argument x is neither"),
        ("[args]\nx = 'f99[1]'", "no type 'f99'"),
        ("launch = 1", r"written as \[\[launch\]\]"),
        ("[[launch]]\ngrid = 1", "needs the name of its kernel"),
        ("[[launch]]\nkernel = 'k'", "launch of k needs a grid"),
        ("[[launch]]\nkernel = 'k'\ngrid = 0", "extents of at least 1"),
        ("[[launch]]\nkernel = 'k'\ngrid = [1, 2, 3, 4]", "extents of at least 1"),
        ("[[launch]]\nkernel = 'k'\ngrid = true", "extents of at least 1"),
        ("[[launch]]\nkernel = 'k'\ngrid = 1\nsmem = 'lots'", "is not a whole number"),
        ("[[launch]]\nkernel = 'k'\ngrid = 1\ngird = 2", "unknown key 'gird'"),
        ("[[launch]]\nkernel = 'k'\ngrid = 1\nargs = ['q']", "names 'q'"),
        ("[[launch]]\nkernel = 'k'\ngrid = 1\nargs = 'q'", "is not a list of names"),
    ],
)
def test_what_is_off_is_said_in_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as refused:
        written(tmp_path, text)
    assert "\n" not in refused.value.message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no file"):
        read(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="can't be read"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("value", "extents"),
    [
        ("8", (8, 1, 1)),
        ("8,4", (8, 4, 1)),
        ("8x4x2", (8, 4, 2)),
        (8, (8, 1, 1)),
        ((8, 4), (8, 4, 1)),
        ("1k", (1024, 1, 1)),
    ],
)
def test_extents(value: object, extents: tuple[int, int, int]) -> None:
    assert parse_dim(value, "grid") == extents


@pytest.mark.parametrize("value", ["", "0", "8,", "-1", "a", "1,2,3,4", 1.5, True, ()])
def test_what_is_no_extent(value: object) -> None:
    with pytest.raises(UsageError, match="extents of at least 1"):
        parse_dim(value, "grid")


def test_a_launch_out_of_options() -> None:
    launch = single_launch([parse("n", "1")], "k", "8,4", None, "1k")
    assert (launch.kernel, launch.grid, launch.block, launch.smem_bytes) == ("k", (8, 4, 1), None, 1024)
    with pytest.raises(UsageError, match="--grid is missing"):
        single_launch([], None, None, None, None)
