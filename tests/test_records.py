"""Records check themselves, and survive the way to a file and back."""

from __future__ import annotations

import contextlib
import csv
import locale
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fa_bench.errors import UsageError
from fa_bench.records import RECORDS, SCHEMA_VERSION, STATUSES, TRAFFIC, CsvTable, Record, TensorTraffic

#: Written by hand, group by group: readers of old files rely on names and order.
HEADER = (
    "schema,run_id,case_id,timestamp,impl,impl_version,backend,device,gpu,dtype,direction,layout,batch,heads_q,heads_kv,"
    "seq_q,seq_kv,head_dim,causal,window_left,window_right,dropout_p,block_m,block_n,stages,num_warps,seed,init,causal_align,"
    "head_dim_v,softcap,bias,alibi,sinks,seqlens,"
    "status,status_reason,"
    "time_ms,time_p20_ms,time_p80_ms,time_samples,time_source,l2_state,launch_bound,noisy,throttled,compile_ms,"
    "time_drift,time_dropped,time_fallback,launch_floor_ms,fits_l2,"
    "flops_nominal,flops_executed,exp_count,tflops,"
    "global_read_bytes_model,global_write_bytes_model,global_read_bytes_emulated,global_write_bytes_emulated,"
    "global_read_bytes_measured,global_write_bytes_measured,"
    "l2_read_bytes_model,l2_write_bytes_model,l2_read_bytes_emulated,l2_write_bytes_emulated,"
    "l2_read_bytes_measured,l2_write_bytes_measured,"
    "dram_read_bytes_model,dram_write_bytes_model,dram_read_bytes_emulated,dram_write_bytes_emulated,"
    "dram_read_bytes_measured,dram_write_bytes_measured,"
    "compulsory_read_bytes,compulsory_write_bytes,emulated_fraction,"
    "l2_dirty_bytes_emulated,dram_read_bytes_emulated_low,dram_read_bytes_emulated_high,"
    "dram_write_bytes_emulated_low,dram_write_bytes_emulated_high,"
    "counter_status,counter_reason,counter_kernels,counter_mode,local_read_bytes_measured,local_write_bytes_measured,"
    "mem_peak_bytes,mem_source,nvml_mem_peak_bytes,nvml_mem_source,nvml_interval_ms,"
    "power_w,energy_mj,sm_clock_mhz,mem_clock_mhz,temperature_c,throttle_reasons,"
    "sm_clock_min_mhz,energy_launches,device_reason,"
    "nvrtc_version,registers,smem_bytes,spill_bytes,blocks_per_sm,"
    "roofline_ms,roofline_limiter,arithmetic_intensity,roofline_source,"
    "max_abs_err,rel_err,err_reference"
)
COLUMNS = HEADER.split(",")


def record(**changes: Any) -> Record:
    columns: dict[str, Any] = {
        "run_id": "20250102-030405-ab12",
        "case_id": "0123456789abcdef",
        "timestamp": "2025-01-02T03:04:05+00:00",
        "impl": "flash2",
        "backend": "cuda",
        "device": "NVIDIA A100-SXM4-80GB",
        "dtype": "fp16",
        "direction": "fwd",
        "layout": "bhsd",
        "batch": 1,
        "heads_q": 8,
        "heads_kv": 2,
        "seq_q": 512,
        "seq_kv": 512,
        "head_dim": 64,
        "causal": True,
        "seed": 0,
        "status": "ok",
        "max_abs_err": 1e-3,
        "err_reference": "fp64 full",
    }
    return Record(**(columns | changes))


def timed(**changes: Any) -> Record:
    return record(**({"time_ms": 2.0, "time_p20_ms": 1.0, "time_p80_ms": 3.0, "time_source": "cuda-events"} | changes))


