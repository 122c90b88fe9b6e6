"""Expressions of a kernel's TOML file: what they may hold, what they are worth, what is refused and how."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fa_bench.algorithms.expression import MAX_LENGTH, ExpressionError, Number, parse

FIELDS: dict[str, Number] = {"seq_q": 100, "block_m": 64, "scale": 0.125, "causal": 1, "zero": 0}


def value(text: str | Number) -> Number:
    return parse(text, FIELDS)(FIELDS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (7, 7),
        (0.5, 0.5),
        (True, 1),
        (" 3 ", 3),
        ("seq_q", 100),
        ("-seq_q + 1", -99),
        ("+block_m", 64),
        ("seq_q - block_m * 2", -28),
        ("(seq_q - block_m) * 2", 72),
        ("seq_q // block_m", 1),
        ("seq_q % block_m", 36),
        ("seq_q / block_m", 1.5625),
        ("ceil_div(seq_q, block_m)", 2),
        ("ceil_div(128, block_m)", 2),
        ("ceil_div(0, block_m)", 0),
        ("min(seq_q, block_m)", 64),
        ("max(1, 2, 3.5)", 3.5),
        ("scale * 8", 1.0),
        ("seq_q > block_m", 1),
        ("seq_q == block_m", 0),
        ("0 < block_m <= 64 < seq_q != 99", 1),
        ("0 < block_m < 64 < seq_q", 0),
        ("1 if causal else 2", 1),
        ("seq_q // zero if zero else 5", 5),
        ("causal and seq_q", 1),
        ("zero or 0", 0),
        ("zero or 7", 1),
        ("not zero", 1),
        ("not seq_q", 0),
        ("zero and seq_q // zero", 0),
        ("causal or seq_q // zero", 1),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_values(text: str | Number, expected: Number) -> None:
    assert value(text) == expected
    assert type(value(text)) is type(expected)


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("", "is no expression: ''"),
        ("seq_q +", "is no expression"),
        ("seq_q = 3", "is no expression"),
        ("(seq_q", "is no expression"),
        ("1if causal else 2", "is no expression"),
        ("seq_k", "uses 'seq_k', which is no field"),
        ("seq_q ** 2", "holds 'seq_q ** 2', which is no arithmetic"),
        ("seq_q << 2", "holds 'seq_q << 2'"),
        ("seq_q & 2", "holds 'seq_q & 2'"),
        ("~seq_q", "holds '~seq_q'"),
        ("seq_q is zero", "holds 'seq_q is zero'"),
        ("'fp16'", "holds \"'fp16'\""),
        ("2j", "holds '2j'"),
        ("None", "holds 'None'"),
        ("seq_q.real", "holds 'seq_q.real'"),
        ("[seq_q][0]", "holds '[seq_q][0]'"),
        ("lambda: 1", "holds 'lambda: 1'"),
        ("(x := 1)", "holds '(x := 1)'"),
        ("__import__('os')", "holds \"__import__('os')\""),
        ("abs(seq_q)", "holds 'abs(seq_q)'"),
        ("min(seq_q, key=zero)", "holds 'min(seq_q, key=zero)'"),
        ("min(*seq_q)", "gives min 1 arguments"),
        ("max(seq_q)", "gives max 1 arguments, and it takes 2 to 16"),
        ("ceil_div(1, 2, 3)", "gives ceil_div 3 arguments, and it takes 2"),
        ("9223372036854775808", "holds a number that leaves 64 bits"),
        ("1e999", "holds a number that leaves 64 bits"),
        ("1" * (MAX_LENGTH + 1), "is longer than 500 characters"),
    ],
)
def test_what_is_no_expression_is_refused_when_it_is_read(text: str, clause: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        parse(text, FIELDS)
    assert clause in refused.value.clause


def test_an_unknown_field_has_the_nearest_one_as_a_hint() -> None:
    with pytest.raises(ExpressionError) as refused:
        parse("blok_m", FIELDS)
    assert refused.value.hint == "Did you mean 'block_m'?"


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("seq_q // zero", "divides by zero in 'seq_q // zero'"),
        ("seq_q % zero", "divides by zero"),
        ("seq_q / zero", "divides by zero"),
        ("ceil_div(seq_q, zero)", "divides by zero"),
        ("9223372036854775807 + 1", "leaves 64 bits in '9223372036854775807 + 1'"),
        ("1e300 * 1e300", "leaves 64 bits"),
        ("*".join(["seq_q"] * 80), "leaves 64 bits"),
    ],
)
def test_what_has_no_value_says_why(text: str, clause: str) -> None:
    expression = parse(text, FIELDS)
    with pytest.raises(ExpressionError) as refused:
        expression(FIELDS)
    assert clause in refused.value.clause


@given(st.text(max_size=60) | st.text(alphabet="seq_q zero()+-*/%<>=,.1[]'if else and not min", max_size=60))
def test_any_text_is_a_number_or_refused(text: str) -> None:
    try:
        assert isinstance(value(text), int | float)
    except ExpressionError as error:
        assert error.clause


@pytest.mark.parametrize("text", ["-" * 450 + "1", "(" * 199 + "1" + ")" * 199, "not " * 120 + "1"])
def test_deep_nesting_ends(text: str) -> None:
    try:
        assert value(text) in (0, 1)
    except ExpressionError as error:
        assert "is no expression" in error.clause
