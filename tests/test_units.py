"""Numbers and text: what is typed is read exactly or refused in one sentence; what is shown can be read."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fa_bench import units
from fa_bench.errors import UsageError

# --- text to numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("512", 512),
        ("16k", 16384),  # 16 * 1024
        ("16K", 16384),
        ("1M", 1048576),  # 1024 * 1024
        (" 2k ", 2048),
        ("007", 7),
    ],
)
def test_parse_int(text: str, value: int) -> None:
    assert units.parse_int(text) == value


@pytest.mark.parametrize(
    "text",
    ["", " ", "k", "12q", "1.5k", "-1", "+1", "1e3", "1_000", "1,000", "0x10", "16kb", "1m", "²", "٣", "9" * 5000],
)
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a whole number; write digits, and k for 1024"):
        units.parse_int(text)


def test_parse_int_keeps_a_minimum() -> None:
    assert units.parse_int("1", minimum=1) == 1
    with pytest.raises(UsageError, match=r"'0' is too small; the least is 1\."):
        units.parse_int("0", minimum=1)


@given(st.integers(0, 2**59))
def test_an_int_survives_its_text(value: int) -> None:
    assert units.parse_int(units.format_int(value)) == value


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("512", (512,)),
        ("512..4k", (512, 1024, 2048, 4096)),
        ("3..12", (3, 6, 12)),
        ("5..5", (5,)),
        ("512..2048:512", (512, 1024, 1536, 2048)),
        ("1k..3k:1k", (1024, 2048, 3072)),
        ("5..5:3", (5,)),
        ("100,512..2k,3k..5k:1k", (100, 512, 1024, 2048, 3072, 4096, 5120)),
        ("2k,512", (2048, 512)),  # the order is the user's
        ("512,1k,512..2k", (512, 1024, 2048)),  # once each
        (" 512 .. 1k , 64 ", (512, 1024, 64)),
    ],
)
def test_parse_axis(text: str, values: tuple[int, ...]) -> None:
    assert units.parse_axis(text) == values


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "empty item"),
        ("512,", "empty item"),
        ("512,,1k", "empty item"),
        ("0", "'0' is too small; the least is 1"),
        ("0..512", "'0' is too small"),
        ("512..1k:0", "'0' is too small"),
        ("512..", "is not a range; write LOW..HIGH"),
        ("..512", "is not a range"),
        ("512..1k:", "is not a range"),
        ("512...1k", "'.1k' is not a whole number"),
        ("512..1k..2k", "'1k..2k' is not a whole number"),
        ("512:1k", "is not a whole number"),
        ("512..1k:256:2", "is not a whole number"),
        ("a..b", "'a' is not a whole number"),
        ("16k..512", "runs downwards; write the smaller number first, as in 512..16k"),
        ("512..3000", r"doubles from 2k to 4k and misses its end; write 512\.\.2k"),
        ("512..1k:500", r"steps from 1012 to 1512 and misses its end; write 512\.\.1012:500"),
        ("1..1M:1", "more than 10,000 values"),
    ],
)
def test_a_malformed_axis_is_refused_with_what_would_be_right(text: str, fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        units.parse_axis(text)


def test_an_axis_of_many_long_ranges_is_bounded_too() -> None:
    # Two ranges of 6000 values each, below the limit alone and above it together.
    with pytest.raises(UsageError, match="more than 10,000 values"):
        units.parse_axis("1..6000:1,10001..16000:1")


@given(st.lists(st.integers(1, 2**40), min_size=1, unique=True))
def test_an_axis_survives_its_text(values: list[int]) -> None:
    assert units.parse_axis(units.format_axis(values)) == tuple(values)


@given(st.integers(1, 1000), st.integers(0, 10))
def test_doubling_reaches_both_ends(low: int, doublings: int) -> None:
    values = units.parse_axis(f"{low}..{low * 2**doublings}")
    assert values == tuple(low * 2**i for i in range(doublings + 1))


@given(st.integers(1, 1000), st.integers(1, 1000), st.integers(0, 50))
def test_steps_reach_both_ends(low: int, step: int, count: int) -> None:
    values = units.parse_axis(f"{low}..{low + step * count}:{step}")
    assert values == tuple(low + step * i for i in range(count + 1))


@given(st.text(alphabet="0123456789kM.,:x -", max_size=12))
def test_an_axis_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        values = units.parse_axis(text)
    except UsageError as error:
        assert "\n" not in error.message
    else:
        assert all(value >= 1 for value in values)


def test_parse_list() -> None:
    assert units.parse_list(" flash1 ,flash2") == ("flash1", "flash2")
    with pytest.raises(UsageError, match="empty item"):
        units.parse_list("flash1,,flash2")


@pytest.mark.parametrize("text", ["128x64", "128X64", "128×64", " 128 x 64 "])
def test_parse_tile(text: str) -> None:
    assert units.parse_tile(text) == (128, 64)


@pytest.mark.parametrize("text", ["", "64", "64x", "x64", "64x64x64", "64*64", "-64x64", "64x6k"])
def test_a_malformed_tile_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a tile; write rows of Q, an x and rows of K and V, as in 128x64"):
        units.parse_tile(text)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("4096", 4096),
        ("512 B", 512),
        ("163KiB", 166912),  # 163 * 1024
        ("163 kib", 166912),
        ("1.5 MiB", 1572864),  # 1.5 * 1024^2
        ("0.5KiB", 512),
        ("2GiB", 2147483648),
        ("1TiB", 1099511627776),
    ],
)
def test_parse_bytes(text: str, nbytes: int) -> None:
    assert units.parse_bytes(text) == nbytes


@pytest.mark.parametrize("text", ["", "KiB", "48KB", "48 MB", "48k", "-1", "1e3", "1.KiB", ".5KiB", "9" * 5000])
def test_a_malformed_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size in bytes; write a number alone or with KiB, MiB, GiB"):
        units.parse_bytes(text)


def test_parts_of_bytes_are_refused() -> None:
    # 0.3 KiB = 307.2 B
    with pytest.raises(UsageError, match=r"not a whole number of bytes; the nearest is 307 B\."):
        units.parse_bytes("0.3 KiB")


@given(st.integers(0, 1023), st.sampled_from([1, 1024, 1024**2, 1024**3, 1024**4]))
def test_whole_units_survive_their_text(value: int, unit: int) -> None:
    assert units.parse_bytes(units.format_bytes(value * unit)) == value * unit


@given(st.integers(1, 2**50 - 1))
def test_bytes_are_shown_to_three_digits(nbytes: int) -> None:
    # Half of the last of three digits is at most 1/200 of the value; parse_bytes cannot read "1.30 B", and
    # format_bytes never writes such a thing.
    number, unit = units.format_bytes(nbytes).split()
    shown = float(number) * 1024 ** ("B", "KiB", "MiB", "GiB", "TiB").index(unit)
    assert abs(shown - nbytes) <= nbytes / 200


# --- numbers to text -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1025, "1.00 KiB"),  # the decimals say that it is not exactly 1 KiB
        (65536, "64 KiB"),
        (1363149, "1.30 MiB"),
        (1024**2 - 1, "1.00 MiB"),  # never 1024 KiB
        (3 * 1024**5, "3072 TiB"),
        (-32, "-32 B"),
        (-1536, "-1.50 KiB"),
    ],
)
def test_format_bytes(nbytes: int, text: str) -> None:
    assert units.format_bytes(nbytes) == text


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (0, "0 ns"),
        (4.2, "4.20 ms"),
        (0.0123, "12.3 µs"),
        (0.00005, "50.0 ns"),
        (0.99996, "1.00 ms"),  # never 1000 µs
        (9.996, "10.0 ms"),
        (99.96, "100 ms"),
        (999.4, "999 ms"),
        (61000, "61.0 s"),
        (4.2e6, "4200 s"),
    ],
)
def test_format_ms(time_ms: float, text: str) -> None:
    assert units.format_ms(time_ms) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3599.7, "1 h 00 min"),
        (3720, "1 h 02 min"),
        (90000, "25 h 00 min"),
    ],
)
def test_format_duration(seconds: float, text: str) -> None:
    assert units.format_duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (274_877_906_944, "FLOP", "275 GFLOP"),
        (2.039e12, "B/s", "2.04 TB/s"),
        (999_600, "B/s", "1.00 MB/s"),  # never 1000 kB/s
        (7, "FLOP", "7.00 FLOP"),
        (0, "B/s", "0 B/s"),
        (4.2e18, "FLOP", "4200 PFLOP"),
    ],
)
def test_format_si(value: float, unit: str, text: str) -> None:
    assert units.format_si(value, unit) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.format_int(1000), "1000"),
        (units.format_int(1536), "1536"),  # 1.5k is not typed
        (units.format_int(3 * 1024**2), "3M"),
        (units.format_int(0), "0"),
        (units.format_count(274877906944), "274,877,906,944"),
        (units.format_ratio(4.349), "4.35×"),
        (units.format_ratio(0.0123), "0.0123×"),
        (units.format_ratio(1234.5), "1234×"),
        (units.format_percent(0.5123), "51.2 %"),
        (units.format_percent(1), "100.0 %"),
        (units.format_percent(0.0123, signed=True), "+1.2 %"),
        (units.format_percent(-0.0123, signed=True), "-1.2 %"),
        (units.format_megabytes(37_748_736), "37.75"),
        (units.format_megabytes(0), "0.00"),
        (units.format_error(0.000312), "3.1e-04"),
        (units.format_error(0), "0.0e+00"),
    ],
)
def test_other_formats(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize("formatter", [units.format_ms, units.format_ratio, units.format_percent, units.format_error])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_a_number_has_no_text(formatter: object, value: float) -> None:
    with pytest.raises(ValueError, match="an unknown value has no text"):
        formatter(value)  # type: ignore[operator]
