"""Lowering of f16, f16x2, bf16 and bf16x2 arithmetic: one function per group of ISA rows.

f16 is calculated as such where the CPU can, else in f32; bf16 always in f32. The result is then rounded a second
time, which changes nothing for a sum or a product (24 bits are at least twice 11 plus 2), and a fused sum is
rounded to odd first.
"""

from __future__ import annotations

from typing import Final

from fa_bench.ptx import host, runtime_float
from fa_bench.ptx.emitter import Emitter
from fa_bench.ptx.lower_arith import lowers
from fa_bench.ptx.program import Instruction
from fa_bench.ptx.wide import Wide, flushed, mapped, read, rectified, saturated

_WORD: Final = {"add": "fadd", "sub": "fsub", "mul": "fmul"}


def single(value: Wide) -> Wide:
    """f16 (``half`` elements) or bf16 (``i16`` elements) as f32."""
    if value.elem == "half":
        return value.to("fpext", "float")
    return value.to("zext", "i32").op("shl", 16).cast("float")


def to_bf16(value: Wide) -> Wide:
    """f32 to bf16 patterns, to nearest even; NaN becomes 0x7FFF."""
    bits = value.bits()
    odd = bits.op("lshr", 16).op("and", 1)
    top = bits.op("add", 0x7FFF).op("add", odd).op("lshr", 16)
    return value.compare("uno", value).where(top.constant(0x7FFF), top).to("trunc", "i16")


def _sources(e: Emitter, i: Instruction, native: bool) -> list[Wide]:
    """All source operands as ``half``, if ``native`` and they are f16, or as ``float``."""
    values = read(e, i.operands[1:], i.type)
    if i.has("ftz") and values[0].elem == "half":
        values = [flushed(v) for v in values]
    return values if native and values[0].elem == "half" else [single(v) for v in values]


def _write(e: Emitter, i: Instruction, result: Wide) -> None:
    """Write a result, given in ``half`` or ``float``, in the instruction's type."""
    if i.has("sat"):
        result = saturated(result)
    if i.has("relu"):
        result = rectified(result)
    if result.elem == "float":
        result = to_bf16(result) if i.type.startswith("bf16") else result.to("fptrunc", "half")
    if result.elem == "half" and (i.has("relu") or i.has("NaN")):
        # Of these forms the ISA promises the canonical NaN; of others engines may keep a payload.
        result = result.compare("uno", result).where(result.constant(0x7FFF), result)
    if i.has("ftz") and result.elem == "half":
        result = flushed(result)
    e.write(i.operands[0], result.value())


@lowers(*(f"{op}.{t}" for op in ("add", "sub", "mul") for t in ("f16", "bf16")))
def _add(e: Emitter, i: Instruction) -> None:
    a, b = _sources(e, i, host.has_half_arithmetic())
    _write(e, i, a.op(_WORD[i.row.op], b))


@lowers("fma.f16", "fma.f16.relu", "fma.bf16")
def _fma(e: Emitter, i: Instruction) -> None:
    a, b, c = _sources(e, i, host.has_half_arithmetic())
    if a.elem == "half":
        total = a.call("llvm.fma", b, c)
    elif i.row.name == "fma.bf16":
        total = _fma_bf16(e, a, b, c)
    else:
        # The product of two halves is exact in f32, and so is the error of the sum.
        total = runtime_float.odd_sum(a.op("fmul", b), c)
    _write(e, i, total)


def _fma_bf16(e: Emitter, a: Wide, b: Wide, c: Wide) -> Wide:
    count = max(a.count, 1)
    name = e.define(f"fma_bf16_{count}", lambda: runtime_float.fma_bf16(count))
    values = [v.padded(count) for v in (a, b, c)]
    arguments = ", ".join(v.typed for v in values)
    return Wide(e, e.let(f"call {values[0].type} @{name}({arguments})"), "float", count).first(a.count)


@lowers("min.f16", "max.f16", "min.bf16", "max.bf16")
def _extreme(e: Emitter, i: Instruction) -> None:
    a, b = _sources(e, i, host.has_half_arithmetic())
    _write(e, i, a.call(f"llvm.{i.row.op}imum" if i.has("NaN") else f"llvm.{i.row.op}imumnum", b))


@lowers("abs.f16", "neg.f16", "abs.bf16", "neg.bf16")
def _sign(e: Emitter, i: Instruction) -> None:
    (value,) = read(e, i.operands[1:], i.type)
    if i.has("ftz"):
        value = flushed(value)
    bits = value.bits()
    result = bits.op("and", 0x7FFF) if i.row.op == "abs" else bits.op("xor", 0x8000)
    e.write(i.operands[0], result.value())


@lowers("ex2.f16", "ex2.bf16", "tanh.half")
def _transcendental(e: Emitter, i: Instruction) -> None:
    """In f32; ``.ftz`` is for bf16, whose subnormals are those of f32."""
    (value,) = _sources(e, i, native=False)
    if i.has("ftz"):
        value = flushed(value)
    name = i.row.op if i.row.op == "ex2" else e.define("tanh", runtime_float.FUNCTIONS["tanh"])
    result = mapped(e, name, value)
    _write(e, i, flushed(result) if i.has("ftz") else result)
