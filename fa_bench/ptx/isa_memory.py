"""ISA rows: loads, stores, addresses, asynchronous copies."""

from __future__ import annotations

from typing import Final

from fa_bench.ptx.isa_row import MEMORY, Row, Table

_VECTOR: Final = ("", "v2", "v4")
_WIDE: Final = ("", "v2", "v4", "v8")
_SCOPE: Final = ("", "cta", "gpu", "sys")
_EVICTION: Final = tuple(f"evict_{how}" for how in ("normal", "unchanged", "first", "last"))
_L1: Final = ("", "L1::no_allocate", *(f"L1::{how}" for how in _EVICTION))
_L2: Final = ("", *(f"L2::{how}" for how in _EVICTION if how != "evict_unchanged"))
_L2_PREFETCH: Final = ("", "L2::64B", "L2::128B", "L2::256B")
_LOAD: Final = (
    ("", "weak", "volatile", "relaxed", "acquire"), _SCOPE, ("", "ca", "cg", "cs", "lu", "cv"), _L1, _L2, _L2_PREFETCH
)  # fmt: skip
_STORE: Final = (("", "weak", "volatile", "relaxed", "release"), _SCOPE, ("", "wb", "cg", "cs", "wt"), _L1, _L2)
_ANY_SPACE: Final = ("global", "shared", "local", "const", "param")


def _rows() -> tuple[Row, ...]:
    table = Table()
    table.add("cvta", "cvta", "move", ("u64",), "d,a", choose=(_ANY_SPACE,))
    table.add("cvta.to", "cvta.to", "move", ("u64",), "d,a", choose=(_ANY_SPACE,))
    table.add("isspacep", "isspacep", "integer", (), "d,a", choose=(_ANY_SPACE,))
    table.add("ld.param", "ld.param", "load-store", MEMORY, "d,[a]", choose=(_VECTOR,), max_bits=128)
    table.add("ld.const", "ld.const", "load-store", MEMORY, "d,[a]", choose=(_VECTOR, *_LOAD), max_bits=128)
    table.add("ld.global", "ld.global", "load-store", MEMORY, "d,[a]", ("nc",), choose=(_WIDE, *_LOAD), max_bits=256)
    table.add("st.global", "st.global", "load-store", MEMORY, "[a],b", choose=(_WIDE, *_STORE), max_bits=256)
    table.add("ld.shared", "ld.shared", "load-store", MEMORY, "d,[a]", choose=(_VECTOR, *_LOAD), max_bits=128)
    table.add("st.shared", "st.shared", "load-store", MEMORY, "[a],b", choose=(_VECTOR, *_STORE), max_bits=128)
    # The same address is another place in each lane's local memory, and a generic address may be a local one.
    table.add("ld.local", "ld.local", "load-store", MEMORY, "d,[a]",
        choose=(_VECTOR, *_LOAD), max_bits=128, lane_varying=True)  # fmt: skip
    table.add("st.local", "st.local", "load-store", MEMORY, "[a],b", choose=(_VECTOR, *_STORE), max_bits=128)
    table.add("ld", "ld", "load-store", MEMORY, "d,[a]", choose=(_VECTOR, *_LOAD), max_bits=128, lane_varying=True)
    table.add("st", "st", "load-store", MEMORY, "[a],b", choose=(_VECTOR, *_STORE), max_bits=128)
    table.add("prefetch", "prefetch", "load-store", (), "[a]",
        choose=(("", "global", "local"), ("L1", "L2", "L2::evict_last", "L2::evict_normal")))  # fmt: skip
    table.add("prefetchu", "prefetchu", "load-store", (), "[a]", choose=(("L1",),))
    matrix = (("m8n8",), ("x1", "x2", "x4"))
    table.add("ldmatrix", "ldmatrix.sync.aligned", "load-store", ("b16",), "d,[a]",
        ("trans", "shared"), lane_varying=True, choose=matrix)  # fmt: skip
    table.add("stmatrix", "stmatrix.sync.aligned", "load-store", ("b16",), "[a],b", ("trans", "shared"), choose=matrix)
    table.add("cp.async", "cp.async", "load-store", (), "[d],[a],n,b",
        optional=1, choose=(("ca", "cg"), ("shared",), ("global",), _L2_PREFETCH))  # fmt: skip
    table.add("cp.async.commit_group", "cp.async.commit_group", "sync", (), "")
    table.add("cp.async.wait_group", "cp.async.wait_group", "sync", (), "n")
    table.add("cp.async.wait_all", "cp.async.wait_all", "sync", (), "")
    return table.rows


ROWS: Final = _rows()
