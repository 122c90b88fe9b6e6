"""``fa-bench predict``: tables, columns, rows without a time, and what it refuses; the model in tests/prediction."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fa_bench.model import gpus
from fa_bench.report.prediction import COLUMNS


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_row_per_gpu_implementation_and_shape(cli: Callable) -> None:
    ran = cli("predict", "--gpu", "h100-sxm,a100", "--impl", "flash-attn-2,flash2", "--seq", "1k,2k", "--format", "csv")
    assert ran.code == 0
    found = rows(ran.out)
    assert [(row["gpu"], row["seq_q"], row["impl"]) for row in found] == [
        (gpu, seq, impl)
        for gpu in ("h100-sxm", "a100-sxm-80")
        for seq in ("1024", "2048")
        for impl in ("flash-attn-2", "flash2")
    ]
    # 16k tokens and a hidden size of 2048.
    assert {(row["seq_q"], row["batch"], row["heads_q"]) for row in found} == {
        ("1024", "16", "32"),
        ("2048", "8", "32"),
    }
    for row in found:
        assert float(row["low_ms"]) < float(row["time_ms"]) < float(row["high_ms"])
        assert row["status"] == "ok"
        assert row["limiter"] in ("tensor", "exp", "fma", "shared", "l2", "dram", "launch")


def test_the_table_fits_80_columns(cli: Callable) -> None:
    ran = cli(
        "predict", "--gpu", "h200-sxm,a100-sxm-80", "--seq", "512..16k", "--head-dim", "64,128", "--causal", "both"
    )
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "90 %" not in ran.out
    assert "Intervals held nine in ten times of publications left out of the fit" in " ".join(ran.out.split())
    assert "flash-attn-3 runs on compute capability 9.0 alone, not on a100-sxm-80." in " ".join(ran.out.split())


def test_what_has_no_time_is_a_row_with_its_reason(cli: Callable) -> None:
    ran = cli("predict", "--gpu", "a100", "--impl", "flash-attn-3", "--seq", "1k", "--format", "csv")
    assert ran.code == 0
    (row,) = rows(ran.out)
    assert (row["status"], row["time_ms"]) == ("unsupported", "")
    assert row["status_reason"] == "flash-attn-3 runs on compute capability 9.0 alone, not on a100-sxm-80."


def test_gpus_of_which_the_same_is_said_share_a_sentence(cli: Callable) -> None:
    ran = cli("predict", "--gpu", "l40s,l4,t4,v100", "--impl", "flash-attn-2", "--seq", "512,1k")
    text = " ".join(ran.out.split())
    assert "No published time is of l40s, l4: constants of other GPUs of ada." in text
    assert "4 without a time: flash-attn-2 in fp16 needs compute capability 8.0: not on t4, v100-sxm2-32." in text


def test_every_gpu_of_the_registry(cli: Callable) -> None:
    ran = cli("predict", "--gpu", "all", "--impl", "pytorch-eager", "--seq", "512", "--format", "csv")
    assert [row["gpu"] for row in rows(ran.out)] == [gpu.slug for gpu in gpus.all_gpus()]
    assert {row["status"] for row in rows(ran.out)} == {"ok"}


def test_all_columns_are_written_to_a_file(cli: Callable, tmp_path: Path) -> None:
    ran = cli("predict", "--seq", "512", "--impl", "all", "--out", "deep/predictions.csv")
    assert ran.code == 0
    assert "Wrote deep/predictions.csv." in ran.err
    found = rows((tmp_path / "deep" / "predictions.csv").read_text(encoding="utf-8"))
    assert tuple(found[0]) == COLUMNS
    assert {row["status"] for row in found} == {"ok", "unsupported"}
    assert all(bool(row["status_reason"]) == (row["status"] != "ok") for row in found)


def test_json_has_the_same_rows(cli: Callable) -> None:
    ran = cli("predict", "--seq", "512", "--impl", "flash-attn-2", "--format", "json")
    (row,) = json.loads(ran.out)
    assert tuple(row) == COLUMNS
    assert row["head_dim"] == 64


def test_queries_and_keys_may_differ(cli: Callable) -> None:
    ran = cli("predict", "--seq", "4kx8k,2k", "--impl", "flash-attn-2", "--format", "csv")
    assert [(row["seq_q"], row["seq_kv"]) for row in rows(ran.out)] == [("4096", "8192"), ("2048", "2048")]
    times = [float(row["time_ms"]) for row in rows(ran.out)]
    # 16k tokens of the longer side each: 2 sequences of 4k x 8k pairs, and 8 of 2k x 2k.
    assert [row["batch"] for row in rows(ran.out)] == ["2", "8"]
    assert times[0] / times[1] == pytest.approx(2, rel=0.1)


def test_what_does_not_fit_in_memory_has_a_reason_and_no_time(cli: Callable) -> None:
    ran = cli("predict", "--seq", "1x32k", "--batch", "8k", "--impl", "flash-attn-2", "--format", "csv")
    (row,) = rows(ran.out)
    # K and V: 2 x 8k x 32 heads x 32k x 64 x 2 B.
    assert (row["time_ms"], row["status_reason"]) == (
        "",
        "Its tensors would need 2.00 TiB, and a100-sxm-80 has 80 GiB.",
    )


def test_an_implementation_may_have_its_published_name(cli: Callable) -> None:
    ran = cli("predict", "--seq", "1k", "--impl", "FA2,cuDNN,flash2", "--format", "csv")
    assert [row["impl"] for row in rows(ran.out)] == ["flash-attn-2", "torch-cudnn", "flash2"]


def test_a_clock_is_taken(cli: Callable) -> None:
    ran = cli("predict", "--seq", "8k", "--impl", "flash-attn-2", "--clock", "700", "--format", "csv")
    (row,) = rows(ran.out)
    assert float(row["clock_mhz"]) == 700


def test_an_explanation_is_of_the_first_row_that_has_a_time(cli: Callable) -> None:
    ran = cli(
        "predict", "--gpu", "a100,h100-sxm", "--impl", "flash-attn-3", "--seq", "8k", "--head-dim", "128", "--explain"
    )
    assert ran.code == 0
    assert ran.out.startswith("flash-attn-3 on h100-sxm, 8k fp16 D=128 full bhsd B=2 H=16\n")
    # 128 x 176 x 128 by wgmma: 4·128·176·128 FLOPs.
    assert "11,534,336 FLOPs by wgmma" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_nothing_to_explain(cli: Callable) -> None:
    ran = cli("predict", "--gpu", "a100", "--impl", "flash-attn-3", "--seq", "1k", "--explain")
    assert (ran.code, ran.out) == (1, "")
    assert "compute capability 9.0 alone" in ran.err


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("--gpu", "h1000"), "There is no GPU 'h1000' in the registry."),
        (("--impl", "flash-attn-22"), "There is no time model for 'flash-attn-22'."),
        (("--seq", "0"), "--seq: '0' is too small; the least is 1."),
        (("--clock", "0"), "--clock"),
        (("--clock", "inf"), "--clock"),
        (("--explain", "--out", "predictions.csv"), "--explain and --out can't both be given"),
        (("--batch", "2", "--tokens", "4k"), "--batch and --tokens can't both be given"),
    ],
)
def test_bad_words_are_refused(args: tuple[str, ...], sentence: str, cli: Callable) -> None:
    ran = cli("predict", *args)
    assert ran.code == 2
    assert sentence in ran.err
    assert ran.out == ""


@pytest.mark.parametrize("direction", ["fwd", "bwd"])
def test_a_row_does_not_depend_on_its_neighbours(direction: str, cli: Callable) -> None:
    args = ("predict", "--impl", "flash-attn-2", "--direction", direction, "--format", "csv", "--seq")
    together = rows(cli(*args, "1k,16k,64k").out)
    # 16k tokens: 16 sequences of 1k, one of 16k; one of 64k has more than that by itself.
    assert [row["batch"] for row in together] == ["16", "1", "1"]
    assert together == [row for seq in ("1k", "16k", "64k") for row in rows(cli(*args, seq).out)]


def test_a_packed_batch_is_a_row_without_a_time(tmp_path: Path, cli: Callable) -> None:
    config = tmp_path / "packed.toml"
    config.write_text('seqlens = "128,300"\n', encoding="utf-8")
    ran = cli("predict", "--config", str(config), "--impl", "flash-attn-2", "--format", "csv")
    assert ran.code == 0
    assert [row["status_reason"] for row in rows(ran.out)] == ["There is no time model for packed batches."]


@pytest.mark.parametrize("name", [".", "file/predictions.csv"])
def test_a_file_that_cannot_be_written_is_said_before_the_work(name: str, tmp_path: Path, cli: Callable) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    ran = cli("predict", "--seq", "1k", "--out", str(tmp_path / name))
    assert (ran.code, ran.out) == (2, "")
    assert "--out" in ran.err


def test_help_states_the_sizes_that_predict_takes(cli: Callable) -> None:
    shown = " ".join(cli("predict", "--help").out.replace("│", " ").split())
    assert "16k tokens on a GPU" not in shown
    assert "(16k tokens, at least 1)" in shown
