"""Write docs/claims.md anew: what ``fa-bench claims --explain --format md --lang both`` prints.

Needs PyTorch and NVRTC, without which parts of the page would say that they were not tested.
"""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import Final

from fa_bench.cli.app import run

DOCUMENT: Final = Path(__file__).resolve().parents[1] / "docs" / "claims.md"
COMMAND: Final = ("claims", "--explain", "--format", "md", "--lang", "both", "--quiet")


def main() -> None:
    """Replace the page."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = run(COMMAND)
    if code:
        sys.exit(f"fa-bench claims ended with {code}.")
    DOCUMENT.write_text(out.getvalue(), encoding="utf-8")


if __name__ == "__main__":
    main()
