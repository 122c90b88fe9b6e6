"""A stand-in for Nsight Compute: takes its command line and answers as the file in ``FAKE_NCU`` says.

Nothing that it prints was recorded. The forms are those of the manual and of public reports (see fa_bench.measure.ncu
and ncu_csv); every figure was made up, by the test. Options that it doesn't know end it, as they end ncu.

Keys of the file: ``form`` (``wide``, ``long``), ``kernels`` (a list of ``name`` and ``counts`` by metric, by default 1
of each that is asked for), ``unknown`` (metrics that the chip lacks; ``one_at_a_time``: only the first is named),
``say`` (lines instead of the table), ``returncode``, ``hang`` (wait for ever, with a child that does too),
``like_the_model`` (kernels and global bytes of the case that the program was given, DRAM and L2 the same). It adds its
arguments to ``log``, a line each time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FLAGS = {"--csv"}
OPTIONS = {
    "--profile-from-start": {"off"},
    "--target-processes": {"all"},
    "--replay-mode": {"kernel"},
    "--cache-control": {"all"},
    "--clock-control": {"none"},
    "--page": {"raw"},
    "--print-units": {"base"},
    "--metrics": None,
}
VERSION = "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c) ...\nVersion 2024.3.2.0 (build 0) (made up)"
LEAD = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
        "Device", "CC"]  # fmt: skip


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def unit_of(metric: str) -> str:
    return "sector" if "sectors" in metric else "byte"


def quoted(cells: list[str]) -> str:
    return ",".join(f'"{cell}"' for cell in cells)


def table(form: str, kernels: list[dict[str, Any]], metrics: list[str]) -> list[str]:
    """Rows as ncu prints them, thousands grouped."""
    lines: list[str] = []
    for number, kernel in enumerate(kernels):
        lead = [
            str(number),
            "4711",
            "python3",
            "127.0.0.1",
            kernel["name"],
            "1",
            "7",
            "(128, 1, 1)",
            "(4, 1, 1)",
            "0",
            "8.0",
        ]
        values = [(metric, kernel["counts"].get(metric, 1)) for metric in metrics]
        text = {metric: f"{value:,}" if isinstance(value, int) else value for metric, value in values}
        if form == "wide":
            lines.append(quoted([*lead, *text.values()]))
        else:
            section = "Command line profiler metrics"
            lines += [quoted([*lead, section, metric, unit_of(metric), value]) for metric, value in text.items()]
    if form == "wide":
        return [quoted([*LEAD, *metrics]), quoted([*[""] * len(LEAD), *map(unit_of, metrics)]), *lines]
    return [quoted([*LEAD, "Section Name", "Metric Name", "Metric Unit", "Metric Value"]), *lines]


def parsed(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """Options, and the program with its arguments."""
    options: dict[str, str] = {}
    while arguments and arguments[0].startswith("-"):
        name, *arguments = arguments
        if name in FLAGS:
            continue
        if name not in OPTIONS or (OPTIONS[name] is not None and arguments[0] not in OPTIONS[name]):
            sys.exit(f"==ERROR== unrecognised option '{name} {arguments[:1]}'.")
        options[name], *arguments = arguments
    return options, arguments


def like_the_model(program: list[str]) -> list[dict[str, Any]]:
    """Kernels of the case that ``program`` would launch."""
    from fa_bench import algorithms
    from fa_bench.backends.wire import receive

    assert program[1:3] == ["-m", "fa_bench.backends.ncu_target"], program
    with Path(program[3]).open("rb") as pipe:
        case, _, _ = receive(pipe).args
    kernels: dict[str, dict[str, int]] = {}
    for part in algorithms.get(case.impl).traffic(case):
        op = {"read": ("ld", "read"), "write": ("st", "write")}[part.op]
        counts = kernels.setdefault(part.kernel, {})
        for metric, unit in (
            (f"l1tex__t_bytes_pipe_lsu_mem_global_op_{op[0]}.sum", 1),
            (f"lts__t_sectors_srcunit_tex_op_{op[1]}.sum", 32),
            (f"dram__bytes_{op[1]}.sum", 1),
        ):
            counts[metric] = counts.get(metric, 0) + part.bytes // unit
    for counts in kernels.values():
        counts["lts__t_bytes.sum"] = 10**12
        for metric in (
            "l1tex__t_bytes_pipe_lsu_mem_global_op_ld_lookup_hit.sum",
            "lts__t_sectors_srcunit_tex_op_read_lookup_hit.sum",
            "l1tex__t_bytes_pipe_lsu_mem_local_op_ld.sum",
            "l1tex__t_bytes_pipe_lsu_mem_local_op_st.sum",
        ):
            counts[metric] = 0
    return [{"name": name, "counts": counts} for name, counts in kernels.items()]


def main(arguments: list[str]) -> int:
    answer = json.loads(Path(os.environ["FAKE_NCU"]).read_text())
    if arguments == ["--version"]:
        say(VERSION)
        return 0
    options, program = parsed(arguments)
    with Path(answer["log"]).open("a") as log:
        run = {"options": options, "program": program, "locale": os.environ["LC_ALL"], "tmp": os.environ["TMPDIR"]}
        log.write(json.dumps(run) + "\n")
    if answer.get("hang"):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(answer["hang"]).write_text(str(child.pid))
        say("==PROF== Connected to process 4711")
        time.sleep(600)
    metrics = options["--metrics"].split(",")
    unknown = set(answer.get("unknown", ()))
    say("==PROF== Connected to process 4711 (/usr/bin/python3)")
    missing = [metric for metric in metrics if metric in unknown]
    for metric in missing[: 1 if answer.get("one_at_a_time") else None]:
        say(f"==ERROR== Failed to find metric regex:^{metric.replace('.', chr(92) + '.')}$")
    if missing:
        return 1
    say("a line of the program, with a comma")
    if "say" in answer:
        say("\n".join(answer["say"]))
        return int(answer.get("returncode", 1))
    kernels = answer.get("kernels") or [{"name": "kernel", "counts": {}}]
    if answer.get("like_the_model"):
        kernels = like_the_model(program)
    for kernel in kernels:
        say(f'==PROF== Profiling "{kernel["name"]}": 0%....50%....100% - 2 passes')
    say("==PROF== Disconnected from process 4711")
    say("\n".join(table(answer.get("form", "wide"), kernels, metrics)))
    return int(answer.get("returncode", 0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
