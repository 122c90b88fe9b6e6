"""A tuning as tables, flat rows, a document and sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fa_bench.report.names import case_name
from fa_bench.report.tables import UNKNOWN, Column, Table
from fa_bench.report.tune_maps import map_table, tile_name
from fa_bench.tuning.known import Known
from fa_bench.tuning.predict import Term
from fa_bench.tuning.rank import CLOSE, Basis
from fa_bench.tuning.result import RuleOutcome, Tuning
from fa_bench.tuning.rules import RuleName
from fa_bench.tuning.tiles import Refused
from fa_bench.units import format_bytes, format_count, format_ms, format_percent, format_ratio

#: Version of the JSON document, described in docs/cli.md.
SCHEMA: Final = 1
#: Tiles in the first table.
_TOP: Final = 10
_TERMS: Final[Mapping[Term, str]] = {
    "tensor": "tensor cores",
    "fma": "the FMA pipe",
    "exp": "special functions",
    "shared": "shared memory",
    "issue": "instruction issue",
    "dram": "DRAM",
    "wait": "waiting for copies",
}
RULES: Final[Mapping[RuleName, str]] = {
    "auto": "fa-bench's default",
    "flash-attention-2": "FlashAttention-2",
    "flash-attention-1": "FlashAttention-1",
    "square": "√(M/4d)",
    "square-bytes": "√(M/4d), M in bytes",
}
_BASES: Final[Mapping[Basis, str]] = {"time": "measured time", "prediction": "predicted time", "bytes": "global bytes"}


def heading(tuning: Tuning) -> str:
    """What was asked: implementation, shape, GPU."""
    name = case_name(tuning.bare)
    facts = name.shape(("dtype", "head_dim", "causal", "batch", "heads"))
    return f"{name.impl}, {facts}, {tuning.gpu.slug}"


def tune_tables(tuning: Tuning) -> tuple[Table, ...]:
    """The best tiles, the map that the order is by, and the rules beside it."""
    title = f"{_BASES[tuning.ranking.basis].capitalize()} over the least"
    return top_table(tuning), map_table(tuning, title), rules_table(tuning)


def top_table(tuning: Tuning) -> Table:
    """The first tiles of the order and the recommendation."""
    ranking = tuning.ranking
    best = ranking.best
    shown = list(ranking.order[:_TOP])
    if best is not None and all(known is not best for known in shown):
        shown[-1] = best
    timed = ranking.basis == "time"
    columns = (
        Column("tile"),
        Column("warps", "right"),
        Column("time" if timed else "predicted", "right"),
        Column("least", "right"),
        Column("limit"),
        Column("global", "right"),
        Column("CTA/SM", "right"),
        Column("regs", "right"),
        Column("spill", "right"),
        Column("smem", "right"),
        Column("conf", "right"),
    )
    rows = tuple(_top_row(tuning, known, known is best) for known in shown)
    order = "" if ranking.basis == "bytes" else "Predicted, not measured. " if not timed else ""
    return Table(
        f"{heading(tuning)}: {min(_TOP, len(ranking.order))} of {tuning.total} tiles",
        columns,
        rows,
        f"{order}* is the recommendation. limit: the unit that is busy longest. spill: bytes per thread. conf: shared-"
        "memory wavefronts beyond those needed, counted.",
    )


def _top_row(tuning: Tuning, known: Known, chosen: bool) -> tuple[str, ...]:
    timed = tuning.ranking.basis == "time"
    time_ms = known.time_ms if timed else None if known.prediction is None else known.prediction.ms
    ratio = tuning.ranking.ratio(known)
    return (
        f"{'*' if chosen else ' '}{tile_name(known.tile)}",
        str(known.tile.num_warps),
        UNKNOWN if time_ms is None else format_ms(time_ms),
        UNKNOWN if ratio is None else format_ratio(ratio),
        UNKNOWN if known.prediction is None else known.prediction.limiter,
        format_bytes(known.global_bytes),
        UNKNOWN if known.occupancy is None else str(known.occupancy.blocks_per_sm),
        UNKNOWN if known.registers is None else str(known.registers),
        UNKNOWN if known.spill_bytes is None else str(known.spill_bytes),
        format_bytes(known.smem_bytes),
        UNKNOWN if known.conflicts is None else format_count(round(known.conflicts)),
    )


def rules_table(tuning: Tuning) -> Table:
    """What the rules say, and how far that is from the least and from the recommendation."""
    elements = next((outcome.rule.m for outcome in tuning.rules if outcome.rule.name == "square"), None)
    refused = [outcome.refused.reason for outcome in tuning.rules if outcome.refused is not None]
    m = "" if elements is None else f"{format_count(elements)} elements, "
    return Table(
        "What rules say",
        (
            Column("rule"),
            Column("blocks", "right"),
            Column("tile"),
            Column("least", "right"),
            Column("global", "right"),
            Column("over *", "right"),
            *((Column("DRAM", "right"), Column("counted", "right")) if _dram_counted(tuning) else ()),
        ),
        tuple(_rule_row(tuning, outcome) for outcome in tuning.rules),
        " ".join(
            (
                f"M is what a CTA may have: {m}{format_bytes(tuning.gpu.smem_per_block_bytes)}. Blocks are rounded "
                "down to multiples of 16 from 16 to 256. over *: its global bytes over the recommendation's.",
                *refused,
            )
        ),
    )


def _dram_counted(tuning: Tuning) -> bool:
    return any(known.dram_bytes_emulated is not None for known in tuning.tried)


def _rule_row(tuning: Tuning, outcome: RuleOutcome) -> tuple[str, ...]:
    rule, known, best = outcome.rule, outcome.known, tuning.ranking.best
    blocks = " x ".join(f"{side:.1f}" if side != int(side) else str(int(side)) for side in rule.exact)
    if known is None:
        why = UNKNOWN if outcome.refused is None else f"no {outcome.refused.lack}"
        unknown = (UNKNOWN,) * (4 if _dram_counted(tuning) else 2)
        return RULES[rule.name], blocks, str(rule.tile), why, *unknown
    counted = known.dram_bytes_emulated
    dram = (format_bytes(known.dram_bytes), UNKNOWN if counted is None else format_bytes(counted))
    ratio = tuning.ranking.ratio(known)
    unknown_ratio = "spills" if known.spill_bytes else UNKNOWN
    return (
        RULES[rule.name],
        blocks,
        tile_name(known.tile),
        unknown_ratio if ratio is None else format_ratio(ratio),
        format_bytes(known.global_bytes),
        UNKNOWN if best is None else format_ratio(known.global_bytes / best.global_bytes),
        *(dram if _dram_counted(tuning) else ()),
    )


def reasons(tuning: Tuning) -> list[str]:
    """The recommendation and why it is the one, a sentence each; what is missing is said."""
    ranking, best = tuning.ranking, tuning.ranking.best
    said = []
    if tuning.interrupted:
        said.append(f"Interrupted after {len(tuning.tried)} of {tuning.total} tiles: the best of those.")
    if best is None:
        return [*said, "No tile can be recommended: none of them passed."]
    said.append(f"Recommended: {tile_name(best.tile)} with {_warps(best)}.")
    if ranking.basis == "time":
        assert best.time_ms is not None
        said.append(f"It was measured at {format_ms(best.time_ms)}, the least of {len(ranking.order)} tiles.")
    elif ranking.basis == "prediction":
        said += _predicted(tuning, best)
    else:
        said.append("It asks for the fewest global bytes; registers, spills and conflicts are not known.")
    said += _unknown(tuning)
    if best.dram_bytes_emulated is not None:
        counted, estimate = format_bytes(best.dram_bytes_emulated), format_bytes(best.dram_bytes)
        said.append(f"In emulated caches {counted} cross between L2 and DRAM; the model's estimate is {estimate}.")
    if best.spill_bytes:
        said.append(f"It spills {format_count(best.spill_bytes)} bytes per thread: every tile does.")
    return said + _fewest(tuning, best) + [_trial_fault(known) for known in tuning.wrong]


def _unknown(tuning: Tuning) -> list[str]:
    """How many tiles could not be run, and why the first could not."""
    unknown = [known for known in tuning.tried if known.trial.status == "unknown"]
    if not unknown:
        return []
    return [f"{len(unknown)} of {tuning.total} tiles could not be run. {unknown[0].fault}"]


def _predicted(tuning: Tuning, best: Known) -> list[str]:
    assert best.prediction is not None
    prediction, close = best.prediction, tuning.ranking.close
    said = [
        f"Predicted, not measured: {format_ms(prediction.ms)}. {_capital(_TERMS[prediction.limiter])} would be busy "
        f"{format_percent(prediction.terms_ms[prediction.limiter] / prediction.ms)} of that."
    ]
    within = format_percent(CLOSE - 1)
    if len(close) == 1:
        return [*said, f"No other tile is within {within} of it."]
    return [
        *said,
        f"{len(close)} tiles are within {within} of the least prediction, too close to be told apart; of these "
        f"{tile_name(best.tile)} asks for the fewest global bytes, {format_bytes(best.global_bytes)}.",
    ]


def _fewest(tuning: Tuning, best: Known) -> list[str]:
    """Why the tile that moves least is not the one."""
    fewest = tuning.ranking.fewest_bytes
    if fewest is None or fewest.global_bytes >= best.global_bytes:
        return []
    ratio = tuning.ranking.ratio(fewest)
    why = [] if ratio is None else [f"its {_BASES[tuning.ranking.basis]} is {format_ratio(ratio)} the least"]
    if fewest.spill_bytes:
        why.append(f"it spills {format_count(fewest.spill_bytes)} bytes per thread")
    if fewest.occupancy is not None and best.occupancy is not None:
        here, there = fewest.occupancy, best.occupancy
        if here.blocks_per_sm < there.blocks_per_sm:
            limits = " and ".join(here.limits)
            why.append(f"an SM holds {here.blocks_per_sm} of its CTAs, not {there.blocks_per_sm} ({limits})")
    return [f"{tile_name(fewest.tile)} asks for {format_bytes(fewest.global_bytes)}, but {', and '.join(why)}."]


def _trial_fault(known: Known) -> str:
    return f"{tile_name(known.tile)} with {_warps(known)} is out: {known.fault}"


def _warps(known: Known) -> str:
    return "1 warp" if known.tile.num_warps == 1 else f"{known.tile.num_warps} warps"


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


def tune_rows(tuning: Tuning) -> list[dict[str, object]]:
    """One row per tile, best first, then those that can't run."""
    best = tuning.ranking.best
    rows = [
        _known_row(tuning, known, number, known is best) for number, known in enumerate(tuning.ranking.order, start=1)
    ]
    rows += [_known_row(tuning, known, None, False) for known in tuning.ranking.out]
    return [*rows, *(_refused_row(tuning, refused) for refused in tuning.refused)]


