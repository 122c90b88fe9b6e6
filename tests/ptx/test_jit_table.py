"""The JIT covers the ISA table, and its run-time templates have no open places."""

from __future__ import annotations

from importlib import resources

from fa_bench.ptx import runtime
from fa_bench.ptx.cfg import ENDS
from fa_bench.ptx.isa import ROWS
from fa_bench.ptx.lowerings import LOWERINGS


def test_every_row_is_lowered_or_ends_a_block() -> None:
    names = {row.name for row in ROWS}
    assert set(LOWERINGS) | ENDS == names
    assert not set(LOWERINGS) & ENDS


def test_templates_are_filled() -> None:
    """Every file of IR, with whatever the generators put in."""
    folder = resources.files("fa_bench.ptx") / "ir"
    numbers = ("WARP_BYTES", "QUEUE_OFFSET", "LOCAL_OFFSET", "LOCAL_BYTES", "LOCAL_STRIDE", "SIZE", "BYTES",
               "LINE_MASK")  # fmt: skip
    values: dict[str, int | str] = dict.fromkeys(numbers, 64)
    values |= {"UNIT": "i32", "INT": "i32", "NAME": "add_u32", "PREFIX": "", "BODY": "  %new = add i32 %old, %bv"}
    names = [entry.name.removesuffix(".ll") for entry in folder.iterdir()]
    assert "driver" in names
    for name in names:
        assert "${" not in runtime.template(name, **values)
