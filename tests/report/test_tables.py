"""Tables, and flat rows as CSV and JSON."""

import json
import math

import numpy as np
import pytest

from fa_bench.report.export import csv_lines, csv_text, json_text
from fa_bench.report.tables import Column, Table, pairs_table


def test_markdown_aligns_escapes_and_keeps_title_and_note() -> None:
    table = Table("T", (Column("a"), Column("b", "right")), (("x|y", "1"), ("two\nlines", "2")), "N")
    assert table.markdown() == ("**T**\n\n| a | b |\n| :--- | ---: |\n| x\\|y | 1 |\n| two lines | 2 |\n\nN")


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="1 cells for 2 columns"):
        Table("T", (Column("a"), Column("b")), (("x",),))


def test_pairs_table() -> None:
    assert pairs_table("T", [("a", "1")]).rows == (("a", "1"),)


def test_csv_has_empty_cells_for_unknown_and_no_nan() -> None:
    rows = [{"a": None, "b": 0, "c": True, "d": float("nan"), "e": 0.1, "f": ("x", "y")}]
    assert csv_text(rows) == "a,b,c,d,e,f\n,0,true,,0.1,x;y\n"


def test_csv_header_alone_and_order() -> None:
    assert csv_text([], ("a", "b")) == "a,b\n"
    assert csv_text([{"b": 1, "a": 'say "x", y'}], ("a", "b")) == 'a,b\n"say ""x"", y",1\n'


def test_columns_are_written_line_by_line_with_every_digit() -> None:
    columns = ["a, b", None, np.array([1, 2**62]), True, np.array([0.1, 1 / 3]), 5]
    assert csv_lines(columns, 2) == (
        '"a, b",,1,true,0.1,5\n'  # what lines share is quoted where it must be
        '"a, b",,4611686018427387904,true,0.3333333333333333,5\n'
    )
    assert csv_lines(["x", 1], 2) == "x,1\nx,1\n"
    assert csv_lines([np.array([7])], 1) == "7\n"
    assert csv_lines([np.array([math.nan, 0.5]), np.array(["dram", "exp"])], 2) == ",dram\n0.5,exp\n"
    assert csv_lines([np.array([7, 8]), None, np.array([9, 10]), ""], 2) == "7,,9,\n8,,10,\n"


def test_json_has_null_for_what_is_no_number() -> None:
    text = json_text({"a": [float("inf"), 1.5, None], "b": {"c": float("nan")}, "d": ("µs",)})
    assert json.loads(text) == {"a": [None, 1.5, None], "b": {"c": None}, "d": ["µs"]}
    assert text.endswith("}\n")
    assert "µs" in text