def _identity(tuning: Tuning) -> dict[str, object]:
    shape = tuning.bare.shape
    return {
        "impl": tuning.bare.impl,
        "gpu": tuning.gpu.slug,
        "dtype": tuning.bare.dtype,
        "head_dim": shape.head_dim,
        "seq": shape.seq_q,
        "causal": shape.causal,
        "batch": shape.batch,
        "heads": shape.heads_q,
    }


def _known_row(tuning: Tuning, known: Known, place: int | None, recommended: bool) -> dict[str, object]:
    tile, prediction, fit, record = known.tile, known.prediction, known.occupancy, known.record
    status = record.status if record is not None and known.trial.status == "ok" else known.trial.status
    terms = {} if prediction is None else prediction.terms_ms
    return {
        **_identity(tuning),
        "block_m": tile.block_m,
        "block_n": tile.block_n,
        "stages": tile.stages,
        "num_warps": tile.num_warps,
        "place": place,
        "recommended": recommended,
        "status": status,
        "reason": known.fault or None,
        "over_least": tuning.ranking.ratio(known) if place is not None else None,
        "time_ms": known.time_ms,
        "time_p20_ms": None if record is None else record.time_p20_ms,
        "time_p80_ms": None if record is None else record.time_p80_ms,
        "noisy": None if record is None else record.noisy,
        "predicted_ms": None if prediction is None else prediction.ms,
        "limiter": None if prediction is None else prediction.limiter,
        **{f"{term}_ms": terms.get(term) for term in _TERMS},
        "balance": None if prediction is None else prediction.balance,
        "waves": known.waves,
        "global_bytes_model": known.global_bytes,
        "dram_bytes_model": known.dram_bytes,
        "dram_bytes_emulated": known.dram_bytes_emulated,
        "flops_executed": known.work.flops_executed,
        "smem_bytes": known.smem_bytes,
        "registers": known.registers,
        "spill_bytes": known.spill_bytes,
        "blocks_per_sm": None if fit is None else fit.blocks_per_sm,
        "warps_per_sm": None if fit is None else fit.warps_per_sm,
        "limits": None if fit is None else fit.limits,
        "wavefronts_per_mma": known.wavefronts_per_mma,
        "conflicts": known.conflicts,
        "instructions_per_mma": known.instructions_per_mma,
    }


