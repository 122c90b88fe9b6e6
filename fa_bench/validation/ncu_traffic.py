"""FlashAttention-2 on an A30, by Nsight Compute: global reads, L2 reads and DRAM bytes.

The published kernel's tile of 128 x 64 and its loop order are our flash2's, so it asks for the same sectors. It is
machine code of another source: it writes and reads spilled registers, which ours doesn't, and L2 sees them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from fa_bench import datafiles
from fa_bench.backends.base import Spills
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.model import gpus
from fa_bench.units import format_percent
from fa_bench.validation.result import (
    Column,
    Comparison,
    LeftOut,
    Score,
    Validation,
    Value,
    deviation,
    known_deviations,
    mean_absolute,
    score,
)
from fa_bench.validation.run import Counted, Runner, flash2_case

NAME: Final = "ncu-traffic"
#: How far L2 reads may be from the published ones.
L2_LIMIT: Final = 0.04
#: Sequence lengths of a quick validation.
QUICK_SEQ: Final = 512

#: What the published kernel spills without a window, in sectors: its L2 writes less its global writes are 64 per
#: K/V tile of a CTA and 320 per CTA (other columns of the published file).
SPILLS: Final = Spills(per_tile=64, per_cta=320)
_KERNEL: Final = "FA2 fwd 128x64"
_TILE: Final = Tile(128, 64, num_warps=4)
_MEGA: Final = 10**6


@dataclass(frozen=True, slots=True)
class Published:
    """One row of ``data/ncu_traffic.csv``; figures in 10^6 bytes with the digits that were published."""

    gpu: str
    kernel: str
    test: str
    batch: int
    heads: int
    kv_heads: int | None
    seq: int | None
    head_dim: int
    causal: bool
    window: str
    global_read_mb: Decimal | None
    l2_read_mb: Decimal | None
    dram_mb: Decimal | None
    source_url: str

    @property
    def reason(self) -> str | None:
        """Why nothing here can be held against it; None if something can."""
        if self.global_read_mb is None:
            return "no bytes were published"
        if self.kernel != _KERNEL:
            return "another kernel than any of ours"
        return None

    def case(self) -> Case:
        """The same problem for our flash2, in the layout of the published kernel."""
        assert self.seq is not None and self.kv_heads is not None
        # To either side of the diagonal; a causal mask leaves the left one.
        window = None if self.window == "full" else int(self.window)
        sizes = (self.batch, self.heads, self.kv_heads, self.seq, self.seq, self.head_dim)
        shape = AttentionShape(*sizes, self.causal, window, None if self.causal else window)
        return flash2_case(shape, _TILE)


def published() -> tuple[Published, ...]:
    """All rows of the file that comes with fa-bench."""
    return tuple(_row(fields) for fields in datafiles.rows("ncu_traffic.csv"))


def validate(runner: Runner, quick: bool) -> Validation:
    """Run every row that can be run; ``quick`` for the shortest sequence only."""
    rows = [row for row in published() if row.reason is None and not (quick and row.seq != QUICK_SEQ)]
    counted = [runner.run(row.case(), gpus.get(row.gpu)) for row in rows]
    pairs = list(zip(rows, counted, strict=True))
    reads = tuple(_read_row(row, ours) for row, ours in pairs)
    dram = tuple(
        # What the published kernel spills is known of cases without a window.
        _dram_row(
            row,
            ours,
            runner.dram_bytes_with(row.case(), gpus.get(row.gpu), SPILLS) if row.window == "full" else None,
        )
        for row, ours in pairs
    )
    return Validation(
        NAME,
        "Nsight Compute on an A30 (github.com/JakeFlasher/benchmark_flash_attention, ncu_metrics.csv): "
        "FlashAttention-2, tile 128x64, fp16, D = 128, 32 query heads on 8 K/V heads",
        (_reads(reads), _dram(dram)),
        tuple(_left_out(published())),
        tuple(_failures(reads)),
        tuple(_scores(reads, dram)),
    )


def beyond_rounding_bytes(ours: int, published_mb: Decimal) -> int:
    """``ours`` less a published number of 10^6 bytes; 0 where its digits allow ``ours``.

    Examples
    --------
    >>> beyond_rounding_bytes(37_748_736, Decimal("37.749")), beyond_rounding_bytes(37_748_736, Decimal("37.748"))
    (0, 736)
    """
    exact = published_mb * _MEGA
    exponent = published_mb.as_tuple().exponent
    assert isinstance(exponent, int)  # neither infinite nor NaN
    half_digit = Decimal(5).scaleb(exponent - 1) * _MEGA
    return 0 if abs(ours - exact) <= half_digit else round(ours - exact)


def _row(fields: Mapping[str, str]) -> Published:
    return Published(
        gpu=fields["gpu"],
        kernel=fields["kernel"],
        test=fields["test"],
        batch=int(fields["batch"]),
        heads=int(fields["heads"]),
        kv_heads=int(fields["kv_heads"]) if fields["kv_heads"] else None,
        seq=int(fields["seq"]) if fields["seq"] else None,
        head_dim=int(fields["head_dim"]),
        causal=fields["causal"] == "1",
        window=fields["window"],
        global_read_mb=_decimal(fields["gmem_read_MB"]),
        l2_read_mb=_decimal(fields["l2_read_MB"]),
        dram_mb=_decimal(fields["dram_total_MB"]),
        source_url=fields["source_url"],
    )


def _decimal(text: str) -> Decimal | None:
    return Decimal(text) if text else None


def _names(row: Published) -> dict[str, Value]:
    return {"test": row.test, "seq": row.seq, "window": row.window, "causal": row.causal}


def _read_row(row: Published, ours: Counted) -> dict[str, Value]:
    assert row.global_read_mb is not None and row.l2_read_mb is not None
    l2_bytes = int(row.l2_read_mb * _MEGA)
    return _names(row) | {
        "global_read_bytes_published": int(row.global_read_mb * _MEGA),
        "global_read_bytes_emulated": ours.global_read_bytes,
        "global_read_bytes_difference": beyond_rounding_bytes(ours.global_read_bytes, row.global_read_mb),
        "l2_read_bytes_published": l2_bytes,
        "l2_read_bytes_emulated": ours.l2_read_bytes,
        "l2_read_deviation": deviation(ours.l2_read_bytes, l2_bytes),
    }


def _dram_row(row: Published, ours: Counted, with_spills: int | None) -> dict[str, Value]:
    assert row.dram_mb is not None
    dram_bytes = int(row.dram_mb * _MEGA)
    return _names(row) | {
        "dram_bytes_published": dram_bytes,
        "dram_read_bytes_emulated": ours.dram_read_bytes,
        "dram_write_bytes_emulated": ours.dram_write_bytes,
        "dram_bytes_emulated": ours.dram_bytes,
        "dram_deviation_emulated": deviation(ours.dram_bytes, dram_bytes),
        "dram_bytes_emulated_with_spills": with_spills,
        "dram_deviation_emulated_with_spills": None if with_spills is None else deviation(with_spills, dram_bytes),
        "dram_bytes_model": ours.dram_model_bytes,
        "dram_deviation_model": deviation(ours.dram_model_bytes, dram_bytes),
        "written_bytes": ours.l2_write_bytes,
        "l2_dirty_bytes_emulated": ours.dirty_bytes,
        "emulated_fraction": ours.fraction,
    }


_NAMES: Final = (Column("test", "test"), Column("seq", "seq", "size"), Column("causal", "causal"))


def _reads(rows: tuple[Mapping[str, Value], ...]) -> Comparison:
    columns = (
        *_NAMES,
        Column("global_read_bytes_published", "global ncu", "megabytes"),
        Column("global_read_bytes_emulated", "emulated", "megabytes"),
        Column("global_read_bytes_difference", "diff B", "count"),
        Column("l2_read_bytes_published", "L2 ncu", "megabytes"),
        Column("l2_read_bytes_emulated", "emulated", "megabytes"),
        Column("l2_read_deviation", "error", "deviation"),
    )
    note = (
        "diff B: beyond the rounding of the published figure. L2 also sees what is no global read: registers that the "
        f"published kernel spilled, constants, instructions. MAPE of L2 reads: {_mean(rows, 'l2_read_deviation')}."
    )
    return Comparison("reads", "Reads by the SMs in 10^6 bytes: global, and from L2", columns, rows, note)


def _dram(rows: tuple[Mapping[str, Value], ...]) -> Comparison:
    columns = (
        Column("seq", "seq", "size"),
        Column("window", "window"),
        Column("causal", "causal"),
        Column("dram_bytes_published", "ncu", "megabytes"),
        Column("dram_bytes_emulated", "ours", "megabytes"),
        Column("dram_deviation_emulated", "error", "deviation"),
        Column("dram_bytes_emulated_with_spills", "spills", "megabytes"),
        Column("dram_deviation_emulated_with_spills", "error", "deviation"),
        Column("dram_bytes_model", "model", "megabytes"),
        Column("dram_deviation_model", "error", "deviation"),
        Column("l2_dirty_bytes_emulated", "dirty", "megabytes"),
    )
    note = (
        "ours: emulated. spills: with the published kernel's stores of spilled registers among ours, which has none; "
        "they are known where there is no window. dirty: of O and LSE, what L2 had not written back when the kernel "
        "ended, and DRAM has not seen. MAPE: ours "
        f"{_mean(rows, 'dram_deviation_emulated')}, with spills {_mean(rows, 'dram_deviation_emulated_with_spills')}, "
        f"model {_mean(rows, 'dram_deviation_model')}."
    )
    return Comparison("dram", "DRAM, read and written, in 10^6 bytes", columns, rows, note)


def _scores(reads: Iterable[Mapping[str, Value]], dram: Iterable[Mapping[str, Value]]) -> Iterable[Score]:
    for words, rows, name in (
        ("L2 reads, emulated", reads, "l2_read_deviation"),
        ("DRAM, emulated", dram, "dram_deviation_emulated"),
        ("DRAM, model", dram, "dram_deviation_model"),
    ):
        yield score(words, "a30", known_deviations(rows, name))


def _mean(rows: Iterable[Mapping[str, Value]], name: str) -> str:
    return format_percent(mean_absolute(known_deviations(rows, name)))


def _left_out(rows: Iterable[Published]) -> list[LeftOut]:
    """One entry per GPU, kernel and reason; kernels of one GPU that share a reason are counted."""
    groups: dict[tuple[str, str], list[Published]] = {}
    for row in rows:
        if row.reason is not None:
            groups.setdefault((row.gpu, row.reason), []).append(row)
    found = []
    for (gpu, reason), members in groups.items():
        kernels = Counter(row.kernel for row in members)
        what = next(iter(kernels)) if len(kernels) == 1 else f"{len(kernels)} kernels"
        found.append(LeftOut(f"{gpu}, {what}", len(members), reason))
    return found


def _failures(rows: Iterable[Mapping[str, Value]]) -> Iterable[str]:
    for row in rows:
        where = f"{NAME}, {row['test']}, seq {row['seq']}, {'causal' if row['causal'] else 'full'}"
        if row["global_read_bytes_difference"]:
            yield f"{where}: global reads are off by {row['global_read_bytes_difference']} bytes."
        error = row["l2_read_deviation"]
        assert isinstance(error, float)
        if abs(error) > L2_LIMIT:
            yield f"{where}: L2 reads are off by {format_percent(error, signed=True)}."
