"""``fa-bench check``: the grid, its order, and that it can fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from fa_bench.cases import Case
from fa_bench.compiler import nvrtc_available


def test_the_whole_grid_passes_and_is_complete(cli: Callable, fakes: Callable, emulator: Callable) -> None:
    backend = emulator()
    fakes(backend)
    ran = cli("check")
    assert ran.code == 0
    grid = {
        (case.impl, case.dtype, case.shape.head_dim, case.shape.seq_q, case.shape.seq_kv, case.shape.causal)
        for case in backend.ran
    }
    # 3 kernels x 3 types x 4 head dimensions x 4 lengths x mask on and off.
    assert len(grid) == 3 * 3 * 4 * 4 * 2
    assert {(case.shape.heads_q, case.shape.heads_kv) for case in backend.ran} == {(8, 2)}
    assert ran.out.count("pass") == 1 + 9  # a column's title and a line per kernel and type
    assert max(map(len, ran.out.splitlines())) <= 80


def test_cheap_cases_come_first(cli: Callable, fakes: Callable, emulator: Callable) -> None:
    backend = emulator()
    fakes(backend)
    cli("check", "--impl", "flash2")
    assert backend.ran[0].shape.seq_q == 1
    last = backend.ran[-1]
    assert (last.shape.seq_q, last.shape.head_dim, last.dtype) == (1000, 256, "fp32")


def test_every_slice_is_run(
    cli: Callable, fakes: Callable, emulator: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fa_bench import backends

    asked: list[dict[str, object]] = []
    fakes(emulator())
    fake_open = backends.open_backend
    monkeypatch.setattr(backends, "open_backend", lambda name, **how: asked.append(how) or fake_open(name))
    cli("check", "--seq", "1", "--impl", "flash2", "--jobs", "3")
    assert [(how["jobs"], how["all_slices"]) for how in asked] == [(3, True)]


@pytest.mark.parametrize("fault", [{"wrong": True}, {"extra_bytes": 32}])
def test_a_failure_is_said_and_the_code_is_1(fault: dict, cli: Callable, fakes: Callable, emulator: Callable) -> None:
    fakes(emulator(**fault))
    ran = cli("check", "--seq", "1", "--impl", "flash2", "--dtype", "fp16", "--head-dim", "64", "--quiet")
    assert ran.code == 1
    assert ran.err.count("FAIL flash2") == 2
    assert "FAIL" in ran.out


def test_an_exception_is_a_failure(cli: Callable, fakes: Callable, emulator: Callable) -> None:
    def broken(case: Case) -> None:
        raise ValueError("a defect\nin two lines")

    fakes(emulator(on_run=broken))
    ran = cli("check", "--seq", "1", "--impl", "flash2", "--dtype", "fp16", "--head-dim", "64", "--no-causal")
    assert ran.code == 1
    assert "error. ValueError: a defect in two lines" in ran.err


def test_heads_alone_mean_as_many_kv_heads(cli: Callable, fakes: Callable, emulator: Callable) -> None:
    backend = emulator()
    fakes(backend)
    cli("check", "--heads", "3", "--seq", "5x7", "--impl", "flash2", "--dtype", "fp16", "--head-dim", "8", "--causal")
    assert [(c.shape.heads_q, c.shape.heads_kv, c.shape.seq_q, c.shape.seq_kv) for c in backend.ran] == [(3, 3, 5, 7)]


def test_a_packed_batch_takes_the_place_of_the_lengths(cli: Callable, fakes: Callable, emulator: Callable) -> None:
    backend = emulator()
    fakes(backend)
    ran = cli("check", "--seqlens", "5x7,0x3,4", "--dtype", "fp16", "--head-dim", "64", "--causal")
    assert ran.code == 0
    assert [(case.impl, case.shape.seqlens) for case in backend.ran] == [("flash2", ((5, 7), (0, 3), (4, 4)))]


def test_on_a_gpu_the_grid_is_the_same(cli: Callable, fakes: Callable, emulator: Callable) -> None:
    backend = emulator("cuda", "NVIDIA A100-SXM4-80GB")
    fakes(backend)
    ran = cli("check", "--impl", "flash2", "--dtype", "fp16", "--head-dim", "64", "--no-causal")
    assert ran.code == 0
    assert [(c.shape.batch, c.shape.heads_q, c.shape.seq_q) for c in backend.ran] == [
        (1, 8, 1), (1, 8, 127), (1, 8, 300), (1, 8, 1000),
    ]  # fmt: skip
    assert "4/4 done" not in ran.err
    assert "3/4 done" in ran.err


def test_json_says_whether_it_passed(cli: Callable, fakes: Callable, emulator: Callable) -> None:
    fakes(emulator())
    document = json.loads(cli("check", "--seq", "1", "--impl", "flash2", "--format", "json").out)
    assert (document["schema"], document["passed"]) == (1, True)
    assert len(document["records"]) == 3 * 4 * 2


@pytest.mark.skipif(nvrtc_available() is not None, reason=f"no compiler: {nvrtc_available()}")
def test_on_the_real_emulator(cli: Callable) -> None:
    ran = cli("check", "--impl", "flash2", "--seq", "33x65", "--head-dim", "40", "--dtype", "fp16", "--causal")
    assert ran.code == 0, ran.err
    assert "1/1" in ran.out


def test_a_check_that_could_run_nothing_is_no_success(cli: Callable, fakes: Callable, emulator: Callable) -> None:
    backend = emulator()
    fakes(backend)
    ran = cli("check", "--impl", "flash2-atomic", "--seq", "64", "--head-dim", "64")
    assert (ran.code, ran.out, backend.ran) == (2, "", [])
    assert "Nothing could be checked. flash2-atomic has no kernels for fwd" in ran.err


def test_all_takes_what_each_kernel_was_made_for(cli: Callable, fakes: Callable, emulator: Callable) -> None:
    backend = emulator()
    fakes(backend)
    ran = cli("check", "--all", "--dtype", "fp16", "--head-dim", "64")
    assert ran.code == 0
    directions = {(case.impl, case.direction) for case in backend.ran}
    assert {("standard", "bwd"), ("flash2", "fwd+bwd"), ("flash2-atomic", "bwd"), ("flash1", "fwd")} <= directions
    assert ("flash1", "bwd") not in directions and ("flash2-atomic", "fwd") not in directions
    fused = {word for case in backend.ran for word in case.features.named} | {
        "window" for case in backend.ran if case.shape.windowed
    }
    # Scores of standard normal inputs reach about 4, so that a softcap of 2 shows in any type.
    assert fused == {"softcap 2", "bias", "alibi", "sinks", "dropout 0.1", "window"}


def test_all_has_what_is_fused_in_fp32(cli: Callable, fakes: Callable, emulator: Callable) -> None:
    backend = emulator()
    fakes(backend)
    assert cli("check", "--all", "--head-dim", "64", "--no-causal").code == 0
    fused = [case for case in backend.ran if case.dtype == "fp32" and (case.features.named or case.shape.windowed)]
    # flash2's kernels for that are of 16 bits.
    assert {(case.impl, case.direction) for case in fused} == {("standard", "fwd"), ("standard", "bwd")}
    assert len(fused) == 3


def test_all_has_each_kernel_and_pass_in_the_other_layout(cli: Callable, fakes: Callable, emulator: Callable) -> None:
    backend = emulator()
    fakes(backend)
    assert cli("check", "--all", "--dtype", "fp16", "--head-dim", "40").code == 0
    other = [case for case in backend.ran if case.layout == "bshd"]
    passes = {(case.impl, case.direction) for case in other}
    assert passes == {
        *((impl, "fwd") for impl in ("standard", "flash1", "flash2")),
        *((impl, "bwd") for impl in ("standard", "flash2", "flash2-atomic")),
    }
    assert {(case.impl, case.direction) for case in other if case.shape.windowed} == passes - {("flash1", "fwd")}
    assert {case.impl for case in other if case.shape.seqlens is not None} == {"flash2"}
    # Each is one that is there in the first layout too, so that its kernels are compiled already.
    first = {replace(case, layout="bshd") for case in backend.ran if case.layout == "bhsd"}
    assert set(other) <= first
