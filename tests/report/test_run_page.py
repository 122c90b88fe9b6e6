"""What the report of a run draws, from rows that are written down here, and that the page needs only itself."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from fa_bench.comparison.runs import load
from fa_bench.records import Record
from fa_bench.report.page import scales
from fa_bench.report.page.charts import heat_chart, line_chart, roof_chart
from fa_bench.report.page.document import PageRun, letter, page, pictures, rows_of
from fa_bench.report.page.figures import Chart, Panel, Row, panels
from fa_bench.report.page.roof import Roof, roofs
from fa_bench.report.page.scales import LogScale, binary_ticks, decimal_ticks, length_ticks, spread
from fa_bench.report.page.svg import BOTTOM, TOP, colours
from fa_bench.report.page.tensors import tensor_chart, tensors
from fa_bench.report.page.terminal import plot
from fa_bench.report.page.tiles import heat_maps
from fa_bench.sweep.journal import MANIFEST_NAME
from fa_bench.sweep.manifest import Manifest

sys.path.insert(0, str(Path(__file__).parents[1] / "comparison"))

from sample_runs import failed, manifest, moved, record, timed, write

SVG = "{http://www.w3.org/2000/svg}"
COLOUR = colours(["standard", "flash1", "flash2", "torch-flash"])


def counted(seq: int, nbytes: int, **fields: Any) -> Record:
    """A row of the emulator: ``nbytes`` read and none written, by the model and by the count."""
    counts = {
        f"global_{way}_bytes_{source}": nbytes if way == "read" else 0
        for way in ("read", "write")
        for source in ("model", "emulated")
    }
    shape = {"case_id": f"{seq}-{nbytes}", "backend": "emulator", "seq_q": seq, "seq_kv": seq}
    return record(**(counts | shape | fields))


def only(records: Sequence[Record]) -> Panel:
    (panel,) = panels([Row(row) for row in records])
    return panel


def chart(panel: Panel, key: str) -> Chart:
    (found,) = (made for made in panel.charts if made.key == key)
    return found


def drawn(svg: str) -> ET.Element:
    return ET.fromstring(svg)


def of_class(svg: str, kind: str) -> list[ET.Element]:
    return [element for element in drawn(svg).iter() if kind in element.get("class", "").split()]


# --- what is drawn ----------------------------------------------------------------------------------------------------


def test_each_source_has_its_own_series() -> None:
    rows = [
        counted(1024, 100, dram_read_bytes_measured=7, dram_write_bytes_measured=3),
        counted(2048, 400, global_write_bytes_emulated=20),
    ]
    panel = only(rows)
    series = {made.source: [(p.seq, p.value) for p in made.points] for made in chart(panel, "global-bytes").series}
    assert series == {"model": [(1024, 100), (2048, 400)], "emulated": [(1024, 100), (2048, 420)]}
    (dram,) = chart(panel, "dram-bytes").series
    assert (dram.source, [point.value for point in dram.points]) == ("measured", [10])


def test_half_a_sum_is_no_figure() -> None:
    panel = only([counted(1024, 100, global_write_bytes_emulated=None)])
    assert {series.source for series in chart(panel, "global-bytes").series} == {"model"}


@pytest.mark.parametrize("status", ["wrong_result", "error", "interrupted"])
def test_of_a_row_that_is_not_ok_only_the_prediction_is_drawn(status: str) -> None:
    row = timed((1.0, 1.0, 1.0), status=status, status_reason="Off", global_read_bytes_model=100, roofline_ms=0.5)
    row = dataclasses.replace(row, global_write_bytes_model=0, global_read_bytes_measured=9, mem_peak_bytes=4)
    row = dataclasses.replace(row, global_write_bytes_measured=9, flops_nominal=10)
    panel = only([row])
    assert [made.key for made in panel.charts] == ["global-bytes"]
    assert {series.source for series in panel.charts[0].series} == {"model"}


def test_what_is_missing_is_said_once_each() -> None:
    panel = only([counted(1024, 100)])
    assert panel.missing == (
        "L2: no row has these bytes (--counters full counts them).",
        "DRAM: no row has these bytes (--counters full counts them).",
        "Time and FLOP/s: no row has a time; the emulator never states one.",
        "Memory: no row has a peak.",
    )


def test_a_time_has_its_quintiles_and_the_roofline_beside_it() -> None:
    # 0.9 … 1.1: p20 and p80 of five values are the second and the fourth, less and more 0.2 of a step.
    row = timed((0.9, 0.95, 1.0, 1.05, 1.1), roofline_ms=0.5, flops_nominal=2_000_000_000)
    panel = only([row])
    model, measured = chart(panel, "time").series
    assert (model.source, model.points[0].value) == ("model", 0.5)
    (point,) = measured.points
    assert (point.low, point.value, point.high) == (row.time_p20_ms, 1.0, row.time_p80_ms)
    # 2 GFLOP in 1 ms are 2 TFLOP/s; the shortest time makes the highest rate.
    (rate,) = chart(panel, "flops").series[1].points
    assert rate.value == pytest.approx(2e12)
    assert rate.high == pytest.approx(2e12 / row.time_p20_ms)  # type: ignore[operator]  # it has a time


def test_of_several_tiles_the_fastest_is_drawn_and_without_times_that_of_fewest_bytes() -> None:
    small = counted(1024, 400, block_m=64, case_id="small")
    large = counted(1024, 100, block_m=128, case_id="large")
    panel = only([small, large])
    assert panel.several_tiles
    assert [row.record.case_id for row in panel.chosen] == ["large"]
    quick = timed((1.0,) * 6, block_m=64, case_id="quick", global_read_bytes_model=400, global_write_bytes_model=0)
    slow = timed((2.0,) * 6, block_m=128, case_id="slow", global_read_bytes_model=100, global_write_bytes_model=0)
    assert [row.record.case_id for row in only([slow, quick]).chosen] == ["quick"]
    wrong = dataclasses.replace(quick, status="wrong_result", status_reason="Off")
    assert [row.record.case_id for row in only([wrong, slow]).chosen] == ["slow"]
    fewer = dataclasses.replace(large, status="wrong_result", status_reason="Off")
    assert [row.record.case_id for row in only([fewer, small]).chosen] == ["small"]


def test_batches_that_follow_the_length_are_one_line() -> None:
    panel = only([counted(1024, 100, batch=4), counted(2048, 200, batch=2)])
    assert [point.seq for point in chart(panel, "global-bytes").series[0].points] == [1024, 2048]
    assert "B=" not in panel.title


@pytest.mark.parametrize("other", [{"batch": 4}, {"heads_q": 8}, {"head_dim": 128}, {"causal": True}, {"gpu": "l4"}])
def test_any_other_fact_makes_a_panel_of_its_own(other: dict[str, Any]) -> None:
    made = panels([Row(counted(1024, 100)), Row(counted(1024, 200, **other))])
    assert [len(panel.rows) for panel in made] == [1, 1]
    assert made[0].title != made[1].title


def test_backends_are_named_where_there_are_several() -> None:
    rows = [
        timed((1.0,) * 6, impl="torch-math", backend="cuda", case_id="a"),
        timed((9.0,) * 6, impl="torch-math", backend="host", case_id="b", time_source="host-clock"),
    ]
    labels = [series.label for series in chart(only(rows), "time").series]
    assert labels == ["torch-math cuda", "torch-math host"]


# --- axes -------------------------------------------------------------------------------------------------------------


def test_a_logarithmic_scale_has_the_geometric_mean_in_the_middle() -> None:
    scale = LogScale(1, 10_000, 0, 80)
    assert [scale(value) for value in (1, 100, 1000, 10_000)] == pytest.approx([0, 40, 60, 80])
    assert LogScale(5, 5, 0, 80)(5) == 40


@pytest.mark.parametrize(("low", "high"), [(1, 2), (0.3, 5e9), (1e-9, 1e-8), (700, 710)])
def test_ticks_lie_inside_and_are_few(low: float, high: float) -> None:
    for ticks in (binary_ticks(low, high, 6), decimal_ticks(low, high, 6)):
        assert len(ticks) <= 6
        assert all(low <= tick <= high for tick in ticks)
        assert ticks == sorted(set(ticks))


def test_the_longest_length_is_always_written() -> None:
    assert length_ticks(range(1, 101), 4) == [25, 50, 75, 100]
    assert length_ticks([512, 128, 128], 7) == [128, 512]


@pytest.mark.parametrize("wanted", [[5, 5, 5], [49, 50, 48], [0, 50], [30]])
def test_names_do_not_overlap(wanted: list[float]) -> None:
    places = spread(wanted, 12, 0, 50)
    ordered = sorted(places)
    assert all(b - a >= 12 for a, b in pairwise(ordered))
    assert ordered[0] >= 0
    assert ordered[-1] <= 50
    # The order stays.
    assert sorted(range(len(wanted)), key=places.__getitem__) == sorted(range(len(wanted)), key=wanted.__getitem__)


# --- charts -----------------------------------------------------------------------------------------------------------


def test_sources_differ_in_more_than_colour() -> None:
    rows = [counted(seq, 100 * seq, compulsory_read_bytes=seq, compulsory_write_bytes=seq) for seq in (512, 1024)]
    rows = [
        dataclasses.replace(row, global_read_bytes_measured=90 * row.seq_q, global_write_bytes_measured=0)
        for row in rows
    ]
    svg = line_chart(chart(only(rows), "global-bytes"), COLOUR)
    assert [element.tag for element in of_class(svg, "model")] == [f"{SVG}polyline"]
    assert [element.tag for element in of_class(svg, "emulated")] == 2 * [f"{SVG}circle"]
    assert [element.tag for element in of_class(svg, "measured")] == [f"{SVG}polyline", *2 * [f"{SVG}path"]]
    assert len(of_class(svg, "floor")) == 1
    style = (Path(scales.__file__).parent / "web" / "chart.css").read_text(encoding="utf-8")
    assert "stroke-dasharray" in style.split(".line.model {")[1].split("}")[0]


def test_more_bytes_lie_higher_and_every_mark_says_its_exact_figure() -> None:
    svg = line_chart(chart(only([counted(512, 1000), counted(1024, 4000)]), "global-bytes"), COLOUR)
    marks = {}
    for mark in of_class(svg, "mark"):
        x, y = map(float, re.findall(r"[\d.]+", mark.get("transform", "")))
        (title,) = mark.findall(f"{SVG}title")
        marks[title.text] = (x, y)
    places = [
        marks[next(text for text in marks if f"N = {n}" in text and "emulated" in text)] for n in ("512", "1,024")
    ]
    assert places[0][0] < places[1][0]
    assert TOP < places[1][1] < places[0][1] < BOTTOM
    assert "flash2 128x64/1, N = 1,024\nemulated: 4,000 B\n4,000 B read, 0 B written" in marks


def test_an_interval_is_drawn() -> None:
    row = counted(
        512, 1000, dram_read_bytes_emulated=600, dram_write_bytes_emulated=0, dram_read_bytes_emulated_low=500,
        dram_write_bytes_emulated_low=0, dram_read_bytes_emulated_high=700, dram_write_bytes_emulated_high=10,
    )  # fmt: skip
    made = chart(only([row]), "dram-bytes")
    assert (made.series[0].points[0].low, made.series[0].points[0].high) == (500, 710)
    assert len(of_class(line_chart(made, COLOUR), "whisker")) == 1


def test_a_long_name_widens_the_chart() -> None:
    widths = [
        float(drawn(line_chart(chart(only([counted(512, 9, impl=name)]), "global-bytes"), colours([name])))
              .get("viewBox", "").split()[2])
        for name in ("flash2", "a-kernel-of-mine-with-a-name")
    ]  # fmt: skip
    assert widths[0] == 400
    assert widths[1] > 500


def test_an_implementation_has_one_colour_wherever_it_stands() -> None:
    assert colours(["flash2", "b", "a"]) == colours(["a", "b"])
    assert len(set(colours([f"impl{i}" for i in range(7)]).values())) == 10


# --- rooflines --------------------------------------------------------------------------------------------------------


def roofline(records: Sequence[Record]) -> Roof:
    found = roofs(only(records))
    assert not isinstance(found, str), found
    return found[0]


DRAM = {"dram_read_bytes_model": 8_000_000, "dram_write_bytes_model": 2_000_000, "flops_nominal": 10**9}


def test_a_row_lies_at_its_flops_per_byte_and_per_second() -> None:
    """1 GFLOP over 10 MB are 100 FLOP/B; in 1 ms they are 1 TFLOP/s. An A100 has 312 TFLOP/s and 2039 GB/s."""
    roof = roofline([timed((1.0,) * 6, **DRAM)])
    assert (roof.level, roof.peak, roof.bandwidth) == ("dram", 312e12, 2039e9)
    assert roof.ridge == pytest.approx(153.02, abs=0.01)
    assert roof.bound(10) == pytest.approx(20.39e12)
    assert roof.bound(1000) == 312e12
    (track,) = roof.tracks
    assert track.source == "measured"
    assert (track.points[0].intensity, track.points[0].flop_per_s) == (100, pytest.approx(1e12))
    assert len(of_class(roof_chart(roof, COLOUR), "measured")) == 1


def test_without_a_time_a_row_is_a_prediction_and_says_so() -> None:
    roof = roofline([record(roofline_ms=0.01, **DRAM)])
    (track,) = roof.tracks
    assert track.source == "model"
    svg = roof_chart(roof, COLOUR)
    assert [element.tag for element in of_class(svg, "model")] == [f"{SVG}rect"]
    assert of_class(svg, "measured") == []
    assert "a prediction" in svg


def test_measured_bytes_come_before_emulated_ones_and_those_before_the_models() -> None:
    emulated = {"dram_read_bytes_emulated": 5_000_000, "dram_write_bytes_emulated": 0}
    measured = {"dram_read_bytes_measured": 4_000_000, "dram_write_bytes_measured": 0}
    found = [
        roofline([record(roofline_ms=1.0, **DRAM, **more)]).tracks[0].points[0]
        for more in ({}, emulated, emulated | measured)
    ]
    assert [(point.bytes_source, point.intensity) for point in found] == [
        ("model", 100), ("emulated", 200), ("measured", 250),
    ]  # fmt: skip


def test_a_cpu_is_not_held_against_the_gpus_roof() -> None:
    found = roofs(only([timed((1.0,) * 6, backend="host", time_source="host-clock", **DRAM)]))
    assert found == "Roofline: no row has bytes together with a time or a least time."


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"gpu": "abacus"}, "abacus"), ({"gpu": None}, "no target GPU"), ({"gpu": "t4", "dtype": "bf16"}, "bf16")],
)
def test_why_there_is_no_roofline(fields: dict[str, Any], said: str) -> None:
    found = roofs(only([record(roofline_ms=1.0, **DRAM, **fields)]))
    assert isinstance(found, str)
    assert said in found


# --- tiles and tensors ------------------------------------------------------------------------------------------------


def test_a_map_has_a_cell_per_tile_and_a_frame_around_the_least() -> None:
    rows = [
        counted(512, nbytes, block_m=m, block_n=n, stages=stages, case_id=f"{m}{n}{stages}")
        for m, n, stages, nbytes in ((64, 32, 1, 900), (64, 64, 1, 500), (128, 32, 1, 700), (128, 32, 2, 300))
    ]
    (heat,) = heat_maps(only(rows))
    assert heat.source == "emulated"
    assert {(cell.block_m, cell.block_n): cell.value for cell in heat.cells} == {
        (64, 32): 900, (64, 64): 500, (128, 32): 300,
    }  # fmt: skip
    svg = heat_chart(heat)
    assert len(of_class(svg, "cell")) == 3
    assert len(of_class(svg, "least")) == 1
    assert "flash2 128x32/2\nemulated: 300 B" in svg


def test_cells_that_are_alike_have_no_least() -> None:
    rows = [counted(512, 500, block_m=m, case_id=str(m)) for m in (64, 128)]
    (heat,) = heat_maps(only(rows))
    assert of_class(heat_chart(heat), "least") == []


def test_one_tile_makes_no_map() -> None:
    assert heat_maps(only([counted(512, 500), counted(1024, 900)])) == ()


def test_bytes_of_a_tensor_are_summed_over_kernels_at_the_longest_length() -> None:
    lines = (
        moved("Q", "read", 64), moved("Q", "read", 32), moved("Q", "read", 96, source="emulated"),
        moved("Q", "read", 5, level="l2", source="emulated"), moved("O", "write", 32),
    )  # fmt: skip
    rows = [Row(counted(1024, 100), "", lines), Row(counted(512, 50), "", (moved("Q", "read", 1),))]
    found = tensors(panels(rows)[0])
    assert found is not None
    assert found.seq == 1024
    (breakdown,) = found.breakdowns
    assert [(bar.tensor, bar.op, dict(bar.nbytes)) for bar in breakdown.bars] == [
        ("Q", "read", {"model": 96, "emulated": 96}),
        ("O", "write", {"model": 32}),
    ]
    svg = tensor_chart(found, COLOUR)
    assert (len(of_class(svg, "full")), len(of_class(svg, "outline"))) == (1, 2)
    assert tensors(only([counted(512, 50)])) is None


def test_what_a_failed_row_counted_is_no_bar() -> None:
    lines = (moved("Q", "read", 64), moved("Q", "read", 99, source="emulated"))
    row = Row(counted(1024, 100, status="wrong_result", status_reason="Off"), "", lines)
    found = tensors(panels([row])[0])
    assert found is not None
    assert [dict(bar.nbytes) for bar in found.breakdowns[0].bars] == [{"model": 64}]


def test_what_hardware_counted_of_all_tensors_is_no_bar_of_one() -> None:
    lines = (moved("Q", "read", 64), moved("all", "read", 64, source="measured"))
    found = tensors(panels([Row(counted(1024, 100), "", lines)])[0])
    assert found is not None
    assert [(bar.tensor, dict(bar.nbytes)) for bar in found.breakdowns[0].bars] == [("Q", {"model": 64})]


def test_any_name_can_stand_in_a_chart() -> None:
    """A kernel of the user's is named after its file."""
    rows = [
        counted(512, 9, impl="a<b&c", roofline_ms=1.0, flops_nominal=9, block_m=m, case_id=str(m)) for m in (64, 128)
    ]
    panel = panels([Row(row, "", (moved("<Q>", "read", 64),)) for row in rows])[0]
    colour = colours(["a<b&c"])
    found, parts = roofs(panel), tensors(panel)
    assert not isinstance(found, str)
    assert parts is not None
    charts = [line_chart(panel.charts[0], colour), roof_chart(found[0], colour), tensor_chart(parts, colour)]
    for svg in (*charts, *map(heat_chart, heat_maps(panel))):
        assert "a<b&c" in "".join(element.text or "" for element in drawn(svg).iter())


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> PageRun:
    return read(write(
        tmp_path / "a <b>",
        [
            counted(512, 1000, compile_ms=1.0, roofline_ms=0.1, flops_nominal=10**6),
            counted(1024, 4000, global_read_bytes_emulated=4032),
            failed("error", case_id="f", impl="torch-flash", status_reason="illegal <address> & more"),
            failed("oom", case_id="o", status_reason="too large"),
        ],
        traffic=[moved("Q", "read", 64, case_id="1024-4000")],
    ))  # fmt: skip


