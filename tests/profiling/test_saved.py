"""Profiles written and read again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import made_profiles as reports
import numpy as np
import pytest

from fa_bench.errors import UsageError
from fa_bench.profiling.result import Cached
from fa_bench.profiling.saved import SCHEMA, document, load, save, save_outputs


def test_what_was_saved_is_what_is_read(tmp_path: Path) -> None:
    cached = {"caches": (Cached("in", "read", 2, 4, 6, 3, 3),), "l2_dirty_bytes": 256}
    profile = reports.profile(reports.launch(), reports.launch(kernel="second", sass=(), **cached))
    path = save(profile, str(tmp_path / "deep" / "base"))
    assert path == tmp_path / "deep" / "base.json"
    assert load(str(tmp_path / "deep" / "base")) == load(str(path)) == profile


def test_the_document_has_a_version_and_sums(tmp_path: Path) -> None:
    made = document(reports.profile())
    assert json.loads(json.dumps(made)) == made
    assert (made["schema"], made["source"], made["gpu"]) == (SCHEMA, "k.cu", "a100-sxm-80")
    (launch,) = made["launches"]
    # 16 sectors of 32 bytes; 10 + 20 + 4 + 30 instructions with 320 + 640 + 128 + 480 lanes.
    assert launch["global_bytes"] == 512
    assert launch["warp_instructions"] == 64
    assert launch["lane_share"] == 1568 / (64 * 32)
    assert launch["lines"][1]["bytes"] == 256
    assert "outputs" not in launch


def test_keys_of_a_later_version_are_passed_over(tmp_path: Path) -> None:
    made = document(reports.profile())
    made["launches"][0]["later"] = made["launches"][0]["lines"][0]["later"] = 1
    (tmp_path / "a.json").write_text(json.dumps(made))
    assert load(str(tmp_path / "a")) == reports.profile()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is not JSON"),
        ("[]", f"no profile of schema {SCHEMA}"),
        ('{"schema": 99}', f"no profile of schema {SCHEMA}"),
        (json.dumps({"schema": SCHEMA}), "no whole profile"),
        (json.dumps({**document(reports.profile()), "launches": [{"kernel": "k"}]}), "no whole profile"),
    ],
)
def test_what_is_no_profile(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UsageError, match=sentence):
        load(str(tmp_path / "a"))


def test_files_that_are_not_there_or_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no profile"):
        load(str(tmp_path / "none"))
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="can't be written"):
        save(reports.profile(), str(tmp_path / "file" / "base"))
    with pytest.raises(UsageError, match="can't be written"):
        save_outputs(reports.profile(reports.launch(outputs={"x": np.zeros(1)})), tmp_path / "file" / "folder")


def test_outputs_are_what_the_last_launch_left(tmp_path: Path) -> None:
    first = reports.launch(outputs={"x": np.zeros(2), "y": np.ones(2)})
    profile = reports.profile(first, replace(first, outputs={"x": np.full(2, 7.0)}))
    assert save_outputs(profile, tmp_path / "out") == [tmp_path / "out" / "x.npy", tmp_path / "out" / "y.npy"]
    assert np.load(tmp_path / "out" / "x.npy").tolist() == [7, 7]
