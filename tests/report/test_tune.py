"""A tuning as tables, maps, a page and a picture."""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tuning"))
from made_tiles import CountingBackend, wrong

from fa_bench import algorithms
from fa_bench.backends.base import RunResult
from fa_bench.cases import AttentionShape, Case
from fa_bench.errors import Unsupported
from fa_bench.model import gpus
from fa_bench.report.page.charts import heat_chart
from fa_bench.report.tune import reasons, rules_table, top_table, tune_document, tune_rows
from fa_bench.report.tune_maps import heat_maps, map_table
from fa_bench.report.tune_page import tune_page, tune_picture
from fa_bench.tuning.counts import Trial, trial
from fa_bench.tuning.result import Tuning
from fa_bench.tuning.run import Question, tune
from fa_bench.units import format_ratio

GPU = gpus.get("a100")
FLASH2 = algorithms.get("flash2")
ASKED = Question(Case("flash2", AttentionShape(4, 16, 16, 4096, 4096, 128)), FLASH2, GPU, (1, 2))


def tuned(backend: CountingBackend | None = None) -> Tuning:
    used = backend or CountingBackend()

    def attempt(cases: Sequence[Case]) -> Generator[Trial, None, None]:
        return (trial(case, FLASH2, used, GPU) for case in cases)

    return tune(ASKED, attempt)


@pytest.fixture(scope="module")
def tuning() -> Tuning:
    return tuned()


def test_the_recommendation_has_its_reasons(tuning: Tuning) -> None:
    said = reasons(tuning)
    best = tuning.ranking.best
    assert best is not None
    assert said[0].startswith(f"Recommended: {best.tile}/{best.tile.stages} with {best.tile.num_warps} warps.")
    assert said[1].startswith("Predicted, not measured: ")


def test_the_tile_that_moves_least_is_set_against_the_recommendation(tuning: Tuning) -> None:
    """256 rows of Q read K and V half as often as 128; here they are recommended or it is said why they are not."""
    best, fewest = tuning.ranking.best, tuning.ranking.fewest_bytes
    assert best is not None and fewest is not None
    assert (fewest.tile.block_m, fewest.global_bytes < best.global_bytes) == (256, best.tile.block_m != 256)
    assert any("asks for" in sentence and "but" in sentence for sentence in reasons(tuning)) == (fewest != best)


def test_a_rule_has_its_distance_from_the_recommendation(tuning: Tuning) -> None:
    table = rules_table(tuning)
    (square,) = (row for row in table.rows if row[0] == "√(M/4d)")
    best = tuning.ranking.best
    assert best is not None
    # Q, O and LSE are 129 MiB; K and V 128 MiB per tile of Q, and a slice of 4096 rows has 256 of 16.
    ratio = format_ratio((129 + 256 * 128) * 2**20 / best.global_bytes)
    # Each counts the same here, and with two stages only the first K of a CTA is waited for.
    assert square[1:3] == ("12.8 x 12.8", "16x16/2")
    assert square[4:] == ("32.1 GiB", ratio)
    assert "83,456 elements, 163 KiB" in table.note


def test_tables_fit_80_columns(tuning: Tuning) -> None:
    for table in (top_table(tuning), map_table(tuning, "t"), rules_table(tuning)):
        lines = [[column.title for column in table.columns], *table.rows]
        width = sum(max(map(len, cells)) for cells in zip(*lines, strict=True)) + len(table.columns)
        assert width <= 80, table.title


def test_rows_are_tiles_best_first_then_those_that_cannot_run(tuning: Tuning) -> None:
    rows = tune_rows(tuning)
    assert [row["place"] for row in rows[:3]] == [1, 2, 3]
    assert sum(bool(row["recommended"]) for row in rows) == 1
    refused = [row for row in rows if str(row["status"]).startswith("no_")]
    assert len(refused) == len(tuning.refused) > 0
    assert {row["status"] for row in refused} == {"no_smem", "no_registers"}
    assert all("has 163 KiB" in str(row["reason"]) for row in refused if row["status"] == "no_smem")


def test_without_a_gpu_no_row_has_a_time(tuning: Tuning) -> None:
    assert {row.get("time_ms") for row in tune_rows(tuning)} == {None}
    assert "time" not in {heat.key for heat in heat_maps(tuning)}
    assert tune_document(tuning)["basis"] == "prediction"


def test_what_a_map_has_no_figure_for_says_why(tuning: Tuning) -> None:
    heat = next(heat for heat in heat_maps(tuning) if heat.key == "global")
    assert [(blank.block_m, blank.block_n, blank.word) for blank in heat.blanks] == [
        (256, 128, "regs"),
        (256, 256, "smem"),
    ]
    assert len(heat.cells) == 23
    chart = heat_chart(heat)
    assert chart.count('class="blank"') == 2
    assert chart.count('class="least"') == 1
    assert "the largest that fits is" in chart