def test_columns_are_those_of_the_schema() -> None:
    assert RECORDS.header == HEADER + "\n"
    assert TRAFFIC.columns == (
        "case_id", "kernel", "tensor", "op", "level", "source", "bytes", "requests", "hit_bytes",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"time_ms": -1.5}, r"time_ms must be above 0, not -1\.5"),
        ({"time_ms": 0.0}, r"time_ms must be above 0, not 0\.0"),
        ({"time_p20_ms": 2.5}, r"time_ms is 2\.0, outside time_p20_ms 2\.5 and time_p80_ms 3\.0"),
        ({"time_p80_ms": None}, r"time_ms is 2\.0, outside time_p20_ms 1\.0 and time_p80_ms None"),
        ({"launch_floor_ms": 0.0}, r"launch_floor_ms must be above 0, not 0\.0"),
        ({"counter_status": "fine"}, r"counter_status must be one of ok, .*, not 'fine'"),
        ({"causal_align": "top-left"}, r"causal_align must be one of bottom-right, not 'top-left'"),
        ({"time_source": None}, r"time_ms is 2\.0 but time_source is None"),
        ({"time_source": "stopwatch"}, r"time_source must be one of cuda-events, .*, not 'stopwatch'"),
        ({"backend": "emulator"}, r"time_ms is 2\.0 on the emulator"),
        ({"max_abs_err": math.nan}, r"max_abs_err must be finite, not nan"),
        ({"tflops": math.inf}, r"tflops must be finite, not inf"),
        ({"max_abs_err": None}, r"max_abs_err or err_reference is not known"),
        ({"status": "fine"}, r"status must be one of ok, .*, not 'fine'"),
        ({"status": "oom"}, r"status is 'oom' but status_reason is empty"),
        ({"seq_q": 0}, r"seq_q must be at least 1, not 0"),
        ({"mem_peak_bytes": -1}, r"mem_peak_bytes must be at least 0, not -1"),
        ({"mem_peak_bytes": 1.0}, r"mem_peak_bytes must be int, not 1\.0"),
        ({"batch": True}, r"batch must be int, not True"),
        ({"noisy": 1}, r"noisy must be bool, not 1"),
        ({"gpu": ""}, r"gpu must not be empty text"),
        ({"device": None}, r"device must be known"),
        ({"emulated_fraction": 1.25}, r"emulated_fraction must be above 0 and at most 1, not 1\.25"),
    ],
)
def test_an_impossible_value_is_refused_with_its_name(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        timed(**changes)


def test_traffic_checks_itself() -> None:
    good = {
        "case_id": "c",
        "kernel": "k",
        "tensor": "Q",
        "op": "read",
        "level": "global",
        "source": "model",
        "bytes": 0,
    }
    assert TensorTraffic(**good).bytes == 0
    with pytest.raises(ValueError, match="bytes must be at least 0, not -32"):
        TensorTraffic(**(good | {"bytes": -32}))
    with pytest.raises(ValueError, match="level must be one of global, l2, dram, not 'hbm'"):
        TensorTraffic(**(good | {"level": "hbm"}))


def test_a_record_is_frozen() -> None:
    with pytest.raises(AttributeError):
        record().status = "ok"  # type: ignore[misc]


def test_unknown_is_an_empty_cell_and_zero_is_not() -> None:
    cells = dict(zip(COLUMNS, RECORDS.line(record(spill_bytes=0)).rstrip("\n").split(","), strict=True))
    assert cells["registers"] == ""
    assert cells["time_ms"] == ""
    assert cells["spill_bytes"] == "0"
    assert cells["causal"] == "true"
    assert RECORDS.parse(list(cells.values())).registers is None


def test_numbers_are_written_in_full_whatever_the_locale() -> None:
    # 0.1 + 0.2 needs 17 digits; a comma locale would write 1234567,25 and 1.234.567.
    before = locale.setlocale(locale.LC_ALL)
    for name in ("de_DE.UTF-8", "fr_FR.UTF-8", "German_Germany"):
        with contextlib.suppress(locale.Error):
            locale.setlocale(locale.LC_ALL, name)
    try:
        line = RECORDS.line(record(rel_err=0.1 + 0.2, power_w=1234567.25, exp_count=1234567))
    finally:
        locale.setlocale(locale.LC_ALL, before)
    assert ",0.30000000000000004," in line
    assert ",1234567.25," in line
    assert ",1234567," in line


# Surrogates are no text: they can't be written as UTF-8 without being replaced.
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
nasty_names = names | st.sampled_from(
    ['RTX "4090", Ti', "two\nlines", "dos\r\nlines", "a\rb", '"', ",", "\ttab", " blank "]
)
counts = st.none() | st.integers(0, 2**80)
figures = st.none() | st.floats(0, 1e300, allow_nan=False, allow_infinity=False)


@st.composite
def records(draw: st.DrawFn) -> Record:
    low, middle, high = sorted(draw(st.lists(st.floats(1e-300, 1e300), min_size=3, max_size=3)))
    with_time = draw(st.booleans())
    return record(
        device=draw(nasty_names),
        impl=draw(nasty_names),
        status=draw(st.sampled_from(STATUSES)),
        status_reason=draw(nasty_names),
        causal=draw(st.booleans()),
        noisy=draw(st.none() | st.booleans()),
        throttle_reasons=draw(st.none() | nasty_names),
        global_read_bytes_model=draw(counts),
        dram_write_bytes_measured=draw(counts),
        arithmetic_intensity=draw(figures),
        temperature_c=draw(st.none() | st.floats(-50, 120)),
        rel_err=draw(figures),
        time_ms=middle if with_time else None,
        time_p20_ms=low if with_time else None,
        time_p80_ms=high if with_time else None,
        time_source="host-clock" if with_time else None,
    )


def written(path: Path, rows: list[Record]) -> Path:
    path.write_bytes((RECORDS.header + "".join(map(RECORDS.line, rows))).encode())
    return path


@settings(deadline=None, max_examples=100)
@given(rows=st.lists(records(), max_size=4))
def test_what_is_written_is_read_back(rows: list[Record], tmp_path_factory: pytest.TempPathFactory) -> None:
    content = RECORDS.read(written(tmp_path_factory.getbasetemp() / "roundtrip.csv", rows))
    assert content.rows == tuple(rows)
    assert content.malformed == ()
    assert not content.truncated


def test_a_file_cut_anywhere_loses_only_the_row_that_is_cut(tmp_path: Path) -> None:
    rows = [record(case_id=str(i), device='A "b",\nc') for i in range(3)]
    path = tmp_path / "records.csv"
    whole = written(path, rows).read_bytes()
    ends = [len(RECORDS.header.encode())]
    for row in rows:
        ends.append(ends[-1] + len(RECORDS.line(row).encode()))
    for cut in range(ends[0], len(whole) + 1):
        path.write_bytes(whole[:cut])
        content = RECORDS.read(path)
        complete = sum(end <= cut for end in ends) - 1
        assert content.rows == tuple(rows[:complete])
        assert content.truncated == (cut not in ends)
        # Not one byte is lost: what is no whole row is kept as text.
        assert content.left_out == tuple(filter(None, [whole[max(end for end in ends if end <= cut) : cut].decode()]))
        assert content.malformed == ()


def test_a_cut_header_is_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    path.write_text(RECORDS.header[:20])
    assert RECORDS.read(path).rows == ()


def test_a_malformed_row_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    good = RECORDS.line(record())
    path = tmp_path / "records.csv"
    path.write_text(RECORDS.header + good + "1,2,3\n" + good.replace("512", "many", 1) + good)
    content = RECORDS.read(path)
    assert content.rows == (record(), record())
    assert content.malformed == ("row 3: 3 cells where there are 114 columns", "row 4: seq_q must be int, not 'many'")


def test_a_row_of_a_schema_to_come_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    line = RECORDS.line(record())
    old, later = (line.replace(f"{SCHEMA_VERSION},", f"{schema},", 1) for schema in (1, SCHEMA_VERSION + 1))
    path.write_text(RECORDS.header + old + later)
    content = RECORDS.read(path)
    assert [row.schema for row in content.rows] == [1]
    (said,) = content.unread(path)
    assert said.startswith(f"{path}: row 3: schema is {SCHEMA_VERSION + 1}, and this version of fa-bench knows none")


def test_a_spreadsheet_may_have_saved_it(tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    text = RECORDS.header + RECORDS.line(record())
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert RECORDS.read(path).rows == (record(),)


@pytest.mark.parametrize(
    ("header", "what"),
    [
        (RECORDS.header.replace("seed,", ""), "missing: seed"),
        (RECORDS.header.replace("seed,", "seed,mood,"), "unknown: mood"),
        (RECORDS.header.replace("run_id,case_id", "case_id,run_id"), "in another order"),
        (TRAFFIC.header, "missing: schema, run_id, timestamp, impl"),
    ],
)
def test_other_columns_are_refused(tmp_path: Path, header: str, what: str) -> None:
    path = tmp_path / "records.csv"
    path.write_text(header)
    with pytest.raises(UsageError, match=what):
        RECORDS.read(path)


def test_a_file_of_an_older_schema_is_read_and_its_columns_to_come_are_not_known(tmp_path: Path) -> None:
    # Schema 1 had no l2_dirty_bytes_emulated. Here it is written, and then cut out as if it had never been.
    row = record(l2_dirty_bytes_emulated=64, spill_bytes=8)
    place = RECORDS.columns.index("l2_dirty_bytes_emulated")
    path = tmp_path / "records.csv"
    lines = [next(csv.reader([line])) for line in (RECORDS.header, RECORDS.line(row))]
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(cells[:place] + cells[place + 1 :] for cells in lines)
    (read,) = RECORDS.read(path).rows
    assert read == replace(row, l2_dirty_bytes_emulated=None)
    # A row as wide as today's is none of that file.
    with path.open("a") as file:
        file.write(RECORDS.line(row))
    assert "cells where there are" in RECORDS.read(path).malformed[0]


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    table: CsvTable[TensorTraffic] = TRAFFIC
    with pytest.raises(UsageError, match=r"Cannot read .*traffic\.csv: No such file or directory"):
        table.read(tmp_path / "traffic.csv")
