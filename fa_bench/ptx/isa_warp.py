"""ISA rows: matrix products, exchange between lanes, synchronisation, control flow."""

from __future__ import annotations

from typing import Final

from fa_bench.ptx.isa_row import Row, Table


def _rows() -> tuple[Row, ...]:
    table = Table()
    table.add("mma", "mma.sync.aligned", "tensor", ("f32", "f16", "bf16"), "d,a,b,c",
        ("m16n8k16", "row", "col"), lane_varying=True,
        signatures=(("f32", "f16", "f16", "f32"), ("f32", "bf16", "bf16", "f32")))  # fmt: skip
    table.add("bar.sync", "bar.sync", "sync", (), "n,n", (), 1)
    table.add("barrier.sync", "barrier.sync", "sync", (), "n,n", ("aligned",), 1)
    table.add("bar.warp.sync", "bar.warp.sync", "sync", (), "m")
    table.add("membar", "membar", "sync", (), "", ("cta", "gl", "sys"))
    table.add("fence", "fence", "sync", (), "", ("sc", "acq_rel", "cta", "gpu", "sys"))
    table.add(
        "shfl.sync", "shfl.sync", "integer", ("b32",), "d,a,b,c,m", ("up", "down", "bfly", "idx"), lane_varying=True
    )
    table.add("vote.sync", "vote.sync", "integer", ("pred", "b32"), "d,a,m", ("all", "any", "uni", "ballot"))
    table.add("activemask", "activemask", "integer", ("b32",), "d")
    table.add("bra", "bra", "control", (), "L", ("uni",))
    table.add("ret", "ret", "control", (), "", ("uni",))
    table.add("exit", "exit", "control", (), "")
    table.add("trap", "trap", "control", (), "")
    return table.rows


ROWS: Final = _rows()
