"""The grammar of ``--fail-on``."""

from __future__ import annotations

from fractions import Fraction

import pytest

from fa_bench.errors import UsageError
from fa_bench.limits import Limit, parse_percent

METRICS = ("bytes", "error")


def test_numbers_and_shares() -> None:
    assert Limit.parse(" bytes : 1k , error:12.5 %", METRICS) == (
        Limit("bytes", Fraction(1024), relative=False),
        Limit("error", Fraction(1, 8), relative=True),
    )


@pytest.mark.parametrize("text", ["bytes:0", "bytes:1024", "error:12.5%"])
def test_a_limit_is_written_as_it_is_read(text: str) -> None:
    assert [str(limit) for limit in Limit.parse(text, METRICS)] == [text]


@pytest.mark.parametrize("text", ["bytes", "bytes:", "bytes:x", "byte:0", "bytes:0,", "bytes:-1%", "bytes:1e3%", ":0"])
def test_what_is_no_limit(text: str) -> None:
    with pytest.raises(UsageError):
        Limit.parse(text, METRICS)


@pytest.mark.parametrize("text", ["bytes:-1", "bytes:", "error:1e3%"])
def test_what_is_no_limit_is_said_with_its_option(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--fail-on: (bytes|error): .* is not a whole number"):
        Limit.parse(text, METRICS)


def test_growth_is_exact() -> None:
    (limit,) = Limit.parse("bytes:0.1%", METRICS)
    # 0.1 % of 1000 is 1, exactly; in floats 0.001 · 1000 would do as well, 0.001 · 3000 would not always.
    assert limit.allows(1000, 1001)
    assert not limit.allows(999, 1000)
    assert limit.allows(1000, 0)
    assert not limit.allows(0, 1)
    (limit,) = Limit.parse("bytes:2", METRICS)
    assert limit.allows(2**80, 2**80 + 2)
    assert not limit.allows(2**80, 2**80 + 3)


def test_percent() -> None:
    assert parse_percent(" 2 % ") == Fraction(1, 50)
    assert parse_percent("2") is None
    assert parse_percent("%") is None
