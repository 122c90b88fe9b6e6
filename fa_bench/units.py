"""Numbers to text and back; no other module knows a suffix or a unit.

Sizes are binary: ``k`` is 1024 and ``M`` is 1024², bytes are counted in KiB, MiB, GiB and TiB. What a person
types is parsed exactly or refused with one sentence that says what would be right. What is shown has three
significant digits; full precision belongs to the records, which never pass through here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Final

from fa_bench.errors import UsageError

#: The longest axis that one expression may stand for.
MAX_AXIS_VALUES: Final = 10_000

_SUFFIXES: Final[dict[str, int]] = {"": 1, "k": 1024, "K": 1024, "M": 1024**2}
_BYTE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_SI_PREFIXES: Final = ("", "k", "M", "G", "T", "P")
_TIME_UNITS: Final = ("ns", "µs", "ms", "s")

# Eighteen digits hold every size there is and keep int() far from its own limit on the length of text.
_INT: Final = re.compile(r"([0-9]{1,18})([kKM]?)")
_BYTES: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(|B|KiB|MiB|GiB|TiB)", re.IGNORECASE)
_TILE: Final = re.compile(r"([0-9]{1,9})\s*[xX×]\s*([0-9]{1,9})")


# --- text to numbers -------------------------------------------------------------------------------------------


def parse_int(text: str, *, minimum: int = 0) -> int:
    """Parse a whole number with an optional suffix ``k`` (1024) or ``M`` (1024²).

    Parameters
    ----------
    text : str
        Such as ``"512"``, ``"16k"`` or ``"1M"``; surrounding blanks do not matter.
    minimum : int
        The least value that is accepted.

    Raises
    ------
    UsageError
        If ``text`` is not such a number, or less than ``minimum``.

    Examples
    --------
    >>> parse_int("16k")
    16384
    """
    match = _INT.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{text.strip()!r} is not a whole number; write digits, and k for 1024 or M for 1024², as in 512 or 16k."
        )
    value = int(match[1]) * _SUFFIXES[match[2]]
    if value < minimum:
        raise UsageError(f"{text.strip()!r} is too small; the least is {minimum}.")
    return value


def parse_axis(text: str) -> tuple[int, ...]:
    """Parse the values of an axis: numbers, doubling ranges and stepped ranges, mixed with commas.

    ``512..16k`` doubles from 512 to 16384; ``512..4096:512`` goes in steps of 512. A range must reach its end,
    so that a sweep never ends silently before the size that was asked for. Repeated values count once; the order
    is kept.

    Parameters
    ----------
    text : str
        Such as ``"512..16k"``, ``"512..4096:512"`` or ``"100,512..2k,3k..5k:1k"``.

    Returns
    -------
    tuple of int
        At least one value; every value is at least 1.

    Raises
    ------
    UsageError
        If an item is malformed, holds 0, runs downwards, misses its end or is too long.

    Examples
    --------
    >>> parse_axis("512..4k")
    (512, 1024, 2048, 4096)
    >>> parse_axis("100,1k..2k:512")
    (100, 1024, 1536, 2048)
    """
    values: dict[int, None] = {}
    for item in parse_list(text):
        values.update(dict.fromkeys(_parse_range(item) if ".." in item else (parse_int(item, minimum=1),)))
        if len(values) > MAX_AXIS_VALUES:
            raise _too_long(text)
    return tuple(values)


def parse_list(text: str) -> tuple[str, ...]:
    """Split a comma-separated list into its items, stripped of blanks.

    Raises
    ------
    UsageError
        If the list or one of its items is empty.

    Examples
    --------
    >>> parse_list("flash1, flash2")
    ('flash1', 'flash2')
    """
    items = tuple(item.strip() for item in text.split(","))
    if not all(items):
        raise UsageError(f"{text!r} has an empty item; separate items with single commas, as in a,b,c.")
    return items


def parse_tile(text: str) -> tuple[int, int]:
    """Parse a tile such as ``"128x64"`` into ``(block_m, block_n)``.

    Which sizes are legal is the business of :class:`fa_bench.cases.Tile`.

    Raises
    ------
    UsageError
        If ``text`` is not two whole numbers with an ``x`` between them.

    Examples
    --------
    >>> parse_tile("128x64")
    (128, 64)
    """
    match = _TILE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text.strip()!r} is not a tile; write rows of Q, an x and rows of K and V, as in 128x64.")
    return int(match[1]), int(match[2])


def parse_bytes(text: str) -> int:
    """Parse a size in bytes: a number with an optional B, KiB, MiB, GiB or TiB.

    Parameters
    ----------
    text : str
        Such as ``"4096"``, ``"163KiB"`` or ``"1.5 GiB"``. KB and MB are refused, because half the world means
        1000 by them.

    Returns
    -------
    int
        Bytes.

    Raises
    ------
    UsageError
        If ``text`` is not such a size or not a whole number of bytes.

    Examples
    --------
    >>> parse_bytes("163 KiB")
    166912
    """
    match = _BYTES.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{text.strip()!r} is not a size in bytes; write a number alone or with KiB, MiB, GiB or TiB, as in 163KiB."
        )
    exponent = [unit.lower() for unit in _BYTE_UNITS].index(match[2].lower() or "b")
    nbytes = Fraction(match[1]) * 1024**exponent
    if nbytes.denominator != 1:
        raise UsageError(f"{text.strip()!r} is not a whole number of bytes; the nearest is {round(nbytes)} B.")
    return int(nbytes)


def _parse_range(item: str) -> Sequence[int]:
    bounds, colon, step_text = item.partition(":")
    low_text, _, high_text = bounds.partition("..")
    if not low_text.strip() or not high_text.strip() or (colon and not step_text.strip()):
        raise UsageError(
            f"{item!r} is not a range; write LOW..HIGH to double, or LOW..HIGH:STEP, as in 512..16k or 512..4096:512."
        )
    low, high = parse_int(low_text, minimum=1), parse_int(high_text, minimum=1)
    if low > high:
        raise UsageError(
            f"{item!r} runs downwards; write the smaller number first, as in {format_int(high)}..{format_int(low)}."
        )
    if colon:
        return _stepped(item, low, high, parse_int(step_text, minimum=1))
    return _doubled(item, low, high)


def _doubled(item: str, low: int, high: int) -> Sequence[int]:
    values = [low << i for i in range((high // low).bit_length())]
    if values[-1] != high:
        raise UsageError(
            f"{item!r} doubles from {format_int(values[-1])} to {format_int(2 * values[-1])} and misses its end; "
            f"write {format_int(low)}..{format_int(values[-1])}, or add a step, as in 512..4096:512."
        )
    return values


def _stepped(item: str, low: int, high: int, step: int) -> Sequence[int]:
    values = range(low, high + 1, step)
    if values[-1] != high:
        raise UsageError(
            f"{item!r} steps from {format_int(values[-1])} to {format_int(values[-1] + step)} and misses its end; "
            f"write {format_int(low)}..{format_int(values[-1])}:{format_int(step)}."
        )
    if len(values) > MAX_AXIS_VALUES:
        raise _too_long(item)
    return values


def _too_long(text: str) -> UsageError:
    return UsageError(f"{text!r} stands for more than {MAX_AXIS_VALUES:,} values; take a larger step.")


# --- numbers to text -------------------------------------------------------------------------------------------


def format_int(value: int) -> str:
    """Format a size the way it is typed, exactly: ``parse_int(format_int(n)) == n`` for n >= 0.

    Examples
    --------
    >>> format_int(16384), format_int(1000)
    ('16k', '1000')
    """
    for suffix in ("M", "k"):
        if value and value % _SUFFIXES[suffix] == 0:
            return f"{value // _SUFFIXES[suffix]}{suffix}"
    return str(value)


def format_axis(values: Iterable[int]) -> str:
    """Format the values of an axis as a list that :func:`parse_axis` reads back.

    Examples
    --------
    >>> format_axis([512, 1024, 1536])
    '512,1k,1536'
    """
    return ",".join(map(format_int, values))


def format_count(value: int) -> str:
    """Format an exact count with its digits in groups of three.

    Examples
    --------
    >>> format_count(274877906944)
    '274,877,906,944'
    """
    return f"{value:,}"


def format_bytes(nbytes: int) -> str:
    """Format a number of bytes in binary units; decimals appear only where the value is not whole.

    Examples
    --------
    >>> format_bytes(65536), format_bytes(1363149), format_bytes(-32)
    ('64 KiB', '1.30 MiB', '-32 B')
    """
    value = Fraction(nbytes)
    for unit in _BYTE_UNITS[:-1]:
        text = str(value) if value.denominator == 1 else _three_digits(float(value))
        if abs(float(text)) < 1024:
            return f"{text} {unit}"
        value /= 1024
    return f"{value if value.denominator == 1 else _three_digits(float(value))} {_BYTE_UNITS[-1]}"


def format_megabytes(nbytes: int) -> str:
    """Format bytes as a number of 10^6 bytes with two decimals, for columns beside a profiler's MB.

    Examples
    --------
    >>> format_megabytes(37_748_736)
    '37.75'
    """
    return f"{nbytes / 1e6:.2f}"


def format_ms(time_ms: float) -> str:
    """Format a time given in ms with the unit that suits it, from ns to s.

    Examples
    --------
    >>> format_ms(4.2), format_ms(0.0123), format_ms(61000)
    ('4.20 ms', '12.3 µs', '61.0 s')
    """
    return _scaled(time_ms * 1e6, 1000, _TIME_UNITS)


def format_duration(seconds: float) -> str:
    """Format a waiting time to the second, or to the minute from one hour on.

    Examples
    --------
    >>> format_duration(7.6), format_duration(125), format_duration(3720)
    ('8 s', '2 min 05 s', '1 h 02 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_si(value: float, unit: str) -> str:
    """Format a quantity with a decimal prefix, for FLOP, FLOP/s and B/s.

    Examples
    --------
    >>> format_si(274_877_906_944, "FLOP"), format_si(2.039e12, "B/s")
    ('275 GFLOP', '2.04 TB/s')
    """
    return _scaled(value, 1000, tuple(prefix + unit for prefix in _SI_PREFIXES))


def format_ratio(ratio: float) -> str:
    """Format a ratio as a multiple.

    Examples
    --------
    >>> format_ratio(4.349)
    '4.35×'
    """
    return f"{_three_digits(ratio)}×"


def format_number(value: float) -> str:
    """Format a number without a unit with three significant digits.

    Examples
    --------
    >>> format_number(7.349), format_number(0.0625), format_number(0)
    ('7.35', '0.0625', '0')
    """
    return _three_digits(value)


def format_percent(fraction: float, *, signed: bool = False) -> str:
    """Format a fraction of 1 as percent with one decimal; ``signed`` if it is a deviation.

    Examples
    --------
    >>> format_percent(0.5123), format_percent(0.5123, signed=True)
    ('51.2 %', '+51.2 %')
    """
    _check_finite(fraction)
    return f"{100 * fraction:{'+' if signed else ''}.1f} %"


def format_error(error: float) -> str:
    """Format a small error with two significant digits in scientific notation.

    Examples
    --------
    >>> format_error(0.000312)
    '3.1e-04'
    """
    _check_finite(error)
    return f"{error:.1e}"


def _scaled(value: float, base: int, units: Sequence[str]) -> str:
    """``value`` with the first of ``units`` (each ``base`` times the one before) that keeps it below ``base``."""
    for unit in units[:-1]:
        text = _three_digits(value)
        # The rounded text decides: 999.7 kB is 1.00 MB, not 1000 kB.
        if abs(float(text)) < base:
            return f"{text} {unit}"
        value /= base
    return f"{_three_digits(value)} {units[-1]}"


def _three_digits(value: float) -> str:
    """Three significant digits without an exponent; the integer part is never shortened."""
    _check_finite(value)
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:.0f}"
    rounded = float(f"{value:.2e}")
    return f"{rounded:.{2 - math.floor(math.log10(abs(rounded)))}f}"


def _check_finite(value: float) -> None:
    """Refuse what is not a number: an unknown value is an empty cell, and an infinite one is a defect."""
    if not math.isfinite(value):
        raise ValueError(f"cannot format {value}: an unknown value has no text")
