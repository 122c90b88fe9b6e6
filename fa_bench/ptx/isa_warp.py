"""ISA rows: exchange between lanes, synchronisation, control flow."""

from __future__ import annotations

from typing import Final

from fa_bench.ptx.isa_row import Row, Table


def _rows() -> tuple[Row, ...]:
    table = Table()
    table.add("bar.sync", "bar.sync", "sync", (), "n,n", (), 1)
    table.add("barrier.sync", "barrier.sync", "sync", (), "n,n", ("aligned",), 1)
    for name in ("bar", "barrier"):
        aligned = ("aligned",) if name == "barrier" else ()
        table.add(f"{name}.arrive", f"{name}.arrive", "sync", (), "n,n", aligned)
        table.add(f"{name}.red", f"{name}.red", "sync", ("pred",), "d,n,n,p", aligned, 1, choose=(("and", "or"),))
        table.add(f"{name}.red.popc", f"{name}.red.popc", "sync", ("u32",), "d,n,n,p", aligned, 1)
    table.add("bar.warp.sync", "bar.warp.sync", "sync", (), "m")
    table.add("membar", "membar", "sync", (), "", ("cta", "gl", "sys"))
    table.add("fence", "fence", "sync", (), "", ("sc", "acq_rel", "cta", "gpu", "sys"))
    table.add(
        "shfl.sync", "shfl.sync", "integer", ("b32",), "d,a,b,c,m", ("up", "down", "bfly", "idx"), lane_varying=True
    )
    table.add("vote.sync", "vote.sync", "integer", ("pred", "b32"), "d,a,m", ("all", "any", "uni", "ballot"))
    table.add("match.any", "match.any.sync", "integer", ("b32", "b64"), "d,a,m")
    table.add("match.all", "match.all.sync", "integer", ("b32", "b64"), "d,a,m")
    table.add("redux.int", "redux.sync", "integer", ("u32", "s32"), "d,a,m", choose=(("add", "min", "max"),))
    table.add("redux.bits", "redux.sync", "integer", ("b32",), "d,a,m", choose=(("and", "or", "xor"),))
    table.add("movmatrix", "movmatrix.sync.aligned", "integer", ("b16",), "d,a",
        lane_varying=True, choose=(("m8n8",), ("trans",)))  # fmt: skip
    table.add("activemask", "activemask", "integer", ("b32",), "d")
    table.add("nanosleep", "nanosleep", "sync", ("u32",), "n")
    table.add("brx.idx", "brx.idx", "control", (), "a,L", ("uni",))
    table.add("bra", "bra", "control", (), "L", ("uni",))
    table.add("ret", "ret", "control", (), "", ("uni",))
    table.add("exit", "exit", "control", (), "")
    table.add("trap", "trap", "control", (), "")
    return table.rows


ROWS: Final = _rows()
