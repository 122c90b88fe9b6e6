"""The commands on a machine without NVRTC, such as a Mac: shipped PTX runs, anything else is refused in a sentence."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fa_bench import algorithms, nvrtc
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.compiler import compile_kernel

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "row_attention.toml"


@pytest.fixture(autouse=True)
def hidden(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(nvrtc.HIDE, "1")
    nvrtc.load.cache_clear()
    yield
    nvrtc.load.cache_clear()


def records(folder: Path) -> list[dict[str, str]]:
    with (folder / "records.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_sweep_runs_in_a_process_that_never_had_a_compiler(tmp_path: Path) -> None:
    program = "from fa_bench.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "sweep", "--seq", "512", "--out", "run"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, nvrtc.HIDE: "1"},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(
        "Kernels run from the PTX that comes with fa-bench, for sm_80. The CUDA compiler NVRTC"
    )
    rows = {row["impl"]: row for row in records(tmp_path / "run")}
    assert {"standard", "flash1", "flash2", "numpy-flash"} <= set(rows)
    for impl in ("standard", "flash1", "flash2"):
        row = rows[impl]
        assert row["status"] == "ok"
        assert row["global_read_bytes_emulated"] == row["global_read_bytes_model"] != ""
        assert row["global_write_bytes_emulated"] == row["global_write_bytes_model"] != ""
        assert row["registers"] != "" and row["blocks_per_sm"] != ""
        assert row["compile_ms"] == ""


def test_io_model_counts_what_is_shipped(cli: Callable) -> None:
    ran = cli("io-model", "--impl", "flash1,flash2", "--seq", "300", "--causal", "--format", "json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["equal"] is True
    assert [case["source"] for case in document["cases"]] == ["emulated"] * 2


def test_check_runs_what_is_shipped(cli: Callable) -> None:
    line = "check --impl flash2 --seq 1x1 --head-dim 40 --dtype fp16,bf16 --format json"
    ran = cli(*line.split())
    assert ran.code == 0, ran.err
    assert [record["status"] for record in json.loads(ran.out)["records"]] == ["ok"] * 4


NOT_SHIPPED = (
    "There is no compiler (NVRTC) here, and flash2_fwd for sm_80 with ELEMENT_FP16=1 BLOCK_M=32 BLOCK_N=32 DIM=96 "
    "STAGES=1 NUM_WARPS=2 CAUSAL=0 is not among the kernels that come compiled."
)


def test_what_is_not_shipped_is_a_row_with_one_sentence(cli: Callable, tmp_path: Path) -> None:
    axes = "--seq 256 --head-dim 96 --block 32x32 --impl flash2"
    ran = cli("sweep", *axes.split(), "--out", "run")
    assert ran.code == 0
    (row,) = records(tmp_path / "run")
    assert (row["status"], row["status_reason"]) == ("unsupported", NOT_SHIPPED)
    assert f"flash2 32x32/1: unsupported. {NOT_SHIPPED}" in ran.err.splitlines()
    ran = cli("io-model", *axes.split())
    assert " ".join(NOT_SHIPPED.split()) in " ".join(ran.out.split())
    ran = cli("check", *axes.split())
    assert ran.code == 2  # nothing could be checked, which is no success
    assert NOT_SHIPPED in " ".join(ran.err.split())


def test_kernels_shows_what_was_recorded_and_refuses_the_rest(cli: Callable) -> None:
    ran = cli("kernels", "--impl", "flash2", "--format", "json")
    assert ran.code == 0, ran.err
    (row,) = json.loads(ran.out)
    assert row["registers"] > 0 and row["spill_bytes"] == 0 and row["blocks_per_sm"] > 0
    ran = cli("kernels", "--impl", "flash2", "--gpu", "h100-sxm")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith("Error: There is no compiler (NVRTC) here, and flash2_fwd for sm_90")


def test_a_users_source_needs_a_compiler(cli: Callable, tmp_path: Path) -> None:
    ran = cli("sweep", "--impl", str(EXAMPLE), "--seq", "64", "--out", "run")
    (row,) = records(tmp_path / "run")
    assert row["status"] == "unsupported"
    assert "row_attention for sm_80 with FP16=1" in row["status_reason"]
    assert ran.code == 0


FLASH2 = """
source = "kernel.ptx"
[supports]
dtypes = ["fp16"]
head_dims = [64]
[[kernels]]
entry = "flash2_fwd"
grid = ["slices * ceil_div(seq_q, 64)"]
block = [128]
smem_bytes = "(64 + 2 * 64) * head_dim * itemsize"
args = [
    "Q", "K", "V", "O", "LSE",
    "i64 q_batch_stride", "i64 q_head_stride", "i64 q_row_stride",
    "i64 k_batch_stride", "i64 k_head_stride", "i64 k_row_stride",
    "i64 v_batch_stride", "i64 v_head_stride", "i64 v_row_stride",
    "i64 o_batch_stride", "i64 o_head_stride", "i64 o_row_stride",
    "i32 heads_q", "i32 heads_kv", "i32 seq_q", "i32 seq_kv", "i32 head_dim", "f32 scale",
]
"""


def test_a_users_ptx_needs_none(cli: Callable, tmp_path: Path) -> None:
    """Our own kernel as if it were somebody's: its counts are those that our model predicts."""
    flash2 = algorithms.get("flash2")
    case = Case("flash2", AttentionShape(1, 4, 2, 100, 100, 64), tile=Tile(64, 64, 1, 4))
    kernel = compile_kernel(flash2.program(case).launches[0].kernel, "sm_80")
    (tmp_path / "kernel.ptx").write_text(kernel.ptx)
    (tmp_path / "theirs.toml").write_text(FLASH2)
    line = "io-model --impl theirs.toml --seq 100 --heads 4 --kv-heads 2 --format json"
    ran = cli(*line.split())
    assert ran.code == 0, ran.err
    (found,) = json.loads(ran.out)["cases"]
    assert (found["status"], found["block_m"]) == ("ok", None)
    counted = {(line["tensor"], line["op"]): line["counted_bytes"] for line in found["traffic"]}
    assert counted == {(part.tensor, part.op): part.bytes for part in flash2.traffic(case) or ()}


def test_doctor_says_what_runs(cli: Callable) -> None:
    ran = cli("doctor", "--format", "json")
    states = {finding["subject"]: finding for finding in json.loads(ran.out)}
    assert states["NVRTC"]["state"] == "missing"
    assert states["shipped PTX"]["state"] == "ok"
    assert "kernels for sm_80" in states["shipped PTX"]["detail"]
    assert "Kernels run on the CPU here" in ran.err


def test_tiles_around_a_default_need_the_compiler(cli: Callable) -> None:
    ran = cli("kernels", "--explain", "--impl", "flash2")
    assert (ran.code, ran.out) == (3, "")
    assert "NVRTC is hidden" in ran.err
