"""The options that several commands share, each declared once.

An axis option is text: the command line and the presets are read by the same parser (:mod:`fa_bench.cli.axes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from fa_bench.cli.output import Format

_SHAPE: Final = "Shape"
_KERNEL: Final = "Kernel"
_RUN: Final = "Run"
_OUTPUT: Final = "Output"


class AxesCommand(TyperCommand):
    """A command whose ``--causal`` may stand alone, take a value, or be ``--no-causal``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(_causal_with_value(args)))


def _causal_with_value(args: Sequence[str]) -> Iterator[str]:
    for position, arg in enumerate(args):
        if arg == "--no-causal":
            yield "--causal=false"
        elif arg == "--causal" and (position + 1 == len(args) or args[position + 1].startswith("-")):
            yield "--causal=true"
        else:
            yield arg


SeqOption = Annotated[
    str | None,
    typer.Option(
        "--seq",
        help="Sequence lengths: 512..16k doubles, 512..4096:512 steps, lists mix; k is 1024.",
        metavar="AXIS",
        rich_help_panel=_SHAPE,
        show_default="512..16k",
    ),
]
HeadDimOption = Annotated[
    str | None,
    typer.Option(
        "--head-dim",
        help="Head dimensions: multiples of 8 up to 256.",
        metavar="AXIS",
        rich_help_panel=_SHAPE,
        show_default="64",
    ),
]
SeqlensOption = Annotated[
    str | None,
    typer.Option(
        "--seqlens",
        help="A packed batch, for --seq and --batch: the length of each sequence, QxKV where keys are not as many.",
        metavar="LIST",
        rich_help_panel=_SHAPE,
    ),
]
BatchOption = Annotated[
    str | None,
    typer.Option(
        "--batch",
        help="Batch sizes.",
        metavar="AXIS",
        rich_help_panel=_SHAPE,
        show_default="1; 16k tokens on a GPU",
    ),
]
HeadsOption = Annotated[
    str | None,
    typer.Option(
        "--heads",
        help="Query heads.",
        metavar="AXIS",
        rich_help_panel=_SHAPE,
        show_default="1; hidden 2048 on a GPU",
    ),
]
KvHeadsOption = Annotated[
    str | None,
    typer.Option(
        "--kv-heads",
        help="K/V heads: divisors of the query heads (GQA, MQA).",
        metavar="AXIS",
        rich_help_panel=_SHAPE,
        show_default="as --heads",
    ),
]
TokensOption = Annotated[
    str | None,
    typer.Option(
        "--tokens",
        help="Instead of --batch: batch = tokens / seq.",
        metavar="SIZE",
        rich_help_panel=_SHAPE,
    ),
]
HiddenOption = Annotated[
    str | None,
    typer.Option(
        "--hidden",
        help="Instead of --heads: heads = hidden / head-dim.",
        metavar="SIZE",
        rich_help_panel=_SHAPE,
    ),
]
_CAUSAL_HELP: Final = "Causal mask, bottom-right aligned: alone for yes, --no-causal for no, --causal both for both."
CausalOption = Annotated[
    str | None,
    typer.Option("--causal", help=_CAUSAL_HELP, metavar="[both]", rich_help_panel=_SHAPE, show_default="--no-causal"),
]
#: For commands whose cases are of both kinds unless one is asked for.
BothCausalOption = Annotated[
    str | None,
    typer.Option("--causal", help=_CAUSAL_HELP, metavar="[both]", rich_help_panel=_SHAPE, show_default="both"),
]
WindowOption = Annotated[
    str | None,
    typer.Option(
        "--window",
        help="Sliding windows: 128 (keys to either side, to the left if causal), 128:0, 128:-, none.",
        metavar="LIST",
        rich_help_panel=_SHAPE,
        show_default="none",
    ),
]
FeaturesOption = Annotated[
    str | None,
    typer.Option(
        "--features",
        help="What is fused, joined with +: softcap=30, bias, alibi, sinks, dropout=0.1, none.",
        metavar="LIST",
        rich_help_panel=_SHAPE,
        show_default="none",
    ),
]
HeadDimVOption = Annotated[
    str | None,
    typer.Option(
        "--head-dim-v",
        help="Columns of V and O.",
        metavar="SIZE",
        rich_help_panel=_SHAPE,
        show_default="as --head-dim",
    ),
]
ImplOption = Annotated[
    str | None,
    typer.Option(
        "--impl",
        help="Implementations, FILE.toml for a kernel of yours, or auto (our kernels, NumPy), or all that run here.",
        metavar="LIST",
        rich_help_panel=_KERNEL,
        show_default="auto",
    ),
]
CountersOption = Annotated[
    str,
    typer.Option(
        "--counters",
        help="What is counted: by the emulator global (what warps ask for) or full (also what L2 and DRAM see); "
        "ncu, a GPU's hardware counters; ncu,emulator or ncu,full for both.",
        metavar="LIST",
        rich_help_panel=_RUN,
    ),
]
RequireCountersOption = Annotated[
    bool,
    typer.Option(
        "--require-counters",
        help="Exit with 1 if hardware counters (--counters ncu) are missing of a row that ran.",
        rich_help_panel=_RUN,
    ),
]
DtypeOption = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        help="Data types: fp16, bf16, fp32.",
        metavar="LIST",
        rich_help_panel=_KERNEL,
        show_default="fp16",
    ),
]
LayoutOption = Annotated[
    str | None,
    typer.Option(
        "--layout",
        help="Tensor layouts: bhsd, bshd.",
        metavar="LIST",
        rich_help_panel=_KERNEL,
        show_default="bhsd",
    ),
]
DirectionOption = Annotated[
    str | None,
    typer.Option(
        "--direction",
        help="Passes: fwd, bwd (what the forward pass leaves is given), fwd+bwd.",
        metavar="LIST",
        rich_help_panel=_KERNEL,
        show_default="fwd",
    ),
]
BlockOption = Annotated[
    str | None,
    typer.Option(
        "--block",
        help="Tiles, rows of Q by rows of K/V: 64x64,128x64, or auto.",
        metavar="LIST",
        rich_help_panel=_KERNEL,
        show_default="auto",
    ),
]
StagesOption = Annotated[
    str | None,
    typer.Option(
        "--stages",
        help="Depths of the K/V buffering: 1, 2, or auto.",
        metavar="LIST",
        rich_help_panel=_KERNEL,
        show_default="auto",
    ),
]
ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        "--preset",
        help="Axes from a preset (quick, default, fa1-figure2, paper-fa1, paper-fa2, paper-fa3) or a TOML file.",
        metavar="NAME|FILE",
        rich_help_panel=_RUN,
    ),
]
DeviceOption = Annotated[
    str,
    typer.Option(
        "--device",
        help="Where to run: auto, cuda, emulator or host.",
        metavar="NAME",
        rich_help_panel=_RUN,
    ),
]
GpuOption = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        help="Target GPU of tiles and predictions (see fa-bench gpus).",
        metavar="NAME",
        rich_help_panel=_RUN,
        show_default="the GPU here, else a100-sxm-80",
    ),
]
PeaksOption = Annotated[
    str,
    typer.Option(
        "--peaks",
        help="Whose peaks rooflines rest on: the data sheet's, or those of fa-bench doctor --peaks.",
        metavar="datasheet|measured",
        rich_help_panel=_RUN,
    ),
]
L2Option = Annotated[
    str,
    typer.Option(
        "--l2",
        help="What a timed launch finds in a GPU's L2 cache: nothing (cold), or what the same launch left (warm).",
        metavar="cold|warm",
        rich_help_panel=_RUN,
    ),
]
TimerOption = Annotated[
    str,
    typer.Option(
        "--timer",
        help="How launches on a GPU are timed: one by one (events), or replayed as a CUDA graph (graph).",
        metavar="events|graph",
        rich_help_panel=_RUN,
    ),
]
StrictTimerOption = Annotated[
    bool,
    typer.Option(
        "--strict-timer",
        help="A case that can't be timed as --timer asks fails; otherwise events time it, and its row says why.",
        rich_help_panel=_RUN,
    ),
]
CheckOption = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Look for races, missing waits, reads of what was never written, and more, in the emulator.",
        rich_help_panel=_RUN,
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        min=1,
        help="Threads of the emulator.",
        metavar="N",
        rich_help_panel=_RUN,
        show_default="all cores",
    ),
]


def folder(text: str) -> Path:
    """An option's folder; without this an empty name would be the current one."""
    if not text.strip():
        raise typer.BadParameter("A folder has a name.")
    return Path(text)


def file(text: str) -> Path:
    """An option's file."""
    if not text.strip():
        raise typer.BadParameter("A file has a name.")
    return Path(text)


OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        parser=folder,
        help="Folder for records.csv, traffic.csv, run.json and samples.jsonl.",
        metavar="DIR",
        rich_help_panel=_OUTPUT,
        show_default="./results/<run_id>",
    ),
]
FormatOption = Annotated[
    Format, typer.Option("--format", help="How data is written on stdout.", rich_help_panel=_OUTPUT)
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress and no notes on stderr.", rich_help_panel=_OUTPUT)
]
