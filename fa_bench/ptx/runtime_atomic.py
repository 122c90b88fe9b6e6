"""Run-time functions of ``atom`` and ``red``: one per operation and type, made from ``ir/atomic.ll``."""

from __future__ import annotations

from typing import Final

from fa_bench.ptx import runtime
from fa_bench.ptx.isa import TYPE_BITS

#: Comparison that keeps the old value of ``min``; ``max`` is its mirror.
_LESS: Final = {"u": "ult", "s": "slt"}


def name(operation: str, type_: str) -> str:
    """Name of the function of an operation."""
    return f"atomic_{operation}_{type_}"


def function(operation: str, type_: str) -> str:
    """IR text of ``@atomic_OPERATION_TYPE(addresses, mask, flush, b, c, old)``."""
    bits = TYPE_BITS[type_]
    body = _float_sum(type_) if operation == "add" and "f" in type_ else _integer(operation, type_)
    return runtime.template(
        "atomic",
        NAME=f"{operation}_{type_}",
        INT=f"i{bits}",
        BYTES=bits // 8,
        BODY="\n".join(f"  {line}" for line in body),
    )


def _integer(operation: str, type_: str) -> list[str]:
    """``%new`` from ``%old`` and the operands ``%bv``, ``%cv``."""
    t = f"i{TYPE_BITS[type_]}"
    match operation:
        case "add" | "and" | "or" | "xor":
            return [f"%new = {operation} {t} %old, %bv"]
        case "exch":
            return [f"%new = add {t} %bv, 0"]
        case "cas":
            return [f"%same = icmp eq {t} %old, %bv", f"%new = select i1 %same, {t} %cv, {t} %old"]
        case "min" | "max":
            compare = _LESS[type_[0]] if operation == "min" else _LESS[type_[0]].replace("lt", "gt")
            return [f"%keep = icmp {compare} {t} %old, %bv", f"%new = select i1 %keep, {t} %old, {t} %bv"]
        case "inc":
            return [
                f"%wraps = icmp uge {t} %old, %bv",
                f"%next = add {t} %old, 1",
                f"%new = select i1 %wraps, {t} 0, {t} %next",
            ]
        case "dec":
            return [
                f"%zero = icmp eq {t} %old, 0",
                f"%above = icmp ugt {t} %old, %bv",
                "%wraps = or i1 %zero, %above",
                f"%next = sub {t} %old, 1",
                f"%new = select i1 %wraps, {t} %bv, {t} %next",
            ]
    raise KeyError(operation)


def _float_sum(type_: str) -> list[str]:
    if type_ == "f64":
        return [
            "%x = bitcast i64 %old to double",
            "%y = bitcast i64 %bv to double",
            "%sum = fadd double %x, %y",
            "%new = bitcast double %sum to i64",
        ]
    if type_ == "f32":
        lines = []
        for source, target in (("%old", "x"), ("%bv", "y")):
            lines += _flushed(source, target)
            lines.append(f"%{target} = bitcast i32 %{target}.bits to float")
        return [*lines, "%sum = fadd float %x, %y", "%raw = bitcast float %sum to i32", *_flushed("%raw", "z"),
                "%new = add i32 %z.bits, 0"]  # fmt: skip
    one = _half_sum if type_.startswith("f16") else _bfloat_sum
    if not type_.endswith("x2"):
        return [*one("", "%old", "%bv"), "%new = add i16 %sum, 0"]
    lines = []
    for part, shift in (("l.", 0), ("h.", 16)):
        for source, word in (("%old", "a"), ("%bv", "b")):
            lines.append(f"%{part}{word}.wide = lshr i32 {source}, {shift}")
            lines.append(f"%{part}{word} = trunc i32 %{part}{word}.wide to i16")
        lines += one(part, f"%{part}a", f"%{part}b")
        lines.append(f"%{part}out = zext i16 %{part}sum to i32")
    return [*lines, "%upper = shl i32 %h.out, 16", "%new = or i32 %upper, %l.out"]


def _flushed(source: str, name: str) -> list[str]:
    """``%NAME.bits``: the f32 pattern ``source``, a subnormal as zero of its sign where ``%fl`` is set."""
    return [
        f"%{name}.e = and i32 {source}, {0x7F800000}",
        f"%{name}.s = and i32 {source}, {-0x80000000}",
        f"%{name}.t = icmp eq i32 %{name}.e, 0",
        f"%{name}.f = and i1 %{name}.t, %fl",
        f"%{name}.bits = select i1 %{name}.f, i32 %{name}.s, i32 {source}",
    ]


def _half_sum(part: str, a: str, b: str) -> list[str]:
    return [
        f"%{part}x = bitcast i16 {a} to half",
        f"%{part}y = bitcast i16 {b} to half",
        f"%{part}z = fadd half %{part}x, %{part}y",
        f"%{part}sum = bitcast half %{part}z to i16",
    ]


def _bfloat_sum(part: str, a: str, b: str) -> list[str]:
    """The sum in f32 has more than twice the digits of bf16, so rounding it once more is exact rounding."""
    lines = []
    for source, word in ((a, "x"), (b, "y")):
        lines += [
            f"%{part}{word}.w = zext i16 {source} to i32",
            f"%{part}{word}.u = shl i32 %{part}{word}.w, 16",
            f"%{part}{word} = bitcast i32 %{part}{word}.u to float",
        ]
    return [
        *lines,
        f"%{part}z = fadd float %{part}x, %{part}y",
        f"%{part}bits = bitcast float %{part}z to i32",
        f"%{part}up = lshr i32 %{part}bits, 16",
        f"%{part}odd = and i32 %{part}up, 1",
        f"%{part}r0 = add i32 %{part}bits, 32767",
        f"%{part}r1 = add i32 %{part}r0, %{part}odd",
        f"%{part}r2 = lshr i32 %{part}r1, 16",
        f"%{part}nan = fcmp uno float %{part}z, %{part}z",
        f"%{part}r3 = select i1 %{part}nan, i32 32767, i32 %{part}r2",
        f"%{part}sum = trunc i32 %{part}r3 to i16",
    ]
