"""Use the installed wheel as its user would, outside the checkout: commands, exit codes, the rows of a short sweep."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

FA_BENCH = Path(sys.executable).with_name("fa-bench")


def fa_bench(*args: str, code: int = 0, **variables: str) -> str:
    """Standard output of a command that must exit with ``code``, with these environment variables."""
    print("$", *(f"{name}={value}" for name, value in variables.items()), "fa-bench", *args, flush=True)
    env = {**os.environ, **variables}
    done = subprocess.run([FA_BENCH, *args], stdout=subprocess.PIPE, text=True, encoding="utf-8", env=env, check=False)
    if done.returncode != code:
        sys.exit(f"{done.stdout}\nexit code {done.returncode}, not {code}")
    return done.stdout


def check_rows(run: Path) -> None:
    """Every row of a run of the quick preset is ok, and its bytes are the model's."""
    with (run / "records.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    ok = {row["impl"] for row in rows if row["status"] == "ok"}
    assert len(rows) == 9, f"{len(rows)} rows, not 9."
    assert ok == {"standard", "flash1", "flash2"}, f"Only {ok} are ok."
    for row in rows:
        for op in ("read", "write"):
            model, emulated = (row[f"global_{op}_bytes_{source}"] for source in ("model", "emulated"))
            assert model == emulated != "", f"{row['impl']}: {op} {model} by the model, {emulated} emulated."


def main() -> None:
    """Run everything; the first thing that is off ends it."""
    package = Path(str(resources.files("fa_bench")))
    assert package.is_relative_to(sys.prefix), f"{package} is not what was installed."

    fa_bench("--version")
    fa_bench("gpus", "h100-sxm")
    fa_bench("doctor")
    fa_bench("gpus", "no-such-gpu", code=2)
    fa_bench("io-model", "--seq", "512..16k", "--no-measure")

    counted = json.loads(fa_bench("io-model", "--seq", "300", "--causal", "both", "--format", "json", "--quiet"))
    assert counted["equal"] is True, "A byte differs."

    quick = ("sweep", "--device", "emulator", "--config", "quick", "--out")
    fa_bench(*quick, "run")
    check_rows(Path("run"))
    fa_bench(*quick, "run", code=2)  # it holds a run
    fa_bench(*quick, "shipped", FA_BENCH_HIDE_NVRTC="1")
    check_rows(Path("shipped"))

    fa_bench("trace", "--bug", "missing-rescale", "--html", "trace.html", FA_BENCH_HIDE_NVRTC="1")
    assert "</html>" in Path("trace.html").read_text(encoding="utf-8")

    Path("k.cu").write_text("__global__ void k(float* x) { x[threadIdx.x] += 1; }\n", encoding="utf-8")
    fa_bench("profile", "k.cu", "--grid", "1", "--arg", "x=f32[128]", "--save", "kept")
    fa_bench("diff", "kept", "kept", "--fail-on", "bytes:0,registers:0,instructions:0")
    print("The wheel works outside the checkout.")


main()
