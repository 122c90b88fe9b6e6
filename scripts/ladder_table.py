"""Write the tables of the ladder in kernels/README.md anew: run ``fa-bench ladder`` and put in what it prints."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Final

from fa_bench.cli.app import run

DOCUMENT: Final = Path(__file__).resolve().parents[1] / "kernels" / "README.md"
#: What stands between the two lines is this script's.
BLOCK: Final = r"(?ms)(?<=^<!-- fa-bench ladder -->\n).*?(?=^<!-- end -->$)"


def printed() -> str:
    """The Markdown that the command prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = run(["ladder", "--format", "md", "--quiet"])
    if code:
        sys.exit(f"fa-bench ladder ended with {code}.")
    return out.getvalue()


def main() -> None:
    """Replace the block."""
    tables = printed()
    text, blocks = re.subn(BLOCK, lambda found: tables, DOCUMENT.read_text(encoding="utf-8"))
    if blocks != 1:
        sys.exit(f"{DOCUMENT} has no place for the ladder.")
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
