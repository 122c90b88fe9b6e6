"""Runs as one HTML page: charts, what became of each row, where and how it was run; the file is all that it needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from fa_bench.comparison.runs import Run
from fa_bench.records import FAILED_STATUSES, STATUSES, Record, Source
from fa_bench.report.names import record_name
from fa_bench.report.page.charts import WORDS, heat_chart, line_chart, roof_chart
from fa_bench.report.page.figures import BYTES, SOURCES, Chart, Panel, Point, Row, panels
from fa_bench.report.page.roof import Roof, roofs
from fa_bench.report.page.svg import BASE_STYLE, WEB, colours, standalone
from fa_bench.report.page.tensors import Tensors, tensor_chart, tensors
from fa_bench.report.page.tiles import HeatMap, heat_maps
from fa_bench.report.records import counted_as_predicted, failures, status_counts
from fa_bench.report.tables import UNKNOWN, Column, Table
from fa_bench.sweep.manifest import Manifest
from fa_bench.units import format_error, format_int, format_ms

_KEY: Final[Mapping[Source, tuple[str, str]]] = {
    "model": (
        '<line class="line model" x1="0" x2="30" y1="7" y2="7" style="stroke:currentColor"/>',
        "<b>model</b>: a formula; no kernel ran",
    ),
    "emulated": (
        '<circle class="emulated" cx="15" cy="7" r="4.5"/>',
        "<b>emulated</b>: counted while the kernel's PTX ran on a CPU",
    ),
    "measured": (
        '<line class="line measured" x1="0" x2="30" y1="7" y2="7" style="stroke:currentColor"/>'
        '<path class="measured" d="M15 1.5L20.5 7 15 12.5 9.5 7Z"/>',
        "<b>measured</b>: by a clock or a counter of the device",
    ),
}


@dataclass(frozen=True, slots=True)
class PageRun:
    """A run that a page shows; ``manifest`` is None for a ``records.csv`` alone."""

    run: Run
    manifest: Manifest | None


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with what stands around it."""

    name: str
    title: str
    note: str
    svg: str
    table: Table


def rows_of(runs: Sequence[PageRun]) -> list[Row]:
    """The rows of all runs, with letters where there are several."""
    letters = [""] if len(runs) == 1 else [letter(i) for i in range(len(runs))]
    return [
        Row(record, name, run.run.traffic.get(record.case_id, ()))
        for name, run in zip(letters, runs, strict=True)
        for record in run.run.records
    ]


