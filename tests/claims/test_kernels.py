"""Claims (p) and (q): what is counted while kernels run."""

from __future__ import annotations

import pytest
from judgements import passed, values

from fa_bench import reference
from fa_bench.algorithms.ladder import ladder_case
from fa_bench.claims import emulated, kernels
from fa_bench.compiler import nvrtc_available
from fa_bench.ladder import Step, run
from fa_bench.model import gpus

compiled = pytest.mark.skipif(nvrtc_available() is not None, reason=str(nvrtc_available()))


@compiled
def test_three_steps_are_fused_and_an_activation_is_not() -> None:
    """S and P written and read once each are 2 N² elements each; dropout on its own half an element per mask byte."""
    judgement = kernels.fused_steps()
    found = values(judgement)
    assert (found["launches"], found["launches_standard"]) == (1, 3)
    assert (found["saved_softmax"], found["saved_product"]) == (2, 2)
    assert found["saved_activation"] == 2 * 64 / 4096
    assert found["nonlinear"] < 1e-6
    assert passed(judgement) == {"launch"}


@compiled
def test_an_activation_would_be_found() -> None:
    judgement = kernels.fused_steps(activation=True)
    assert values(judgement)["nonlinear"] > 0.1
    assert judgement.verdict == "holds"


@compiled
def test_the_second_version_holds_as_counted() -> None:
    judgement = kernels.second_version()
    found = values(judgement)
    assert judgement.verdict == "holds"
    assert found["ctas"] == 32  # 4096 / 128 for one head, which has one CTA in flash1
    assert found["exchanged"] == 4  # 1024 wavefronts per 256 mma, see below; more than all of split-Q
    assert found["wavefronts_q"] < 4 < found["wavefronts_k"]
    # 1.03 N² over 0.5576 N²: 2·64/4096 + 1 + 1/4096 = 1.0315.
    assert found["elements"] == pytest.approx(1.0315 / 0.5576, abs=1e-3)


@compiled
def test_wavefronts_of_the_split_kernels_by_hand() -> None:
    """A tile of 64 x 64 at d = 64 is 256 mma, tiles of Q, K and V 8 KiB each, a wavefront 128 bytes.

    Split-Q: each of 4 warps reads its quarter of Q and all of K and V: 8 + 4 · 16 = 72 KiB, 576 wavefronts; K and V are
    stored once, 128. Split-K: all of Q and a quarter of K and V per warp, 4 · 8 + 16 = 48 KiB, 384 and 128; and parts
    of O, 4 warps · 64 · 64 floats = 64 KiB, are written and read: 1024. Maxima: 4 warps store 8 times and, of 64 rows
    and of the 16 that they add up, load 4 · 8 + 4 · 2 times: 192. Of N = 256 there are 4 x 4 tiles; Q is stored once in
    each row of them, 64, a quarter of a tile's each; at its end a CTA stores 32 and loads 32 sums.
    """
    case = ladder_case(256, 256)
    inputs = reference.make_inputs(case)
    tiles, rows = 16, 4
    q, k = (emulated.run_program(case, rung.program(case), inputs) for rung in (kernels.SPLIT_Q, kernels.SPLIT_K))
    assert q is not None and k is not None
    assert q.instructions["tensor"] == k.instructions["tensor"] == tiles * 256
    assert q.shared_wavefronts == tiles * (576 + 128) + rows * 64
    assert k.shared_wavefronts == tiles * (384 + 128 + 1024 + 192) + rows * (64 + 64)


@compiled
def test_both_split_kernels_ask_for_the_same_global_bytes() -> None:
    case = ladder_case(200, 300)  # ragged, and the result is held against float64
    inputs = reference.make_inputs(case)
    runs = [emulated.run_program(case, rung.program(case), inputs) for rung in (kernels.SPLIT_Q, kernels.SPLIT_K)]
    for rung, ran in zip((kernels.SPLIT_Q, kernels.SPLIT_K), runs, strict=True):
        assert ran is not None
        counted = {(part.tensor, part.op): part.bytes for part in ran.traffic}
        assert counted == {(part.tensor, part.op): part.bytes for part in rung.traffic(case)}


@compiled
def test_the_split_k_kernel_has_no_races_and_does_not_spill() -> None:
    """With the emulator's checks on: races between warps, missing waits, reads of what was never written."""
    case, rung = ladder_case(100, 150), kernels.SPLIT_K
    step = Step(rung.name, rung.idea, None, "", rung.program(case), rung.traffic(case))
    counted = run(step, case, gpus.get("a100-sxm-80"), checks=True)
    assert counted.verification.passed
    assert counted.equal
    assert counted.spill_bytes == 0


@compiled
def test_exchanging_the_split_kernels_turns_the_reading() -> None:
    judgement = kernels.second_version(split_k=kernels.SPLIT_Q, split_q=kernels.SPLIT_K)
    assert passed(judgement) == {"work", "parallelism"}


def test_without_a_compiler_the_rest_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated, "run", lambda case: None)
    monkeypatch.setattr(emulated, "run_program", lambda case, program, inputs: None)
    for judgement in (kernels.fused_steps(), kernels.second_version()):
        assert (judgement.lacking, judgement.verdict) == (("compiler",), "holds-if")
