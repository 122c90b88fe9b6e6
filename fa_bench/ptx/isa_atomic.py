"""ISA rows: atomic operations on memory (``atom`` returns the old value, ``red`` does not) and ``mbarrier``."""

from __future__ import annotations

from typing import Final

from fa_bench.ptx.isa_row import Row, Table

_SEMANTICS: Final = ("", "relaxed", "acquire", "release", "acq_rel")
_SCOPE: Final = ("", "cta", "gpu", "sys")
_SPACE: Final = ("", "global", "shared")
#: Operation -> its types and the operands behind the address.
OPERATIONS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "add": (("u32", "s32", "u64", "f32", "f64"), "b"),
    "min": (("u32", "s32", "u64", "s64"), "b"),
    "max": (("u32", "s32", "u64", "s64"), "b"),
    "inc": (("u32",), "b"),
    "dec": (("u32",), "b"),
    "and": (("b32", "b64"), "b"),
    "or": (("b32", "b64"), "b"),
    "xor": (("b32", "b64"), "b"),
    "exch": (("b32", "b64"), "b"),
    "cas": (("b16", "b32", "b64"), "b,c"),
}
_HALVES: Final = ("f16", "f16x2", "bf16", "bf16x2")


def _rows() -> tuple[Row, ...]:
    table = Table()
    for word, address in (("atom", "d,[a]"), ("red", "[a]")):
        common = (_SEMANTICS if word == "atom" else ("", "relaxed", "release"), _SCOPE, _SPACE)
        for operation, (types, operands) in OPERATIONS.items():
            if word == "red" and operation in ("exch", "cas"):
                continue
            table.add(f"{word}.{operation}", word, "load-store", types, f"{address},{operands}",
                lane_varying=word == "atom", choose=(*common, (operation,)))  # fmt: skip
        table.add(f"{word}.add.half", word, "load-store", _HALVES, f"{address},b",
            lane_varying=word == "atom", choose=(*common, ("add",), ("noftz",)))  # fmt: skip
    b64, shared = ("b64",), ("shared",)
    table.add("mbarrier.init", "mbarrier.init", "sync", b64, "[a],n", shared)
    table.add("mbarrier.inval", "mbarrier.inval", "sync", b64, "[a]", shared)
    # The state tells how many arrivals were pending before the lane's own.
    for word in ("arrive", "arrive_drop"):
        table.add(f"mbarrier.{word}", f"mbarrier.{word}", "sync", b64, "d,[a]",
            shared, lane_varying=True, choose=(("", "release"), ("", "cta")))  # fmt: skip
        table.add(f"mbarrier.{word}.noComplete", f"mbarrier.{word}.noComplete", "sync", b64, "d,[a],n",
            shared, lane_varying=True, choose=(("", "release"), ("", "cta")))  # fmt: skip
    for name in ("mbarrier.test_wait", "mbarrier.test_wait.parity"):
        table.add(name, name, "sync", b64, "d,[a],n", shared, choose=(("", "acquire"), ("", "cta")))
    table.add("mbarrier.pending_count", "mbarrier.pending_count", "integer", b64, "d,a")
    table.add("cp.async.mbarrier.arrive", "cp.async.mbarrier.arrive", "sync", b64, "[a]", ("noinc", "shared"))
    return table.rows


ROWS: Final = _rows()
