"""Arithmetic that :mod:`float32` leaves: directed roundings, f32x2, f64, f16 and bf16, exact and then rounded once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from fa_bench.ptx.interpreter.formats import (
    FORMATS,
    NAN,
    Format,
    Number,
    add,
    decode,
    divide,
    encode,
    flush,
    less,
    multiply,
    negate,
    rectify,
    saturate,
    square_root,
)
from fa_bench.ptx.interpreter.state import LANES, UINT, Step, semantic

_ONE: Final = decode(0x3F800000, FORMATS["f32"])
_Operation = Callable[[list[Number], str], Number]
_OPERATIONS: Final[dict[str, _Operation]] = {
    "add": lambda v, mode: add(v[0], v[1], mode),
    "sub": lambda v, mode: add(v[0], negate(v[1]), mode),
    "mul": lambda v, mode: multiply(v[0], v[1]),
    "fma": lambda v, mode: add(multiply(v[0], v[1]), v[2], mode),
    "mad": lambda v, mode: add(multiply(v[0], v[1]), v[2], mode),
    "div": lambda v, mode: divide(v[0], v[1]),
    "rcp": lambda v, mode: divide(_ONE, v[0]),
    "sqrt": lambda v, mode: square_root(v[0]),
}


def element(type_: str) -> tuple[Format, int]:
    """Format of the elements of a type, and how many a register holds."""
    name = type_.removesuffix("x2")
    return FORMATS[name], 2 if name != type_ else 1


def elementwise(step: Step, function: Callable[..., int]) -> None:
    """Write ``function`` of the sources' patterns, lane by lane and element by element."""
    type_ = step.instruction.type
    fmt, count = element(type_)
    sources = [step.read(k) for k in range(1, len(step.instruction.operands))]
    bits = fmt.bits * count
    results = np.zeros(LANES, UINT[bits])
    for lane in range(LANES):
        words = [int(source[lane]) for source in sources]
        for part in range(count):
            given = [word >> fmt.bits * part & (1 << fmt.bits) - 1 for word in words]
            results[lane] |= UINT[bits](function(*given) << fmt.bits * part)
    step.write(results)


def rounding(step: Step) -> str:
    """The rounding that the instruction names; to nearest even by default."""
    return next((mode for mode in ("rz", "rm", "rp") if step.instruction.has(mode)), "rn")


def finished(step: Step, number: Number, fmt: Format, mode: str) -> int:
    """Pattern of a result after ``.sat``, ``.relu`` and ``.ftz``."""
    pattern = encode(number, fmt, mode)
    if step.instruction.has("sat"):
        pattern = encode(saturate(decode(pattern, fmt)), fmt, mode)
    if step.instruction.has("relu"):
        pattern = encode(rectify(decode(pattern, fmt)), fmt, mode)
    return encode(flush(decode(pattern, fmt), fmt), fmt, mode) if step.instruction.has("ftz") else pattern


def sources(step: Step, patterns: tuple[int, ...], fmt: Format) -> list[Number]:
    """What source patterns stand for; subnormals are zeros with ``.ftz``."""
    numbers = [decode(pattern, fmt) for pattern in patterns]
    return [flush(n, fmt) for n in numbers] if step.instruction.has("ftz") else numbers


def _names() -> Iterator[str]:
    for op in ("add", "sub", "mul", "fma"):
        yield from (f"{op}.f32.directed", f"{op}.f32x2", f"{op}.f64", f"{op}.f16", f"{op}.bf16")
    yield from ("fma.f16.relu", "mad.f32.directed", "mad.f64")
    yield from (f"{op}.{kind}" for op in ("div", "rcp", "sqrt") for kind in ("f32.directed", "f64"))


@semantic(*_names())
def arithmetic(step: Step) -> None:
    fmt, _ = element(step.instruction.type)
    mode = rounding(step)
    operation = _OPERATIONS[step.instruction.row.op]
    elementwise(step, lambda *patterns: finished(step, operation(sources(step, patterns, fmt), mode), fmt, mode))


@semantic(*(f"{op}.{kind}" for op in ("min", "max") for kind in ("f16", "bf16", "f64")))
def extreme(step: Step) -> None:
    """One NaN gives way to the number unless ``.NaN`` is set; -0 is less than +0."""
    fmt, _ = element(step.instruction.type)
    largest = step.instruction.row.op == "max"

    def choose(a: int, b: int) -> int:
        x, y = sources(step, (a, b), fmt)
        if x.nan or y.nan:
            both = x.nan and y.nan
            chosen = NAN if both or step.instruction.has("NaN") else (y if x.nan else x)
        elif less(x, y) or less(y, x):
            chosen = x if less(x, y) != largest else y
        else:
            # Equal, or zeros of either sign.
            chosen = x if x.negative != largest else y
        return encode(chosen, fmt, "rn")

    elementwise(step, choose)


@semantic(*(f"{op}.{kind}" for op in ("abs", "neg") for kind in ("f16", "bf16", "f64")))
def sign(step: Step) -> None:
    """The sign bit is cleared or inverted, a NaN's too."""
    fmt, _ = element(step.instruction.type)
    negates = step.instruction.row.op == "neg"

    def change(pattern: int) -> int:
        if step.instruction.has("ftz") and decode(pattern, fmt) != flush(decode(pattern, fmt), fmt):
            pattern &= fmt.sign
        return pattern ^ fmt.sign if negates else pattern & ~fmt.sign

    elementwise(step, change)


@semantic("copysign")
def copy_sign(step: Step) -> None:
    """The second source with the sign of the first."""
    fmt, _ = element(step.instruction.type)
    elementwise(step, lambda a, b: a & fmt.sign | b & ~fmt.sign)
