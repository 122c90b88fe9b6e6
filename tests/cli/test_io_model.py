"""``fa-bench io-model``: equal and unequal counts, prediction alone, the derivation; once on the real emulator."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator

import pytest

from fa_bench.cases import Case
from fa_bench.compiler import nvrtc_available
from fa_bench.errors import KernelFault


def test_equal_counts_are_exit_code_0(cli: Callable, fakes: Callable, emulator: Callable) -> None:
    fakes(emulator())
    ran = cli("io-model", "--seq", "1k", "--block", "64x64")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert "flash2 64x64/1, 1k fp16 D=64 full bhsd B=1 H=1" in lines
    # Q: 1024 rows of 128 bytes, read once. K: by each of 1024 / 64 = 16 tiles of Q.
    assert "flash2_fwd  Q       read       131,072     131,072           0" in lines
    assert "flash2_fwd  K       read     2,097,152   2,097,152           0" in lines
    assert max(map(len, lines)) <= 80


def test_a_differing_byte_is_exit_code_1_and_shown(cli: Callable, fakes: Callable, emulator: Callable) -> None:
    fakes(emulator(extra_bytes=-32))
    ran = cli("io-model", "--seq", "1k", "--impl", "flash2", "--block", "64x64", "--quiet")
    assert ran.code == 1
    assert "flash2_fwd  Q       read       131,072     131,040         -32" in ran.out
    assert "the bytes counted are not those predicted" in ran.err
    document = json.loads(cli("io-model", "--seq", "1k", "--impl", "flash2", "--format", "json").out)
    assert document["equal"] is False
    assert [line["difference_bytes"] for line in document["cases"][0]["traffic"]] == [-32, 0, 0, 0, 0]


def test_a_fault_is_exit_code_1(cli: Callable, fakes: Callable, emulator: Callable) -> None:
    def fault(case: Case) -> None:
        raise KernelFault("Lane 7 reads outside every buffer.")

    fakes(emulator(on_run=fault))
    ran = cli("io-model", "--seq", "16", "--impl", "flash2")
    assert ran.code == 1
    assert "Lane 7 reads outside every buffer." in ran.err


def test_prediction_alone_opens_no_device(cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    from fa_bench import backends

    monkeypatch.setattr(backends, "resolve_device", lambda device: pytest.fail("a device was asked for"))
    ran = cli("io-model", "--seq", "1k", "--no-measure", "--format", "json")
    assert ran.code == 0
    document = json.loads(ran.out)
    assert document["equal"] is None
    assert {case["impl"] for case in document["cases"]} == {"standard", "flash1", "flash2"}
    assert {line["counted_bytes"] for case in document["cases"] for line in case["traffic"]} == {None}


def test_without_a_compiler_it_says_how_to_predict(cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    from fa_bench import backends

    monkeypatch.setattr(backends, "why_not", lambda name: "NVRTC is not installed.")
    ran = cli("io-model", "--seq", "64")
    assert ran.code == 3
    assert ran.err.startswith("Error: NVRTC is not installed.\n       --no-measure")


def test_ratio_and_paper(cli: Callable) -> None:
    ran = cli("io-model", "--seq", "1k", "--block", "64x64", "--no-measure", "--format", "json")
    cases = {case["impl"]: case for case in json.loads(ran.out)["cases"]}
    # FlashAttention-2, Tr = 16: 2·1024·64 + 16·2·1024·64 + 1024 = 2,229,248 elements of two bytes.
    assert cases["flash2"]["paper"]["bytes"] == 2 * 2_229_248
    # Standard attention: 4·1024² + 4·1024·64 = 4,456,448 elements.
    assert cases["standard"]["paper"]["bytes"] == 2 * 4_456_448
    assert cases["standard"]["standard_ratio"] == 1
    assert cases["flash2"]["standard_ratio"] == cases["standard"]["total_bytes"] / cases["flash2"]["total_bytes"]
    # Theorem 2 with M = 163 KiB: 1024²·64²/83456 elements with M in elements, half of it with M in bytes.
    assert cases["flash1"]["paper"]["theorem2_sram_bytes"] == 163 * 1024
    assert cases["flash1"]["paper"]["theorem2_bytes"] == round(2 * 1024**2 * 64**2 / 83456)
    assert cases["flash1"]["paper"]["theorem2_bytes_m_in_bytes"] == round(1024**2 * 64**2 / 83456)


def test_the_shape_of_the_first_papers_figure_2(cli: Callable) -> None:
    ran = cli("io-model", "--preset", "fa1-figure2", "--direction", "fwd+bwd", "--no-measure", "--format", "json")
    cases = {case["impl"]: case for case in json.loads(ran.out)["cases"]}
    assert (cases["flash1"]["status"], cases["flash1"]["traffic"]) == ("unsupported", [])
    assert cases["flash2"]["direction"] == "fwd+bwd"
    # S, P, dP and dS are 64 · 16 · 1024² · 2 B = 2^31 bytes each: 11 passes are 23.6 GB.
    matrices = [line for line in cases["standard"]["traffic"] if line["tensor"] in ("S", "P", "dP", "dS")]
    assert [line["predicted_bytes"] for line in matrices] == [2**31] * 11
    # 4·N² + 4·N·d and 7·N² + 8·N·d, in 1024 slices of two bytes.
    assert cases["standard"]["paper"]["bytes"] == 2048 * (11 * 1024**2 + 12 * 1024 * 64)


def test_csv_has_a_row_per_tensor_and_direction(cli: Callable, fakes: Callable, emulator: Callable) -> None:
    fakes(emulator())
    ran = cli("io-model", "--seq", "64", "--impl", "flash2", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [(row["tensor"], row["op"]) for row in rows] == [
        ("Q", "read"), ("K", "read"), ("V", "read"), ("O", "write"), ("LSE", "write"),
    ]  # fmt: skip
    assert {row["source"] for row in rows} == {"emulated"}


def test_explain_prints_the_derivation_of_the_first_shape(cli: Callable) -> None:
    ran = cli("io-model", "--seq", "1k,2k", "--impl", "flash2", "--block", "64x64", "--explain")
    assert ran.code == 0
    assert ran.out.splitlines()[0] == "flash2 64x64/1, 1k fp16 D=64 full bhsd B=1 H=1"
    assert "131072" in ran.out
    assert "1 more cases are not explained" in ran.err
    for fmt in ("json", "csv", "md"):
        assert "131072" in cli("io-model", "--seq", "1k", "--impl", "flash2", "--explain", "--format", fmt).out


LONG = (
    "--window",
    "128:0",
    "--features",
    "softcap=30+alibi+dropout=0.1+sinks+bias",
    "--head-dim-v",
    "128",
    "--heads",
    "32",
)


@pytest.mark.parametrize("direction", ["fwd", "bwd", "fwd+bwd"])
@pytest.mark.parametrize("fmt", ["table", "md"])
def test_derivations_fit_80_columns_in_all_directions(cli: Callable, direction: str, fmt: str) -> None:
    for mask in ((), ("--causal",), LONG if direction == "fwd" else ("--window", "128:0")):
        ran = cli("io-model", "--seq", "1k", "--direction", direction, *mask, "--explain", "--format", fmt)
        assert ran.code == 0
        assert max(map(len, ran.out.splitlines())) <= 80
        assert "Bound of Saha and Ye" in ran.out
        assert ("Theorem 5" in ran.out) == (direction != "fwd") and ("Theorem 2" in ran.out) == (direction != "bwd")


def test_explain_puts_the_papers_numbers_in(cli: Callable) -> None:
    arguments = ("io-model", "--seq", "1k", "--dtype", "fp32", "--impl", "flash2", "--block", "64x64", "--explain")
    ran = cli(*arguments, "--sram", "163k")
    # 166,912 bytes are 41,728 elements of 4; 41,728 / 256 = 163 keys a block.
    assert "M = 163 KiB (as stated) / 4 bytes = 41,728 elements" in ran.out
    assert "1,062,912 loaded + 473,088 stored = 1,536,000" in ran.out
    # Q and O 2·65,536, K and V 16 times as many, LSE 1024, all of 4 bytes; 2^32 / 41,728 = 102,928.
    assert "flash2 64x64/1: 8,916,992 bytes / 4 = 2,229,248 elements = 21.7× the bound" in ran.out
    (row,) = json.loads(cli(*arguments, "--sram", "163KiB", "--format", "json").out)
    assert "1,536,000" in row["theory"]
    assert row["distance"].startswith("flash2 64x64/1: 8,916,992 bytes")


def test_theory_is_a_table_columns_and_fields_for_the_m_that_is_stated(cli: Callable) -> None:
    arguments = ("io-model", "--seq", "1k", "--impl", "flash2", "--block", "64x64", "--no-measure", "--sram", "32k")
    # 16,384 halves: N²d²/M = 2^18 elements, 2^19 bytes. flash2 moves 4,460,544 bytes: LSE is 1024 floats.
    ran = cli(*arguments)
    assert "Theory, M = 32 KiB, 1k fp16 D=64 full bhsd B=1 H=1" in ran.out
    assert re.search(r"flash2 64x64/1, predicted +2,230,272 +4.25 MiB +8.51×", ran.out)
    (row, *_) = csv.DictReader(io.StringIO(cli(*arguments, "--format", "csv").out))
    assert (row["bound_elements"], float(row["predicted_distance"])) == (str(2**18), 4_460_544 / 2**19)
    (case,) = json.loads(cli(*arguments, "--format", "json").out)["cases"]
    assert case["theory"]["bound_bytes"] == 2**19
    assert case["paper"]["theorem2_sram_bytes"] == 32 * 1024
    assert "| Theorem 2 | 262,144 |" in cli(*arguments, "--format", "md").out


@pytest.mark.parametrize(
    ("sram", "said"),
    [
        ("192KB", "is not a size in bytes"),
        ("x", "is not a size"),
        ("1000", "the least is 1 KiB"),
        ("0k", "the least is"),
    ],
)
def test_an_m_that_is_none_is_refused(cli: Callable, sram: str, said: str) -> None:
    ran = cli("io-model", "--no-measure", "--sram", sram)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("Error: --sram: ") and said in ran.err


def test_long_titles_are_folded(cli: Callable) -> None:
    ran = cli("io-model", "--seq", "1k", "--impl", "flash2", "--no-measure", *LONG)
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) <= 80


def test_a_window_behind_a_causal_mask_is_refused(cli: Callable) -> None:
    ran = cli("io-model", "--seq", "64", "--no-measure", "--causal", "--window", "8:4")
    assert (ran.code, ran.out) == (2, "")
    assert "--window: 8:4 shows 4 keys behind the query, which a causal mask hides (--causal)." in ran.err
    assert "Write 8:0" in ran.err
    for window in ("8", "8:8", "8:0", "8:-"):
        assert "causal window 8,0" in cli("io-model", "--seq", "64", "--no-measure", "--causal", "--window", window).out
    # Asked for both masks, the right side is the one of the mask that is not causal.
    ran = cli("io-model", "--seq", "64", "--impl", "flash2", "--no-measure", "--causal", "both", "--window", "8:4")
    assert "full bhsd" not in ran.out and "window 8,4" in ran.out and "causal window 8,0" in ran.out


def test_one_mask_is_one_case(cli: Callable) -> None:
    def cases(*mask: str) -> list[str]:
        ran = cli("io-model", "--seq", "64", "--impl", "flash2", "--no-measure", *mask, "--format", "json")
        return [case["case_id"] for case in json.loads(ran.out)["cases"]]

    causal = cases("--causal")
    assert cases("--window", "-:0") == causal
    assert cases("--causal", "both", "--window", "-:0,none") == [*causal, *cases()]
    assert causal == ["1014b09f04509d50"]  # as it was before windows came


@pytest.mark.skipif(nvrtc_available() is not None, reason=f"no compiler: {nvrtc_available()}")
def test_on_the_real_emulator(cli: Callable) -> None:
    line = "io-model --impl flash2 --seq 100 --head-dim 40 --heads 3 --kv-heads 1 --causal --format json"
    ran = cli(*line.split())
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["equal"] is True
    assert [case["source"] for case in document["cases"]] == ["emulated"]


@pytest.mark.skipif(nvrtc_available() is not None, reason="needs NVRTC")
def test_what_the_caches_see_is_a_second_table(cli: Callable) -> None:
    """One tile of each tensor: 64 rows of 128 bytes come from DRAM once, and O stays in L2."""
    arguments = ("io-model", "--seq", "64", "--impl", "flash2", "--block", "64x64", "--gpu", "a30")
    ran = cli(*arguments, "--counters", "full")
    assert ran.code == 0
    assert "Through the caches of a30, emulated" in ran.out
    assert "24 KiB read from DRAM; 0 B written to DRAM." in ran.out
    assert "8.25 KiB that were written are still in L2 at the end." in ran.out  # 8 KiB of O, 256 bytes of LSE
    assert max(map(len, ran.out.splitlines())) <= 80
    (case,) = json.loads(cli(*arguments, "--interval", "--format", "json").out)["cases"]
    assert case["dram_interval_bytes"] == {"read": [24576, 24576], "write": [0, 0]}
    assert [line["dram_bytes"] for line in case["caches"]] == [8192, 8192, 8192, 0, 0]
    assert case["l2_dirty_bytes"] == 8448


def test_counters_that_do_not_exist_are_refused(cli: Callable) -> None:
    ran = cli("io-model", "--seq", "64", "--counters", "fll")
    assert ran.code == 2
    assert "there is no 'fll'" in ran.err
    assert "full" in ran.err


def test_without_counting_the_caches_see_nothing(cli: Callable) -> None:
    for option in (("--interval",), ("--counters", "full")):
        ran = cli("io-model", "--seq", "64", "--no-measure", *option)
        assert ran.code == 2
        assert "--no-measure counts nothing" in ran.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--counters", "ncu,full"), "--no-measure counts nothing, and --counters ncu,full asks for counts."),
        (("--interval",), "--no-measure counts nothing, and --interval asks for counts."),
        (("--impl", "flash-attn"), "Did you mean 'flash-attn-2'?"),
        (("--impl", "flash-attn-2"), "sweep runs flash-attn-2. Known here: standard, "),
    ],
)
def test_what_a_prediction_alone_does_not_take_is_said(cli: Callable, args: tuple[str, ...], said: str) -> None:
    ran = cli("io-model", "--no-measure", *args)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_row_per_case_has_the_totals_of_the_rows_per_tensor(cli: Callable) -> None:
    args = ("io-model", "--no-measure", "--seq", "100,512", "--head-dim", "40,64", "--batch", "1,3", "--heads", "4",
            "--kv-heads", "2,4", "--causal", "both", "--layout", "bhsd,bshd", "--direction", "fwd,bwd",
            "--sram", "64k")  # fmt: skip
    cases = rows_of(cli(*args, "--format", "csv", "--per", "case", "--dram").out)
    document = json.loads(cli(*args, "--format", "json").out)
    assert len(cases) == len(document["cases"]) == 2 * 2 * 2 * 2 * 2 * 2 * 2 * 4
    identity = ("impl", "layout", "direction", "head_dim", "batch", "heads_kv", "seq_q", "causal")

    def key(row: dict[str, object]) -> tuple[str, ...]:
        return tuple(str(row[name]).lower() for name in identity)

    by_key = {key(row): row for row in cases}
    for case in document["cases"]:
        row = by_key.pop(key(case))
        for column, expected in {
            "status": case["status"],
            "status_reason": case["status_reason"],
            "block_m": case["block_m"],
            "global_read_bytes_model": case["read_bytes"],
            "global_write_bytes_model": case["write_bytes"],
            "compulsory_read_bytes": case["compulsory_read_bytes"],
            "paper_bytes": case["paper"]["bytes"],
            **{name: case[name] for name in ("roofline_ms", "roofline_limiter", "roofline_source")},
            **{name: case["theory"][name] for name in ("sram_bytes", "theorem_elements", "algorithm_elements")},
            **{name: case["theory"][name] for name in ("m_elements", "bound_elements", "predicted_distance")},
        }.items():
            assert row[column] == ("" if expected is None else str(expected)), (column, case)
    assert not by_key


def test_very_many_cases_are_rows_of_their_own(cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    args = ("io-model", "--no-measure", "--impl", "flash2", "--format", "csv")
    per_case, per_tensor = "one row per case", ("K", "V", "Q", "O", "LSE")
    # 2,000 lengths with 6 batches.
    many = cli(*args, "--seq", "8..16000:8", "--batch", "1..6:1")
    assert len(many.out.splitlines()) == 1 + 12_000
    assert per_case in many.err
    # A table of as many is made one by one, and says what is quicker.
    monkeypatch.setattr("fa_bench.cli.io_model._MANY_CASES", 2)
    told = cli("io-model", "--no-measure", "--impl", "flash2", "--seq", "16..64:16", "--format", "md")
    assert "one by one: --format csv has a row per case in seconds." in told.err
    assert "flash2_fwd" in told.out
    monkeypatch.undo()
    few = cli(*args, "--seq", "16..64:16")
    assert few.err == ""
    assert [row["tensor"] for row in rows_of(few.out)[:5]] == ["Q", "K", "V", "O", "LSE"]
    assert {row["tensor"] for row in rows_of(few.out)} == set(per_tensor)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--per", "kernel", "--no-measure", "--format", "csv"), "--per: 'kernel' is neither tensor nor case."),
        (("--per", "case", "--format", "csv"), "--per case is for predictions as CSV."),
        (("--per", "case", "--no-measure"), "--per case is for predictions as CSV."),
        (("--dram", "--no-measure", "--format", "csv"), "--dram adds columns to the rows of --per case."),
        (("--dram", "--no-measure", "--format", "csv", "--per", "tensor"), "--dram adds columns"),
        (("--per", "case", "--no-measure", "--format", "csv", "--counters", "full"), "--no-measure counts nothing"),
        (
            ("--per", "case", "--no-measure", "--format", "csv", "--heads", "3,4", "--kv-heads", "2"),
            "3 is not a multiple of 2",
        ),
    ],
)
def test_rows_per_case_that_can_not_be_are_refused(cli: Callable, args: tuple[str, ...], said: str) -> None:
    ran = cli("io-model", "--seq", "512", *args)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_ctrl_c_leaves_whole_rows(cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    from fa_bench.grid import predict

    def until_interrupted(*args: object) -> Iterator[object]:
        yield next(whole(*args))
        raise KeyboardInterrupt

    whole = predict.blocks
    monkeypatch.setattr(predict, "blocks", until_interrupted)
    ran = cli("io-model", "--no-measure", "--per", "case", "--format", "csv", "--seq", "512,1k", "--causal", "both")
    assert ran.code == 130
    assert [row["seq_q"] for row in rows_of(ran.out)] == ["512", "1024"]
    assert ran.out.endswith("\n")