def letter(index: int) -> str:
    """What the run of this index is called: A, B, … Z, A1, …"""
    return chr(ord("A") + index % 26) + (str(index // 26) if index >= 26 else "")


def panel_figures(panel: Panel, colour: Mapping[str, str]) -> list[Figure]:
    """All charts of a panel, in the order of the page."""
    made = [
        Figure(chart.key, chart.title, chart.note, line_chart(chart, colour), chart_table(chart))
        for chart in panel.charts
    ]
    by_tensor = tensors(panel)
    if by_tensor is not None:
        made.append(_tensor_figure(by_tensor, colour))
    found = roofs(panel)
    if not isinstance(found, str):
        made += [_roof_figure(roof, colour) for roof in found]
    return made + [_heat_figure(heat) for heat in heat_maps(panel)]


def page(runs: Sequence[PageRun]) -> str:
    """The page of some runs; its style and its script are inside."""
    rows = rows_of(runs)
    colour = colours(row.record.impl for row in rows)
    body = [
        f"<h1>{escape(_heading(runs))}</h1>",
        f'<p class="soft">{escape(_summary(rows))}</p>',
        *(f"<p>{escape(note)}</p>" for run in runs for note in run.run.notes),
        _legend(rows, colour, runs),
        *(_panel_html(panel, colour) for panel in panels(rows)),
        _rows_html(rows),
        *(_run_html(i, run, len(runs)) for i, run in enumerate(runs)),
    ]
    return shell(f"fa-bench: {_heading(runs)}", body)


def shell(title: str, body: Iterable[str]) -> str:
    """A page around its content, with style and script inside; ``body`` is markup, ``title`` text."""
    parts = {
        "__TITLE__": escape(title),
        "__STYLE__": "".join(
            path.read_text(encoding="utf-8") for path in (BASE_STYLE, WEB / "chart.css", WEB / "page.css")
        ),
        "__SCRIPT__": (WEB / "page.js").read_text(encoding="utf-8"),
        "__BODY__": "\n".join(body),
    }
    html = (WEB / "page.html").read_text(encoding="utf-8")
    for place, part in parts.items():
        html = html.replace(place, part)
    return html


def pictures(runs: Sequence[PageRun]) -> dict[str, str]:
    """Every chart of the page as an SVG file, name -> text; a panel's number comes first where there are several."""
    rows = rows_of(runs)
    colour = colours(row.record.impl for row in rows)
    made = panels(rows)
    return {
        f"{f'{i}-' if len(made) > 1 else ''}{figure.name}.svg": standalone(figure.svg, f"{figure.title}; {panel.title}")
        for i, panel in enumerate(made, start=1)
        for figure in panel_figures(panel, colour)
    }


def _heading(runs: Sequence[PageRun]) -> str:
    return "Attention: " + ", ".join(run.run.path for run in runs)


def _summary(rows: Sequence[Row]) -> str:
    records = [row.record for row in rows]
    devices = ", ".join(dict.fromkeys(f"{record.device} ({record.backend})" for record in records))
    targets = ", ".join(dict.fromkeys(record.gpu for record in records if record.gpu))
    compared = [same for record in records if (same := counted_as_predicted(record)) is not None]
    equal = ""
    if compared:
        equal = f" Global bytes counted equal the model's in {sum(compared)} of {len(compared)} rows."
    target = f" Target GPU: {targets}." if targets else ""
    return f"{len(records)} rows: {status_counts(records)}. Ran on {devices}.{target}{equal}"


def _legend(rows: Sequence[Row], colour: Mapping[str, str], runs: Sequence[PageRun]) -> str:
    impls = dict.fromkeys(row.record.impl for row in rows)
    parts = [f'<span><i style="background:{colour[impl]}"></i>{escape(impl)}</span>' for impl in impls]
    if len(runs) > 1:
        parts += [f"<span><b>{letter(i)}</b> {escape(run.run.path)}</span>" for i, run in enumerate(runs)]
    parts += [f'<span><svg class="chart" viewBox="0 0 30 14" aria-hidden="true">{_KEY[source][0]}</svg><span>'
              f"{_KEY[source][1]}</span></span>" for source in SOURCES]  # fmt: skip
    return f'<div class="card key">{"".join(parts)}</div>'


def _panel_html(panel: Panel, colour: Mapping[str, str]) -> str:
    cards = [
        f'<div class="card"><h3>{escape(figure.title)}</h3><p class="soft">{escape(figure.note)}</p>{figure.svg}'
        f"<details><summary>The figures</summary>{table_html(figure.table)}</details></div>"
        for figure in panel_figures(panel, colour)
    ]
    found = roofs(panel)
    missing = [*panel.missing, *([found] if isinstance(found, str) else [])]
    tiles = (
        '<p class="soft">Several tiles ran: lines show the fastest of each length, without times the one that moves '
        "the fewest global bytes; the maps below show all.</p>"
        if panel.several_tiles
        else ""
    )
    absent = f'<p class="absent soft">{escape(" ".join(missing))}</p>' if missing else ""
    return f'<section><h2>{escape(panel.title)}</h2>{tiles}<div class="cards">{"".join(cards)}</div>{absent}</section>'


def chart_table(chart: Chart) -> Table:
    """The figures of a chart, one line per length and name, exact."""
    labels = dict.fromkeys(series.label for series in chart.series)
    there = [source for source in SOURCES if any(series.source == source for series in chart.series)]
    cells: dict[tuple[int, str, Source], str] = {}
    tiles: dict[tuple[int, str], str] = {}
    for series in chart.series:
        for point in series.points:
            cells[(point.seq, series.label, series.source)] = chart.unit.exact(point.value) + _interval(chart, point)
            tiles.setdefault((point.seq, series.label), point.tile)
    lines = sorted({seq for seq, _, _ in cells})
    rows = tuple(
        (format_int(seq), label, tiles[(seq, label)], *(cells.get((seq, label, source), UNKNOWN) for source in there))
        for seq in lines
        for label in labels
        if (seq, label) in tiles
    )
    floor = ", ".join(f"{format_int(seq)}: {chart.unit.exact(value)}" for seq, value in chart.floor)
    return Table(
        "",
        (Column("N", "right"), Column(""), Column("tile"), *(Column(WORDS[source], "right") for source in there)),
        rows,
        f"Compulsory: {floor}." if floor else "",
    )


def _interval(chart: Chart, point: Point) -> str:
    if point.low is None or point.high is None or point.low == point.high == point.value:
        return ""
    return f" ({chart.unit.exact(point.low)} to {chart.unit.exact(point.high)})"


def _roof_figure(roof: Roof, colour: Mapping[str, str]) -> Figure:
    predicted = any(track.source == "model" for track in roof.tracks)
    level = "DRAM" if roof.level == "dram" else "global memory"
    note = f"{roof.gpu.name}: data-sheet peaks, ridge at {roof.ridge:.4g} FLOP/B; small figures are N."
    if roof.level == "global":
        note += " Intensity on the bytes that instructions ask for: a point left of the roof is fed by L1 and L2."
    if predicted:
        note += " Dashed squares are predictions, the least time of the roofline, and no measurement."
    table = Table(
        "",
        (
            *(Column("N", "right"), Column(""), Column("tile"), Column("FLOP/B", "right"), Column("bytes")),
            *(Column("FLOP/s", "right"), Column("time")),
        ),
        tuple(
            (
                *(format_int(point.seq), track.label, point.tile, f"{point.intensity:.4g}", WORDS[point.bytes_source]),
                *(f"{point.flop_per_s:.4g}", "prediction" if track.source == "model" else "measured"),
            )
            for track in roof.tracks
            for point in track.points
        ),
    )
    return Figure(f"roofline-{roof.level}", f"Roofline at {level}", note, roof_chart(roof, colour), table)


def _tensor_figure(made: Tensors, colour: Mapping[str, str]) -> Figure:
    there = [source for source in SOURCES if any(source in bar.nbytes for part in made.breakdowns for bar in part.bars)]
    table = Table(
        "",
        (Column(""), Column("tensor"), Column("op"), *(Column(WORDS[source], "right") for source in there)),
        tuple(
            (
                *(part.label, bar.tensor, bar.op),
                *(BYTES.exact(bar.nbytes[source]) if source in bar.nbytes else UNKNOWN for source in there),
            )
            for part in made.breakdowns
            for bar in part.bars
        ),
    )
    note = "Global memory. Full bars were counted (their figure is beside them), dashed outlines are the model."
    title = f"Bytes by tensor, N = {format_int(made.seq)}"
    return Figure("tensors", title, note, tensor_chart(made, colour), table)


def _heat_figure(heat: HeatMap) -> Figure:
    table = Table(
        "",
        (Column("block_m", "right"), Column("block_n", "right"), Column("tile"), Column(WORDS[heat.source], "right")),
        tuple(
            (str(cell.block_m), str(cell.block_n), cell.tile, heat.unit.exact(cell.value))
            for cell in sorted(heat.cells, key=lambda cell: cell.value)
        ),
    )
    name = f"tiles-{heat.key}-{heat.title.partition(':')[0].replace(' ', '-')}-{heat.seq}-{heat.source}"
    note = f"{WORDS[heat.source].capitalize()}. Darker is more; the frame is around the least."
    return Figure(name, f"{heat.title}, N = {format_int(heat.seq)}", note, heat_chart(heat), table)


# --- rows and runs ----------------------------------------------------------------------------------------------------


def _rows_html(rows: Sequence[Row]) -> str:
    failed = sum(row.record.status in FAILED_STATUSES for row in rows)
    odd = [row for row in rows if row.record.status != "ok"]
    parts = [f'<p class="bad">{failed} failed.</p>' if failed else '<p class="ok">No row failed.</p>']
    differing = failures(row.record for row in rows if row.record.status == "ok")
    if differing:
        parts.append(f'<ul class="bad">{"".join(f"<li>{escape(sentence)}</li>" for sentence in differing)}</ul>')
    if odd:
        parts.append(table_html(_outcomes(odd)))
    parts.append(f"<details><summary>All {len(rows)} rows</summary>{table_html(_outcomes(rows))}</details>")
    return f'<section class="card"><h2>What became of the rows</h2>{"".join(parts)}</section>'


def _outcomes(rows: Iterable[Row]) -> Table:
    ordered = sorted(rows, key=lambda row: STATUSES.index(row.record.status))
    return Table(
        "",
        (
            *(Column("run"), Column("status"), Column("reason"), Column("implementation"), Column("case")),
            *(Column("backend"), Column("time", "right"), Column("error", "right")),
        ),
        tuple(_outcome(row.run, row.record) for row in ordered),
    )


def _outcome(run: str, record: Record) -> tuple[str, ...]:
    name = record_name(record)
    return (
        *(run, record.status, " ".join((record.status_reason or "").split()), name.impl, name.shape(), record.backend),
        UNKNOWN if record.time_ms is None else format_ms(record.time_ms),
        UNKNOWN if record.max_abs_err is None else format_error(record.max_abs_err),
    )


def _run_html(index: int, run: PageRun, count: int) -> str:
    name = f"{letter(index)}: {run.run.path}" if count > 1 else run.run.path
    manifest = run.manifest
    if manifest is None:
        return (
            f'<section class="card"><h2>{escape(name)}</h2><p>A records.csv alone: where and how it was run is not '
            "known.</p></section>"
        )
    pairs = _facts(manifest, run.run.records)
    table = Table("", (Column(""), Column("")), tuple(pairs))
    return (
        f'<section class="card"><h2>{escape(name)}</h2>{table_html(table)}<p>To repeat it:</p>'
        f"<pre>{escape(manifest.command)}</pre></section>"
    )


def _facts(manifest: Manifest, records: Iterable[Record]) -> list[tuple[str, str]]:
    """What is known of a run as a whole; what is not known is left out."""
    identity, environment = manifest.identity, manifest.environment
    packages = environment.get("packages") or {}
    states = dict.fromkeys(record.l2_state for record in records if record.l2_state)
    facts: list[tuple[str, Any]] = [
        ("run", manifest.run_id),
        ("started", manifest.created),
        ("finished", manifest.finished or "no: more cases were planned"),
        ("resumed", ", ".join(str(note["at"]) for note in manifest.resumed)),
        ("devices", ", ".join(f"{backend}: {device}" for backend, device in identity.devices.items())),
        ("target GPU", manifest.gpu.get("name") or identity.gpu),
        ("L2 before a launch", ", ".join(states)),
        ("fa-bench", identity.tool_version),
        ("git commit", environment.get("git_commit")),
        ("NVRTC", identity.nvrtc_version),
        ("driver", environment.get("driver")),
        ("Python", environment.get("python")),
        ("platform", environment.get("platform")),
        ("CPU", environment.get("cpu")),
        ("CPUs", environment.get("cpu_count")),
        *((name, packages[name]) for name in sorted(packages)),
    ]
    return [(name, str(value)) for name, value in facts if value not in (None, "")]


def table_html(table: Table) -> str:
    """A table in HTML, without the columns that are empty throughout."""
    keep = [i for i in range(len(table.columns)) if any(row[i] for row in table.rows)]
    columns = [table.columns[i] for i in keep]
    head = "".join(f"<th{_side(column)}>{escape(column.title)}</th>" for column in columns)
    lines = "".join(
        "<tr>" + "".join(f"<td{_side(table.columns[i], row[i])}>{escape(row[i])}</td>" for i in keep) + "</tr>"
        for row in table.rows
    )
    shown = f"<thead><tr>{head}</tr></thead>" if any(column.title for column in columns) else ""
    note = f'<p class="soft">{escape(table.note)}</p>' if table.note else ""
    return f'<div class="wide"><table>{shown}<tbody>{lines}</tbody></table></div>{note}'


def _side(column: Column, cell: str = "") -> str:
    kinds = [*(["left"] if column.align == "left" else []), *(["long"] if len(cell) > 40 else [])]
    return f' class="{" ".join(kinds)}"' if kinds else ""
