"""``fa-bench report``: a run as a page, as pictures, or as a plot in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fa_bench.cli.options import QuietOption, file, folder
from fa_bench.cli.output import Format, Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fa_bench.report.page.document import PageRun


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run folders, or their records.csv.", metavar="DIR...", show_default=False),
    ],
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", parser=file, help="Where the page goes.", metavar="FILE", show_default="report.html in DIR"
        ),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(
            "--svg", parser=folder, help="Write each chart as an SVG file into this folder instead.", metavar="DIR"
        ),
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option(
            "--png", parser=folder, help="The same as PNG files; takes rsvg-convert (librsvg).", metavar="DIR"
        ),
    ] = None,
    plot: Annotated[
        bool, typer.Option("--plot", help="Draw time, without times bytes, in the terminal instead.")
    ] = False,
    quiet: QuietOption = False,
) -> int:
    """Show runs: one page with charts of bytes, time and error, rooflines, tiles, and how to repeat them.

    The page needs nothing but itself: no network, no other file. Of several runs each has a letter.
    """
    from fa_bench.cli.pictures import rasteriser

    output = Output(Format.TABLE, quiet)
    program = None if png is None else rasteriser("--svg takes nothing.")
    read = [_read(path) for path in runs]
    for run in read:
        for note in run.run.notes:
            output.warn(note)
    if plot:
        _draw(output, read)
    if svg is not None:
        _write_pictures(output, read, svg)
    if png is not None and program is not None:
        _write_pictures(output, read, png, program)
    if html is not None or not (plot or svg or png):
        _write_page(output, read, html or _place(runs[0]))
    return 0


def _read(path: Path) -> PageRun:
    from fa_bench.comparison.runs import load
    from fa_bench.report.page.document import PageRun
    from fa_bench.sweep.journal import MANIFEST_NAME
    from fa_bench.sweep.manifest import Manifest

    run = load(path)
    return PageRun(run, Manifest.read(path / MANIFEST_NAME) if path.is_dir() else None)


def _place(first: Path) -> Path:
    return (first if first.is_dir() else first.parent) / "report.html"


def _draw(output: Output, runs: Sequence[PageRun]) -> None:
    """One plot per panel: time where there is one, else global bytes, else the first chart there is."""
    import shutil

    from fa_bench.report.page.document import rows_of
    from fa_bench.report.page.figures import panels
    from fa_bench.report.page.terminal import plot

    width = max(40, min(shutil.get_terminal_size().columns, 120))
    drawn = []
    for panel in panels(rows_of(runs)):
        by_key = {chart.key: chart for chart in panel.charts}
        keys = [key for key in ("time", "global-bytes", *by_key) if key in by_key]
        if keys:
            drawn.append(plot(by_key[keys[0]], panel.title, width))
        else:
            output.warn(f"{panel.title}: {' '.join(panel.missing)}")
    output.write("\n".join(drawn))


def _write_page(output: Output, runs: Sequence[PageRun], path: Path) -> None:
    from fa_bench.cli.pictures import write_text
    from fa_bench.report.page.document import page

    write_text(path, page(runs), "--html")
    output.say(f"The page is {path}.")


def _write_pictures(output: Output, runs: Sequence[PageRun], folder: Path, rasteriser: str = "") -> None:
    """Every chart as SVG, or with a rasteriser as PNG."""
    from fa_bench.cli.pictures import make_folder, write_png, write_text
    from fa_bench.report.page.document import pictures

    option = "--png" if rasteriser else "--svg"
    make_folder(folder, option)
    made = pictures(runs)
    for name, text in made.items():
        if rasteriser:
            write_png(rasteriser, text, (folder / name).with_suffix(".png"))
        else:
            write_text(folder / name, text, option)
    output.say(f"{len(made)} charts are in {folder}.")
