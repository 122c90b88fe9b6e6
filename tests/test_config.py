"""Presets by name and by path, and what is refused in one sentence."""

from pathlib import Path

import pytest

from fa_bench.config import AXES, load_preset, preset_names
from fa_bench.errors import UsageError


def test_the_presets_that_come_with_it() -> None:
    assert preset_names() == ("default", "fa1-figure2", "paper-fa1", "paper-fa2", "paper-fa3", "quick")


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_holds_axes_only(name: str) -> None:
    assert set(load_preset(name).axes) <= set(AXES)


def test_values_leave_as_option_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('seq = "512..2k"\nhead_dim = [64, 128]\nbatch = 2\ncausal = [true, false]\nblock = ["64x64"]\n')
    assert load_preset(str(path)).axes == {
        "seq": "512..2k",
        "head_dim": "64,128",
        "batch": "2",
        "causal": "true,false",
        "block": "64x64",
    }


@pytest.mark.parametrize(
    ("content", "sentence", "hint"),
    [
        ("seq = ", "is not valid TOML: ", ""),
        ('sek = "1k"', "holds an unknown key 'sek'", "Did you mean 'seq'?"),
        ('head-dim = "64"', "holds an unknown key 'head-dim'", "Did you mean 'head_dim'?"),
        ("[seq]\nx = 1", "seq must be text, a whole number", ""),
        ("seq = 1.5", "seq must be text, a whole number", ""),
        ("seq = []", "seq must be text, a whole number", ""),
        ("seq = [[1]]", "seq must be text, a whole number", ""),
        ("seq = 2026-01-01", "seq must be text, a whole number", ""),
    ],
)
def test_what_a_preset_may_not_hold(tmp_path: Path, content: str, sentence: str, hint: str) -> None:
    path = tmp_path / "off.toml"
    path.write_text(content)
    with pytest.raises(UsageError) as caught:
        load_preset(str(path))
    assert sentence in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint == hint


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="no preset called 'quik'") as caught:
        load_preset("quik")
    assert "Did you mean 'quick'?" in caught.value.hint


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no file"):
        load_preset(str(tmp_path / "absent.toml"))
    with pytest.raises(UsageError, match="can't be read"):
        load_preset(str(tmp_path))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"seq = '\xff\xfe'")
    with pytest.raises(UsageError, match="not UTF-8"):
        load_preset(str(binary))
