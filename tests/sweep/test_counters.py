"""Hardware counts as columns: what can't be is dropped, what is missing is empty, a zero is a zero. All made up."""

from __future__ import annotations

from typing import Any

import pytest

from fa_bench.algorithms.base import ALL_TENSORS, TensorBytes
from fa_bench.backends.base import Counts, HardwareCounts, Level, RunResult, Verification
from fa_bench.cases import AttentionShape, Case
from fa_bench.records import RECORDS
from fa_bench.sweep.counters import checked, counter_columns

CASE = Case("flash2", AttentionShape(1, 2, 1, 64, 64, 64))
#: Q of two heads, K and V of one: 4 · 64 · 64 · 2.
COMPULSORY = 4 * 64 * 64 * 2


def part(op: str, nbytes: int, hit: int | None = None, kernel: str = "k") -> TensorBytes:
    return TensorBytes(kernel, ALL_TENSORS, op, nbytes, hit_bytes=hit)  # type: ignore[arg-type]


def counts(extra: dict[str, dict[str, int]] | None = None, **levels: list[TensorBytes]) -> HardwareCounts:
    traffic: dict[Level, Any] = {"dram": [part("read", COMPULSORY)], **levels}  # type: ignore[dict-item]
    return HardwareCounts("ok", "", "a mode", 1, Counts(traffic, extra=extra or {}))


def believed(hardware: HardwareCounts, case: Case = CASE) -> HardwareCounts:
    return checked(hardware, case, COMPULSORY)


@pytest.mark.parametrize("level", ["global", "l2"])
def test_a_hit_rate_above_100_percent_is_unreliable(level: str) -> None:
    # 171 % was reported: hits and requests of a tiny kernel are from two launches.
    found = believed(counts(**{level: [part("read", 1000, hit=1710)]}))
    assert (found.status, found.counts, found.mode) == ("unreliable", None, "a mode")
    assert found.reason.startswith("A hit rate above 100 %: ")
    for hit, status in ((1000, "ok"), (1020, "ok"), (1021, "unreliable")):  # passes may differ by 2 %
        assert believed(counts(**{level: [part("read", 1000, hit=hit)]})).status == status


def test_fewer_bytes_from_dram_than_the_inputs_have_is_unreliable() -> None:
    # 2 % less is another pass, which found a little in L2: 32,768 * 0.98 = 32,112.64.
    assert believed(counts(dram=[part("read", 32_113)])).status == "ok"
    found = believed(counts(dram=[part("read", 32_112)]))
    assert (found.status, found.counts) == ("unreliable", None)
    assert found.reason == "32,112 B read from DRAM, less than the inputs' 32,768 B."


def test_no_bytes_from_dram_at_all_are_no_measurement() -> None:
    assert believed(counts(dram=[part("read", 0)])).status == "unreliable"


def test_queries_that_see_no_key_need_not_be_read() -> None:
    # 64 queries on 16 keys, causal: the first 48 see none, 2 heads · 48 · 64 · 2 bytes.
    case = Case("flash2", AttentionShape(1, 2, 1, 64, 16, 64, causal=True))
    compulsory = (2 * 64 + 2 * 16) * 64 * 2
    least = compulsory - 2 * 48 * 64 * 2
    for nbytes, status in ((0.981 * least, "ok"), (0.979 * least, "unreliable")):
        assert checked(counts(dram=[part("read", int(nbytes))]), case, compulsory).status == status


def test_a_part_of_l2s_traffic_that_exceeds_all_of_it_is_unreliable() -> None:
    l2 = [part("read", 600), part("write", 500)]
    assert believed(counts({"k": {"l2_total_bytes": 1078}}, l2=l2)).status == "unreliable"  # 1078 * 1.02 = 1099.6
    assert believed(counts({"k": {"l2_total_bytes": 1079}}, l2=l2)).status == "ok"


def test_what_was_not_counted_is_not_checked() -> None:
    hardware = HardwareCounts("absent", "No ncu.")
    assert believed(hardware) is hardware
    assert believed(counts(dram=[part("write", 5)])).status == "ok"


def test_a_missing_figure_has_no_column_and_a_true_zero_has() -> None:
    hardware = counts(
        {"k": {"local_write_bytes": 0}},
        **{"global": [part("read", 7), part("read", 8, kernel="l")], "dram": [part("write", 0)]},
    )
    assert counter_columns(hardware) == {
        "counter_status": "ok",
        "counter_reason": None,
        "counter_kernels": 1,
        "counter_mode": "a mode",
        "global_read_bytes_measured": 15,
        "global_write_bytes_measured": None,
        "dram_read_bytes_measured": None,
        "dram_write_bytes_measured": 0,
        "local_write_bytes_measured": 0,
    }


def test_local_bytes_that_one_kernel_lacks_are_not_known() -> None:
    hardware = counts({"k": {"local_read_bytes": 3}, "l": {}})
    assert "local_read_bytes_measured" not in counter_columns(hardware)


def test_a_failure_has_its_status_and_reason_and_no_bytes() -> None:
    assert counter_columns(HardwareCounts("timeout", "ncu was ended.", "a mode")) == {
        "counter_status": "timeout",
        "counter_reason": "ncu was ended.",
        "counter_kernels": None,
        "counter_mode": "a mode",
    }


def test_every_column_is_one_of_the_records() -> None:
    extra = {"k": {"local_read_bytes": 1, "local_write_bytes": 1}}
    levels = {level: [part("read", COMPULSORY), part("write", 1)] for level in ("global", "l2", "dram")}
    assert set(counter_columns(counts(extra, **levels))) <= set(RECORDS.columns)


def test_a_run_without_counters_has_no_status() -> None:
    assert RunResult(verification=Verification(0.0, 0.0, 1.0, "fp64", passed=True)).hardware is None


def test_of_a_packed_batch_keys_without_queries_need_not_be_read_either() -> None:
    # 8 queries without keys in 2 heads, 16 keys without queries in one head, K and V.
    case = Case("flash2", AttentionShape.packed([(64, 64), (8, 0), (0, 16)], 2, 1, 64))
    compulsory = (2 * 72 + 2 * 64) * 64 * 2  # the 16 keys are no part of it
    least = compulsory - 2 * 8 * 64 * 2
    for nbytes, status in ((0.981 * least, "ok"), (0.979 * least, "unreliable")):
        assert checked(counts(dram=[part("read", int(nbytes))]), case, compulsory).status == status
