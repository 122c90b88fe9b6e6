"""The JIT covers the ISA table, and its run-time templates have no open places."""

from __future__ import annotations

from fa_bench.ptx import runtime
from fa_bench.ptx.isa import ROWS
from fa_bench.ptx.jit import CONTROL_ROWS, LOWERINGS


def test_every_row_is_lowered_or_ends_a_block() -> None:
    names = {row.name for row in ROWS}
    assert set(LOWERINGS) | CONTROL_ROWS == names
    assert not set(LOWERINGS) & CONTROL_ROWS


def test_templates_are_filled() -> None:
    texts = [runtime.template("check"), runtime.template("queue"), runtime.access(4)]
    texts.append(runtime.template("driver", WARP_BYTES=4096, QUEUE_OFFSET=2048))
    for text in texts:
        assert "${" not in text
