"""Write the tables of docs/validation.md anew: run every source of ``fa-bench validate`` and put in what it prints.

Takes some minutes on two cores. The text around the tables stays as it is.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import fa_bench
from fa_bench.cli.app import run

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "validation.md"
#: What stands between the two lines is this script's.
BLOCK = r"(?ms)^<!-- fa-bench validate ([\w-]+) -->\n(.*?)^<!-- end -->$"
MADE = r"(?m)^Tables made by fa-bench .* on .*\.$"


def printed(source: str) -> str:
    """The Markdown that the command prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = run(["validate", source, "--format", "md", "--quiet"])
    if code:
        sys.exit(f"fa-bench validate {source} ended with {code}.")
    return out.getvalue()


def main() -> None:
    """Replace every block, and say when and by which version."""
    text = DOCUMENT.read_text(encoding="utf-8")
    text = re.sub(BLOCK, lambda found: f"<!-- fa-bench validate {found[1]} -->\n{printed(found[1])}<!-- end -->", text)
    today = datetime.now(UTC).date().isoformat()
    text, lines = re.subn(MADE, f"Tables made by fa-bench {fa_bench.__version__} on {today}.", text)
    if lines != 1:
        sys.exit(f"{DOCUMENT} has no line that says when its tables were made.")
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
