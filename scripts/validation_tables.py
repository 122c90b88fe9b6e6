"""Write the tables of docs/validation.md anew, and the errors that tests hold predictions to.

Runs the sources that are named on the command line, or all, and puts in what ``fa-bench validate`` prints. Those that
run kernels take some minutes on two cores, the others seconds. The text around the tables stays as it is.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import fa_bench
from fa_bench.cli.app import run
from fa_bench.validation.sources import SOURCES, chosen

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "validation.md"
#: Mean errors of the sources that run no kernels: tests/validation/test_expected.py.
EXPECTED = ROOT / "tests" / "validation" / "expected.csv"
#: What stands between the two lines is this script's.
BLOCK = r"(?ms)^<!-- fa-bench validate ([\w-]+) -->\n(.*?)^<!-- end -->$"
MADE = r"(?m)^Tables made by fa-bench .* on .*\.$"


def printed(source: str, fmt: str) -> str:
    """What the command prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = run(["validate", source, "--format", fmt, "--quiet"])
    if code:
        sys.exit(f"fa-bench validate {source} ended with {code}.")
    return out.getvalue()


def write_document(names: list[str]) -> None:
    """Replace the blocks of these sources, and say when and by which version."""

    def block(found: re.Match[str]) -> str:
        tables = printed(found[1], "md") if found[1] in names else found[2]
        return f"<!-- fa-bench validate {found[1]} -->\n{tables}<!-- end -->"

    text = re.sub(BLOCK, block, DOCUMENT.read_text(encoding="utf-8"))
    today = datetime.now(UTC).date().isoformat()
    text, lines = re.subn(MADE, f"Tables made by fa-bench {fa_bench.__version__} on {today}.", text)
    if lines != 1:
        sys.exit(f"{DOCUMENT} has no line that says when its tables were made.")
    DOCUMENT.write_text(text, encoding="utf-8")


def write_expected() -> None:
    """Mean errors of all sources that run no kernels."""
    with EXPECTED.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["source", "what", "gpu", "figures", "mape", "all_figures", "all_mape"])
        for name, source in SOURCES.items():
            if not source.runs:
                for score in json.loads(printed(name, "json"))["sources"][0]["scores"]:
                    mape, all_mape = (
                        "" if (mean := score[key]) is None else f"{mean:.4f}" for key in ("mape", "all_mape")
                    )
                    figures, all_figures = score["figures"], score["all_figures"]
                    writer.writerow([name, score["what"], score["gpu"], figures, mape, all_figures, all_mape])


if __name__ == "__main__":
    write_document(chosen(sys.argv[1:]))
    write_expected()