def read(folder: Path) -> PageRun:
    return PageRun(load(folder), Manifest.read(folder / MANIFEST_NAME))


class Balanced(HTMLParser):
    """Collects what is open, and what a page would fetch."""

    VOID = ("meta", "br", "link", "img", "input")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.fetched += [f"{name}={value}" for name, value in attrs if name in ("src", "href", "srcset", "action")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_and_fetches_nothing(run: PageRun) -> None:
    html = page([run])
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    assert parser.fetched == []
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|__[A-Z]+__", html)
    assert set(re.findall(r"https?://[^\"' <]+", html)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in html


def test_what_the_page_says(run: PageRun) -> None:
    parser = Balanced()
    parser.feed(page([run]))
    text = " ".join(parser.text.split())
    assert "4 rows: 2 ok, 1 error, 1 oom." in text
    # 4032 bytes counted where 4000 were predicted.
    assert "Global bytes counted equal the model's in 1 of 2 rows." in text
    assert "flash2 128x64/1, 1k fp16 D=64 full bhsd B=1 H=1: the bytes counted are not those of the model." in text
    assert "1 failed." in text
    assert "illegal <address> & more" in text
    assert "too large" in text
    assert "To repeat it:fa-bench sweep --out a <b>" in text
    assert "550.54" in text
    assert "no row has a time; the emulator never states one" in text


def test_every_figure_stands_in_a_table_for_those_without_javascript(run: PageRun) -> None:
    html = page([run])
    tables = "".join(re.findall(r"<details>.*?</details>", html))
    for figure in ("1,000 B", "4,000 B", "4,032 B", "64 B"):
        assert f">{figure}" in tables
    assert html.count('<svg class="chart" viewBox="0 0 400') == html.count("<summary>The figures")


def test_runs_have_letters(run: PageRun, tmp_path: Path) -> None:
    other = read(write(tmp_path / "other", [counted(512, 900)]))
    labels = {series.label for panel in panels(rows_of([run, other])) for series in panel.charts[0].series}
    assert {"flash2 A", "flash2 B"} <= labels
    assert [letter(i) for i in (0, 25, 26)] == ["A", "Z", "A1"]
    html = page([run, other])
    assert "<h2>A: " in html
    assert "<h2>B: " in html


def test_a_file_alone_has_no_environment(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", [counted(512, 900)])
    html = page([PageRun(load(folder / "records.csv"), None)])
    assert "A records.csv alone" in html


def test_what_is_torn_stands_on_the_page(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", [counted(512, 900)])
    with (folder / "records.csv").open("a", encoding="utf-8") as file:
        file.write("half a row")
    assert "the last row is cut off and left out" in page([read(folder)])


def test_an_unfinished_run_says_so(run: PageRun) -> None:
    assert "no: more cases were planned" in page([dataclasses.replace(run, manifest=manifest(finished=False))])


def test_pictures_stand_alone(run: PageRun) -> None:
    made = pictures([run])
    assert {"global-bytes.svg", "tensors.svg", "error.svg"} <= set(made)
    for text in made.values():
        root = ET.fromstring(text)
        assert root.tag == f"{SVG}svg"
        assert root.find(f"{SVG}title") is not None
        assert "var(" not in text
        assert "currentColor" not in text or "color:#" in text


# --- the terminal -----------------------------------------------------------------------------------------------------


def test_a_plot_fits_and_has_a_mark_where_a_figure_is() -> None:
    rows = [counted(seq, 100 * seq * seq) for seq in (512, 1024, 2048)]
    rows += [counted(seq, 10 * seq * seq, impl="flash1") for seq in (512, 1024, 2048)]
    text = plot(chart(only(rows), "global-bytes"), "fp16", 60)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 60
    canvas = [line[12:] for line in lines[1:17]]
    marks = [(line.index("o"), row) for row, line in enumerate(canvas) if "o" in line]
    # The first column but one, the middle, the last but one; equal steps upwards in both logarithms.
    assert [x for x, _ in sorted(marks)] == [1, 23, 45]
    heights = [y for _, y in sorted(marks)]
    assert heights[0] > heights[1] > heights[2]
    assert abs((heights[0] - heights[1]) - (heights[1] - heights[2])) <= 1
    assert "o flash2   x flash1" in text
    assert "marks: emulated" in text


def test_a_plot_draws_a_prediction_with_dots_only() -> None:
    row = counted(512, 1000, global_read_bytes_emulated=None, global_write_bytes_emulated=None)
    rows = [row, dataclasses.replace(row, seq_q=1024, seq_kv=1024, case_id="x")]
    text = plot(chart(only(rows), "global-bytes"), "fp16", 60)
    canvas = "".join(line[12:] for line in text.splitlines()[1:17])
    assert set(canvas) - {" "} <= {chr(0x2800 + dots) for dots in range(256)}
    assert len(set(canvas)) > 1
    assert "marks" not in text
