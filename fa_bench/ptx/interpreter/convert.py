"""``cvt``: every conversion goes through the exact rational value of its source.

Formats are described by their bits, so that one rounding function makes fp32, fp16 and bf16 in all four modes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from fa_bench.ptx.interpreter.state import LANES, UINT, Lanes, Step, semantic
from fa_bench.ptx.isa import TYPE_BITS


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating format: sign, exponent with bias, ``mantissa`` bits."""

    bits: int
    mantissa: int

    @property
    def bias(self) -> int:
        """Exponent bias."""
        return (1 << (self.bits - self.mantissa - 2)) - 1

    @property
    def infinity(self) -> int:
        """Pattern of +inf."""
        return (1 << (self.bits - 1)) - (1 << self.mantissa)

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


FORMATS: Final = {"f32": Format(32, 23), "f16": Format(16, 10), "bf16": Format(16, 7)}


@dataclass(frozen=True, slots=True)
class Number:
    """What a pattern stands for: a rational, or an infinity or NaN (``value`` is None); the sign even of zero."""

    value: Fraction | None
    negative: bool
    nan: bool = False


def decode(pattern: int, fmt: Format) -> Number:
    """The number that ``pattern`` stands for."""
    negative = bool(pattern & fmt.sign)
    magnitude = pattern & ~fmt.sign
    if magnitude >= fmt.infinity:
        return Number(None, negative, nan=magnitude > fmt.infinity)
    exponent, fraction = magnitude >> fmt.mantissa, magnitude & (1 << fmt.mantissa) - 1
    if exponent:
        fraction |= 1 << fmt.mantissa
    value = fraction * Fraction(2) ** (max(exponent, 1) - fmt.bias - fmt.mantissa)
    return Number(-value if negative else value, negative)


def rounded(value: Fraction, mode: str) -> int:
    """``value`` rounded to an integer: to nearest even (rn), to zero (rz), down (rm) or up (rp)."""
    match mode:
        case "rn":
            return round(value)
        case "rz":
            return math.trunc(value)
        case "rm":
            return math.floor(value)
    return math.ceil(value)


def encode(number: Number, fmt: Format, mode: str) -> int:
    """The pattern of ``number`` in ``fmt``, rounded by ``mode``; overflow rounds to infinity or the largest number."""
    if number.nan:
        return fmt.nan
    sign = fmt.sign if number.negative else 0
    if number.value is None:
        return sign | fmt.infinity
    magnitude = abs(number.value)
    if magnitude == 0:
        return sign
    least = 1 - fmt.bias
    # Sources are integers and binary floats: the denominator is a power of two, so this is exactly floor(log2).
    exponent = max(magnitude.numerator.bit_length() - magnitude.denominator.bit_length(), least)
    steps = magnitude / Fraction(2) ** (exponent - fmt.mantissa)
    count = abs(rounded(-steps if number.negative else steps, mode))
    # A significand that rounds up to the next power of two carries into the exponent field.
    pattern = ((exponent - least) << fmt.mantissa) + count
    if pattern >= fmt.infinity:
        away = mode == "rn" or mode == ("rm" if number.negative else "rp")
        pattern = fmt.infinity if away else fmt.infinity - 1
    return sign | pattern


def _source(pattern: int, type_: str) -> Number:
    if type_ in FORMATS:
        return decode(pattern, FORMATS[type_])
    value = _integer(pattern, type_)
    return Number(Fraction(value), value < 0)


def _integer(pattern: int, type_: str) -> int:
    bits = TYPE_BITS[type_]
    return pattern - (1 << bits) if type_[0] == "s" and pattern >> bits - 1 else pattern


def _to_integer(number: Number, to: str, mode: str) -> int:
    """Rounded and clamped to the type's range. A NaN is 0, but 2^63 in 64 bits (PTX ISA, "cvt")."""
    bits = TYPE_BITS[to]
    if number.nan:
        return 1 << 63 if bits == 64 else 0
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if to[0] == "s" else (0, (1 << bits) - 1)
    if number.value is None:
        return low if number.negative else high
    return min(max(rounded(number.value, mode), low), high)


def _flush(number: Number, fmt: Format) -> Number:
    if number.value is not None and abs(number.value) < fmt.least_normal:
        return Number(Fraction(0), number.negative)
    return number


def _saturate(number: Number) -> Number:
    if number.nan or number.negative:
        return Number(Fraction(0), False)
    if number.value is None or number.value > 1:
        return Number(Fraction(1), False)
    return number


def convert(step: Step, pattern: int, source: str, to: str) -> int:
    """The pattern of type ``to`` that the instruction makes of one of type ``source``."""
    has = step.instruction.has
    rounding = next((m[:2] for m in ("rni", "rzi", "rmi", "rpi", "rn", "rz", "rm", "rp") if has(m)), "rn")
    integral = any(has(m) for m in ("rni", "rzi", "rmi", "rpi"))
    if not (to in FORMATS or source in FORMATS or has("sat")):
        return _integer(pattern, source)
    number = _source(pattern, source)
    if source == "f32" and has("ftz"):
        number = _flush(number, FORMATS["f32"])
    if to not in FORMATS:
        return _to_integer(number, to, rounding)
    fmt = FORMATS[to]
    if integral and number.value is not None:
        number = Number(Fraction(rounded(number.value, rounding)), number.negative)
    if has("sat"):
        number = _saturate(number)
    if has("relu") and number.negative and not number.nan:
        number = Number(Fraction(0), False)
    result = encode(number, fmt, rounding)
    if to == "f32" and has("ftz"):
        result = encode(_flush(decode(result, fmt), fmt), fmt, rounding)
    return result


def _column(step: Step, k: int, source: str, to: str) -> Lanes:
    bits = TYPE_BITS[to]
    results = [convert(step, int(p), source, to) % 2**bits for p in step.read(k, source)]
    return np.array(results, UINT[bits]).reshape(LANES)


@semantic("cvt")
def cvt(step: Step) -> None:
    """A packed result has the first source in its upper half; a narrow signed one is sign-extended."""
    to, source = step.instruction.form.types
    if to in ("f16x2", "bf16x2"):
        half = to.removesuffix("x2")
        upper, lower = (_column(step, k, source, half).astype(np.uint32) for k in (1, 2))
        step.write(upper << np.uint32(16) | lower)
        return
    result = _column(step, 1, source, to)
    step.write(result.view(f"i{result.dtype.itemsize}") if to[0] == "s" else result)