def test_the_frame_is_around_the_recommendation_on_every_map(tuning: Tuning) -> None:
    best = tuning.ranking.best
    assert best is not None
    assert {heat.framed for heat in heat_maps(tuning)} == {(best.tile.block_m, best.tile.block_n)}


def test_a_map_of_zeros_is_drawn(tuning: Tuning) -> None:
    spills = next(heat for heat in heat_maps(tuning) if heat.key == "spills")
    assert {cell.value for cell in spills.cells} == {0.0}
    assert "fill-opacity:0.060" in heat_chart(spills)
    mixed = replace(spills, cells=(replace(spills.cells[0], value=8.0), *spills.cells[1:]))
    # By difference: the only one above zero is the darkest.
    assert heat_chart(mixed).count("fill-opacity:0.500") == 1


def test_the_page_needs_nothing_but_itself(tuning: Tuning) -> None:
    html = tune_page(tuning, "fa-bench tune --head-dim 128")
    assert not re.search(r"(src|href)=|url\(|@import|https?://(?!www\.w3\.org)", html)
    assert "fa-bench tune --head-dim 128" in html
    assert "Recommended: " in html
    assert html.count("<svg") == len(heat_maps(tuning))


def test_the_picture_holds_every_map(tuning: Tuning) -> None:
    root = ET.fromstring(tune_picture(tuning))
    inner = root.findall("{http://www.w3.org/2000/svg}svg")
    assert len(inner) == len(heat_maps(tuning))
    assert "var(" not in tune_picture(tuning)


def test_a_wrong_tile_is_named_and_has_no_figure() -> None:
    backend = CountingBackend(
        change=lambda case, result: wrong(result) if case.tile is not None and case.tile.block_m == 128 else result
    )
    found = tuned(backend)
    assert {made.tile.block_m for made in found.wrong} == {128}
    assert any(sentence.startswith("128x64/1 with 4 warps is out: At 195 x 101 the result is wrong.")
               for sentence in reasons(found))  # fmt: skip
    heat = next(heat for heat in heat_maps(found) if heat.key == "global")
    assert {blank.word for blank in heat.blanks if blank.block_m == 128} == {"wrong"}
    assert all(cell.block_m != 128 for cell in heat.cells)


def test_a_tile_that_spills_has_a_word_and_no_ratio() -> None:
    """Tiles of 16 rows of Q, the square rule's too, spill: what that costs is not predicted."""

    def change(case: Case, result: RunResult) -> RunResult:
        assert case.tile is not None and result.resources is not None
        spill = 24 if case.tile.block_m == 16 else 0
        return replace(result, resources=replace(result.resources, spill_bytes=spill))

    found = tuned(CountingBackend(change=change))
    rows = {row[0]: row[1:] for row in map_table(found, "t").rows}
    assert set(rows["16"]) == {"spills"}
    assert "spills" not in rows["32"]
    heat = next(heat for heat in heat_maps(found) if heat.key == "predicted")
    assert {blank.reason for blank in heat.blanks if blank.block_m == 16} == {
        "It spills 24 bytes per thread; what that costs is not predicted."
    }
    assert all(cell.block_m != 16 for cell in heat.cells)
    (square,) = (row for row in rules_table(found).rows if row[0] == "√(M/4d)")
    assert square[3] == "spills"
    assert min(row["over_least"] for row in tune_rows(found) if row.get("over_least") is not None) == 1.0


def test_a_rule_s_tile_is_in_the_depth_that_the_map_shows(tuning: Tuning) -> None:
    """What the map says of 16 x 16 the square rule's row says too; only our default is of one depth."""
    shown = {(one.tile.block_m, one.tile.block_n): one for one in reversed(tuning.ranking.order)}
    (square,) = (outcome for outcome in tuning.rules if outcome.rule.name == "square")
    assert square.known is shown[16, 16]
    assert square.known.tile.stages == 2


def test_where_every_tile_spills_it_is_said() -> None:
    assert any(
        "It spills 8 bytes per thread: every tile does." in s for s in reasons(tuned(CountingBackend(spill_bytes=8)))
    )


def test_a_tile_that_could_not_be_run_keeps_what_is_known_of_it() -> None:
    """Without a compiler but for one tile: bytes and shared memory of all others stay on the map."""

    def change(case: Case, result: RunResult) -> RunResult:
        if case.tile is not None and case.tile.block_m != 64:
            raise Unsupported("No compiler.")
        return result

    found = tuned(CountingBackend(change=change))
    maps = {heat.key: heat for heat in heat_maps(found)}
    assert len(maps["global"].cells) == len(maps["smem"].cells) == 23
    assert {cell.block_m for cell in maps["registers"].cells} == {64}
    assert "36 of 45 tiles could not be run. No compiler." in reasons(found)
    assert found.wrong == ()
