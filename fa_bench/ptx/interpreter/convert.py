"""``cvt``: every conversion goes through the exact rational value of its source."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from fa_bench.ptx.interpreter.formats import FORMATS, Format, Number, decode, encode, flush, rectify, rounded, saturate
from fa_bench.ptx.interpreter.state import LANES, UINT, Lanes, Step, semantic
from fa_bench.ptx.isa import TYPE_BITS

#: Where a register holds a tf32 number's 19 bits.
_TF32_SHIFT = 13
_TO_INTEGER = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}


def _integer(pattern: int, type_: str) -> int:
    bits = TYPE_BITS[type_]
    return pattern - (1 << bits) if type_[0] == "s" and pattern >> bits - 1 else pattern


def _source(step: Step, pattern: int, type_: str) -> Number:
    if type_ in FORMATS:
        number = decode(pattern, FORMATS[type_])
        return flush(number, FORMATS[type_]) if type_ == "f32" and step.instruction.has("ftz") else number
    value = _integer(pattern, type_)
    return Number(Fraction(value), value < 0)


def _to_integer(number: Number, to: str, source: str, mode: str) -> int:
    """Rounded and clamped to the type's range. A NaN is 0, but the top bit if f64 or 64 bits are involved."""
    bits = TYPE_BITS[to]
    if number.nan:
        return 1 << bits - 1 if bits == 64 or source == "f64" else 0
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if to[0] == "s" else (0, (1 << bits) - 1)
    if number.value is None:
        return low if number.negative else high
    return min(max(rounded(number.value, mode), low), high)


def _to_float(step: Step, number: Number, to: str) -> int:
    has = step.instruction.has
    fmt = FORMATS[to]
    integral = next((mode for suffix, mode in _TO_INTEGER.items() if has(suffix)), None)
    if integral and number.value is not None:
        number = Number(Fraction(rounded(number.value, integral)), number.negative)
    mode = next((m for m in ("rna", "rz", "rm", "rp") if has(m)), "rn")
    pattern = encode(number, fmt, mode, saturate=has("satfinite"))
    if has("sat"):
        pattern = encode(saturate(decode(pattern, fmt)), fmt, mode)
    if has("relu"):
        pattern = encode(rectify(decode(pattern, fmt)), fmt, mode)
    if to == "f32" and has("ftz"):
        pattern = encode(flush(decode(pattern, fmt), fmt), fmt, mode)
    return pattern


def convert(step: Step, pattern: int, source: str, to: str) -> int:
    """The pattern of type ``to`` that the instruction makes of one of type ``source``."""
    has = step.instruction.has
    if not (to in FORMATS or source in FORMATS or has("sat")):
        return _integer(pattern, source)
    number = _source(step, pattern, source)
    if to in FORMATS:
        return _to_float(step, number, to)
    mode = next((mode for suffix, mode in _TO_INTEGER.items() if has(suffix)), "rn")
    return _to_integer(number, to, source, mode)


def _column(step: Step, k: int, source: str, to: str) -> Lanes:
    bits = TYPE_BITS[to]
    results = [convert(step, int(p), source, to) % 2**bits for p in step.read(k, source)]
    return np.array(results, UINT[bits]).reshape(LANES)


@semantic("cvt.int", "cvt.float.to.int", "cvt.int.to.float", "cvt.same", "cvt.widen", "cvt.narrow", "cvt.half",
          "cvt.half.relu")  # fmt: skip
def cvt(step: Step) -> None:
    """A narrow signed result is sign-extended."""
    to, source = step.instruction.form.types
    result = _column(step, 1, source, to)
    step.write(result.view(f"i{result.dtype.itemsize}") if to[0] == "s" else result)


@semantic("cvt.half.pair", "cvt.f8")
def cvt_pair(step: Step) -> None:
    """A packed result has the first source in its upper half."""
    to, source = step.instruction.form.types
    half = to.removesuffix("x2")
    bits = TYPE_BITS[to]
    upper, lower = (_column(step, k, source, half).astype(UINT[bits]) for k in (1, 2))
    step.write(upper << UINT[bits](bits // 2) | lower)


@semantic("cvt.f8.from.half", "cvt.f8.to.half")
def cvt_packed(step: Step) -> None:
    """Both elements of a register."""
    to, source = (t.removesuffix("x2") for t in step.instruction.form.types)
    narrow, wide = FORMATS[source].bits, FORMATS[to].bits
    word = UINT[2 * wide]
    results = np.zeros(LANES, word)
    for lane, pattern in enumerate(step.read(1)):
        for part in range(2):
            piece = int(pattern) >> narrow * part & (1 << narrow) - 1
            results[lane] |= word(convert(step, piece, source, to) << wide * part)
    step.write(results)


@semantic("cvt.tf32", "cvt.tf32.away")
def cvt_tf32(step: Step) -> None:
    """The number's 19 bits stand in the upper part of the register."""
    fmt: Format = FORMATS["tf32"]

    def one(pattern: int) -> int:
        number = convert(step, pattern, "f32", "tf32")
        return FORMATS["f32"].nan if number == fmt.nan else number << _TF32_SHIFT

    step.write(np.array([one(int(p)) for p in step.read(1, "f32")], np.uint32))
