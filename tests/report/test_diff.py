"""Tables and the document of a comparison."""

from __future__ import annotations

import json
from dataclasses import replace

import made_profiles as made

from fa_bench.profiling.diff import LaunchDiff, compare
from fa_bench.profiling.result import Resources
from fa_bench.report.diff import diff_rows, diff_tables, document

STORE = made.LINES[3]


def diff(**changes: object) -> LaunchDiff:
    lines = (*made.LINES[:3], replace(STORE, line=9, instructions=40, conflicts=10, wavefronts=12))
    (found,) = compare(made.profile(), made.profile(made.launch(lines=lines, **changes)))
    return found


def test_what_changed_and_where() -> None:
    totals, lines = diff_tables([diff()], ("k.cu", "new.cu"), 10)
    assert totals.rows == (
        ("instructions", "64", "74", "+10"),
        ("conflicts", "2", "10", "+8"),
        ("wavefronts", "6", "14", "+8"),
        ("integer, logic, shuffle", "54", "64", "+10"),
    )
    assert [column.title for column in lines.columns] == [
        *("before", "now", "bytes", "conflicts", "instructions", "source"),
    ]
    assert lines.rows == (("7", "k.cu:9", "", "+8", "+10", "out[i] = tile[i * 2];"),)
    assert lines.note == "Lines of k.cu, now new.cu."


def test_registers_are_shown_where_they_changed() -> None:
    totals, lines = diff_tables([diff(resources=Resources(20, 0, 256, 0))], ("k.cu", "k.cu"), 10)
    assert ("registers", "16", "20", "+4") in totals.rows
    assert "registers" in [column.title for column in lines.columns]
    assert lines.note == "Lines of k.cu. registers: live at once in the PTX."


def test_only_so_many_lines() -> None:
    lines = tuple(replace(line, instructions=line.instructions + 1) for line in made.LINES)
    found = compare(made.profile(), made.profile(made.launch(lines=lines)))
    table = diff_tables(found, ("k.cu", "k.cu"), 1)[1]
    assert len(table.rows) == 1
    assert table.note.endswith("3 more lines changed.")


def test_nothing_changed() -> None:
    found = compare(made.profile(), made.profile(made.launch(compiler="NVRTC 12.9")))
    (table,) = diff_tables(found, ("k.cu", "k.cu"), 10)
    assert table.title == "k: nothing changed"
    assert ("bytes", "512", "512", "") in table.rows
    assert table.note == "Not the same: compiler NVRTC 13.5, now NVRTC 12.9."


def test_what_is_not_known_is_shown() -> None:
    found = compare(made.profile(), made.profile(made.launch(resources=Resources(None, 0, 256, 0))))
    assert ("registers", "16", "-", "-") in diff_tables(found, ("k.cu", "k.cu"), 10)[0].rows


def test_the_document_and_the_rows() -> None:
    found = diff()
    made_document = document([found], ["k: too much."])
    assert json.loads(json.dumps(made_document)) == made_document
    assert (made_document["schema"], made_document["changed"], made_document["broken_rules"]) == (
        1,
        True,
        ["k: too much."],
    )
    (launch,) = made_document["launches"]
    assert {"name": "conflicts", "before": 2, "after": 10, "delta": 8} in launch["metrics"]
    (line,) = launch["lines"]
    assert line["before"] == {"place": "k.cu:7", "text": STORE.text}
    assert (line["conflicts_delta"], line["instructions_delta"], line["bytes_delta"]) == (8, 10, 0)
    assert not document(compare(made.profile(), made.profile()), [])["changed"]
    assert {"launch": 0, "kernel": "k", "figure": "smem", "before": 256, "after": 256} in diff_rows([found])
