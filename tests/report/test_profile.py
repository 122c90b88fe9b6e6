"""Tables of a profile."""

from __future__ import annotations

from dataclasses import replace

import made_profiles as made
import pytest

from fa_bench.profiling.result import Cached, Line, Resources, StaticCount, Traffic
from fa_bench.report.profile import CLASSES, difference, extents, launch_tables, line_rows, profile_tables, shortened


def test_traffic_per_request_and_against_the_least_possible() -> None:
    moved = Traffic("Q", "f16[64,64]", 8192, "read", 100, 800, 400)
    table = launch_tables(made.launch(traffic=(moved,)), "k.cu", 10)[0]
    assert table.title == "k, grid 2, block 32"
    # 800 sectors of 32 bytes are 25,600, 256 a request; 3.125 times the 8 KiB of the tensor.
    assert table.rows == (("Q", "f16[64,64]", "read", "100", "800", "25 KiB", "256", "128", "3.12×"),)


def test_what_is_not_known_or_did_not_happen() -> None:
    rows = (Traffic("a", "", 64, "write", 1, 1, None), Traffic("b", "f32[4]", 16, "read", 0, 0, 0))
    table = launch_tables(made.launch(traffic=rows), "k.cu", 10)[0]
    assert table.rows[0][1:] == ("-", "write", "1", "1", "32 B", "32", "-", "0.500×")
    assert table.rows[1][6:8] == ("-", "-")


def test_what_caches_answer() -> None:
    """Of 8 sectors read, 2 were in L1, 6 went to L2, which had 3 of them."""
    caches = (Cached("in", "read", 2, 4, 6, 3, 3), Cached("out", "write", 0, 2, 8, 0, 0))
    table = launch_tables(made.launch(caches=caches, l2_dirty_bytes=256), "k.cu", 10)[1]
    assert table.title == "Through the caches of a100-sxm-80, emulated"
    assert table.rows == (
        ("in", "read", "25.0 %", "4", "192 B", "50.0 %", "96 B"),
        ("out", "write", "-", "2", "256 B", "-", "0 B"),
    )
    assert table.note == "256 B that were written are still in L2 at the end."


def test_the_instruction_mix() -> None:
    table = launch_tables(made.launch(instructions={"tensor": 25, "integer": 75, "later": 0}), "k.cu", 10)[1]
    assert table.rows == (
        (CLASSES["integer"], "75", "75.0 %"),
        (CLASSES["tensor"], "25", "25.0 %"),
        ("later", "0", "0.0 %"),
        ("all", "100", ""),
    )


def test_facts_and_notes() -> None:
    table = launch_tables(made.launch(), "k.cu", 10)[2]
    facts = dict(table.rows)
    # 1568 lanes in 64 instructions.
    assert facts["active lanes"] == "24.5 of 32 (76.6 %)"
    assert facts["registers per thread"] == "16"
    assert facts["on an SM of a100-sxm-80"] == "32 CTAs, 32 warps (50.0 %), limited by blocks"
    assert table.note == "out: 3 elements were not written.\nA note."
    unknown = launch_tables(made.launch(resources=Resources(None, None, 0, 0)), "k.cu", 10)[2]
    assert dict(unknown.rows)["registers per thread"] == "not known"
    assert dict(unknown.rows)["on an SM of a100-sxm-80"].endswith("limited by blocks; registers not counted")


def test_hot_lines_are_the_largest_shares_of_anything() -> None:
    table = launch_tables(made.launch(), "k.cu", 2)[3]
    # Line 7 has all conflicts, line 5 half of the sectors; line 3 has 16 % of the instructions, line 6 6 %.
    assert [row[0] for row in table.rows] == ["7", "5"]
    assert table.rows[0][1:] == ("46.9 %", "16.0", "256 B", "2", "out[i] = tile[i * 2];")
    assert table.note.endswith("2 more lines were executed.")


def test_where_a_line_is() -> None:
    lines = (
        Line("k.cu", 3, "a", 1, 32),
        Line("../deep/common.cuh", 4, "b", 1, 32),
        Line("", 0, "", 1, 32),
    )
    table = launch_tables(made.launch(lines=lines), "k.cu", 10)[3]
    assert sorted(row[0] for row in table.rows) == ["3", "common.cuh:4", "none"]


def test_static_counts() -> None:
    assert launch_tables(made.launch(), "k.cu", 10)[4].rows == (
        ("shared load", "4", "1", "16", "16", "merged"),
        ("local store", "0", "2", "0", "8", "spills"),
    )
    assert len(launch_tables(made.launch(sass=()), "k.cu", 10)) == 4


@pytest.mark.parametrize(
    ("count", "word"),
    [
        (StaticCount("global load", 2, 2, 8, 8), ""),
        (StaticCount("global load", 2, 4, 16, 16), "split"),
        (StaticCount("global load", 2, 4, 8, 16), "more"),
        (StaticCount("global load", 4, 2, 16, 8), "fewer"),
        (StaticCount("barrier", 2, 1), "fewer"),
        (StaticCount("local load", 3, 4, 12, 16), "more"),
        (StaticCount("all instructions", 9, 4), ""),
    ],
)
def test_what_a_difference_most_likely_is(count: StaticCount, word: str) -> None:
    assert difference(count) == word


def test_every_launch_has_its_tables_and_rows() -> None:
    profile = made.profile(made.launch(), replace(made.launch(), kernel="second"))
    assert len(profile_tables(profile, 10)) == 10
    rows = line_rows(profile)
    assert [(row["launch"], row["kernel"], row["line"]) for row in rows[::4]] == [(0, "k", 3), (1, "second", 3)]
    assert rows[1]["bytes"] == 256


def test_short_texts() -> None:
    assert extents((8, 1, 1)) == "8"
    assert extents((8, 4, 1)) == "8x4"
    assert extents((8, 1, 2)) == "8x1x2"
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abc defg", 5) == "abc…"