def _refused_row(tuning: Tuning, refused: Refused) -> dict[str, object]:
    tile = refused.tile
    return {
        **_identity(tuning),
        "block_m": tile.block_m,
        "block_n": tile.block_n,
        "stages": tile.stages,
        "num_warps": tile.num_warps,
        "recommended": False,
        "status": f"no_{refused.lack}",
        "reason": refused.reason,
    }


def tune_document(tuning: Tuning) -> dict[str, Any]:
    """Everything, for JSON."""
    best = tuning.ranking.best
    rows = tune_rows(tuning)
    return {
        "schema": SCHEMA,
        "interrupted": tuning.interrupted,
        "basis": tuning.ranking.basis,
        "recommended": None if best is None else next(row for row in rows if row["recommended"]),
        "reasons": reasons(tuning),
        "rules": [_rule(tuning, outcome) for outcome in tuning.rules],
        "tiles": rows,
    }


def _rule(tuning: Tuning, outcome: RuleOutcome) -> dict[str, Any]:
    rule, known = outcome.rule, outcome.known
    tile = rule.tile if known is None else known.tile
    return {
        "rule": rule.name,
        "m": rule.m,
        "block_m_exact": rule.exact[0],
        "block_n_exact": rule.exact[1],
        "block_m": tile.block_m,
        "block_n": tile.block_n,
        "stages": tile.stages,
        "num_warps": tile.num_warps or None,
        "refused": None if outcome.refused is None else outcome.refused.reason,
        "over_least": None if known is None else tuning.ranking.ratio(known),
        "global_bytes_model": None if known is None else known.global_bytes,
    }
