"""docs/ptx.md is what the ISA table says, and the table's families are all of it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from fa_bench.ptx.isa import ROWS

ROOT = Path(__file__).parents[2]


def test_the_coverage_table_is_current() -> None:
    spec = importlib.util.spec_from_file_location("ptx_table", ROOT / "scripts" / "ptx_table.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert [row for rows in module.FAMILIES.values() for row in rows] == list(ROWS)
    written = (ROOT / "docs" / "ptx.md").read_text(encoding="utf-8")
    assert written == module.document(), "run: python scripts/ptx_table.py"
