"""ISA rows: loads, stores, addresses, asynchronous copies."""

from __future__ import annotations

from typing import Final

from fa_bench.ptx.isa_row import MEMORY, Row, Table

_CACHE: Final = ("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "L1::no_allocate", "L2::128B", "L2::256B", "L2::64B")
_ORDER: Final = ("weak", "volatile", "relaxed", "cta", "gpu", "sys")


def _rows() -> tuple[Row, ...]:
    table = Table()
    table.add("cvta", "cvta", "move", ("u64", "u32"), "d,a", ("global", "shared", "param"))
    table.add("cvta.to", "cvta.to", "move", ("u64", "u32"), "d,a", ("global", "shared", "param"))
    table.add("ld.param", "ld.param", "load-store", MEMORY, "d,[a]", ("v2", "v4"))
    for space in ("global", "shared"):
        table.add(f"ld.{space}", f"ld.{space}", "load-store", MEMORY, "d,[a]", ("v2", "v4", *_CACHE, *_ORDER))
        table.add(f"st.{space}", f"st.{space}", "load-store", MEMORY, "[a],b", ("v2", "v4", *_CACHE, *_ORDER))
    table.add("ldmatrix", "ldmatrix.sync.aligned", "load-store", ("b16",), "d,[a]",
        ("m8n8", "x1", "x2", "x4", "trans", "shared"), lane_varying=True)  # fmt: skip
    table.add("cp.async", "cp.async", "load-store", (), "[d],[a],n,b",
        ("ca", "cg", "shared", "global", "L2::64B", "L2::128B", "L2::256B"), 1)  # fmt: skip
    table.add("cp.async.commit_group", "cp.async.commit_group", "sync", (), "")
    table.add("cp.async.wait_group", "cp.async.wait_group", "sync", (), "n")
    table.add("cp.async.wait_all", "cp.async.wait_all", "sync", (), "")
    return table.rows


ROWS: Final = _rows()
