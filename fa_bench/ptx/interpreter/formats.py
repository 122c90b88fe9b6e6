"""Floating-point formats by their bits, and exact arithmetic on what the bits stand for.

A pattern becomes a rational number; an operation is exact; one rounding function makes the result's pattern in every
format and mode.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating format: sign, exponent with bias, ``mantissa`` bits.

    ``infinite`` formats keep the largest exponent for infinities and NaN; the others have one NaN, all bits but the
    sign, and no infinity.
    """

    bits: int
    mantissa: int
    infinite: bool = True

    @property
    def bias(self) -> int:
        """Exponent bias."""
        return (1 << (self.bits - self.mantissa - 2)) - 1

    @property
    def largest(self) -> int:
        """Pattern of the largest finite number."""
        return (1 << (self.bits - 1)) - ((1 << self.mantissa) if self.infinite else 1) - 1

    @property
    def nan(self) -> int:
        """Pattern of the NaN that operations give: all bits but the sign."""
        return (1 << (self.bits - 1)) - 1

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << (self.bits - 1)

    @property
    def least_normal(self) -> Fraction:
        """The smallest normal number."""
        return Fraction(2) ** (1 - self.bias)


#: ``tf32`` has 19 bits here: those that a register holds from bit 13 on.
FORMATS: Final = {
    "f64": Format(64, 52),
    "f32": Format(32, 23),
    "f16": Format(16, 10),
    "bf16": Format(16, 7),
    "tf32": Format(19, 10),
    "e4m3": Format(8, 3, infinite=False),
    "e5m2": Format(8, 2),
}


@dataclass(frozen=True, slots=True)
class Number:
    """What a pattern stands for: a rational, or an infinity or NaN (``value`` is None); the sign even of zero."""

    value: Fraction | None
    negative: bool
    nan: bool = False


NAN: Final = Number(None, False, nan=True)


def decode(pattern: int, fmt: Format) -> Number:
    """The number that ``pattern`` stands for."""
    negative = bool(pattern & fmt.sign)
    magnitude = pattern & ~fmt.sign
    if magnitude > fmt.largest:
        return Number(None, negative, nan=magnitude > fmt.largest + 1 or not fmt.infinite)
    exponent, fraction = magnitude >> fmt.mantissa, magnitude & (1 << fmt.mantissa) - 1
    if exponent:
        fraction |= 1 << fmt.mantissa
    value = fraction * Fraction(2) ** (max(exponent, 1) - fmt.bias - fmt.mantissa)
    return Number(-value if negative else value, negative)


def rounded(value: Fraction, mode: str) -> int:
    """``value`` rounded to an integer.

    To nearest, ties to even (rn) or away from zero (rna); to zero (rz), down (rm) or up (rp).
    """
    match mode:
        case "rn":
            return round(value)
        case "rna":
            return math.floor(abs(value) + Fraction(1, 2)) * (1 if value > 0 else -1)
        case "rz":
            return math.trunc(value)
        case "rm":
            return math.floor(value)
    return math.ceil(value)


def encode(number: Number, fmt: Format, mode: str, *, saturate: bool = False) -> int:
    """The pattern of ``number`` in ``fmt``, rounded by ``mode``.

    Overflow rounds to infinity or the largest number; with ``saturate`` it and infinities are the largest number.
    """
    if number.nan:
        return fmt.nan
    sign = fmt.sign if number.negative else 0
    if number.value is None:
        return sign | (fmt.largest + (0 if saturate or not fmt.infinite else 1))
    magnitude = abs(number.value)
    if magnitude == 0:
        return sign
    least = 1 - fmt.bias
    exponent = max(magnitude.numerator.bit_length() - magnitude.denominator.bit_length(), least)
    if exponent > least and magnitude < Fraction(2) ** exponent:
        exponent -= 1
    steps = magnitude / Fraction(2) ** (exponent - fmt.mantissa)
    count = abs(rounded(-steps if number.negative else steps, mode))
    # A significand that rounds up to the next power of two carries into the exponent field.
    pattern = ((exponent - least) << fmt.mantissa) + count
    if pattern > fmt.largest:
        away = mode in ("rn", "rna", "rm" if number.negative else "rp") and not saturate and fmt.infinite
        pattern = fmt.largest + (1 if away else 0)
    return sign | pattern


def flush(number: Number, fmt: Format) -> Number:
    """A subnormal becomes zero of its sign."""
    if number.value is not None and abs(number.value) < fmt.least_normal:
        return Number(Fraction(0), number.negative)
    return number


def saturate(number: Number) -> Number:
    """Clamped to [0, 1]; NaN and -0 become +0."""
    if number.nan or number.negative:
        return Number(Fraction(0), False)
    if number.value is None or number.value > 1:
        return Number(Fraction(1), False)
    return number


def rectify(number: Number) -> Number:
    """A negative number or -0 becomes +0; NaN stays."""
    return Number(Fraction(0), False) if number.negative and not number.nan else number


def negate(number: Number) -> Number:
    """The opposite."""
    return Number(None if number.value is None else -number.value, not number.negative, number.nan)


def add(a: Number, b: Number, mode: str) -> Number:
    """a + b. An exact zero from opposite numbers is +0, but -0 when rounding down."""
    if a.nan or b.nan or (a.value is None and b.value is None and a.negative != b.negative):
        return NAN
    if a.value is None or b.value is None:
        return a if a.value is None else b
    total = a.value + b.value
    if total == 0:
        return Number(total, a.negative if a.negative == b.negative else mode == "rm")
    return Number(total, total < 0)


def multiply(a: Number, b: Number) -> Number:
    """a * b."""
    negative = a.negative != b.negative
    if a.nan or b.nan or (a.value is None and b.value == 0) or (b.value is None and a.value == 0):
        return NAN
    if a.value is None or b.value is None:
        return Number(None, negative)
    return Number(a.value * b.value, negative)


def divide(a: Number, b: Number) -> Number:
    """a / b."""
    negative = a.negative != b.negative
    if a.nan or b.nan or (a.value is None and b.value is None) or (a.value == 0 and b.value == 0):
        return NAN
    if a.value is None or b.value == 0:
        return Number(None, negative)
    if b.value is None:
        return Number(Fraction(0), negative)
    return Number(a.value / b.value, negative)


def square_root(a: Number) -> Number:
    """The root, exact where it is rational; else cut after more bits than any format has, and a bit that tells so."""
    if a.nan or (a.negative and a.value != 0):
        return NAN
    if a.value is None or a.value == 0:
        return a
    scale = max(0, 140 - (a.value.numerator.bit_length() - a.value.denominator.bit_length()) // 2)
    scaled = a.value * 4**scale
    root = math.isqrt(math.floor(scaled))
    inexact = root * root != scaled
    return Number(Fraction(2 * root + inexact, 2 * 2**scale), False)


def less(a: Number, b: Number) -> bool:
    """Whether a < b for two numbers that are not NaN; -0 equals +0."""

    def place(x: Number) -> tuple[int, Fraction]:
        if x.value is None:
            return (-1 if x.negative else 1), Fraction(0)
        return 0, x.value

    return place(a) < place(b)
