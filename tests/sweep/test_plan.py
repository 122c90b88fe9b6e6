"""Axes become cases: order, tiles, duplicates, skips with reasons, bad input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fake_sweep import GPU, FakeAlgorithm, FakeBackend, algorithm_of, fake_backends
from hypothesis import given, settings
from hypothesis import strategies as st

from fa_bench.cases import Case, Tile
from fa_bench.errors import Unsupported, UsageError
from fa_bench.model import gpus
from fa_bench.sweep.plan import PlannedCase, SweepRequest, plan


def planned(request: SweepRequest, **backend: Any) -> tuple[PlannedCase, ...]:
    return plan(request, fake_backends(**backend), GPU, algorithm_of).cases


def test_lengths_ascend_and_implementations_are_neighbours() -> None:
    request = SweepRequest(seqs=(256, 128), head_dims=(64, 32), impls=("flash1", "flash2", "numpy"))
    order = [(p.case.shape.seq_q, p.case.shape.head_dim, p.case.impl) for p in planned(request)]
    impls = ("flash1", "flash2", "numpy")
    assert order == [(seq, d, impl) for seq in (128, 256) for d in (64, 32) for impl in impls]


def test_each_implementation_goes_to_the_first_backend_that_offers_it() -> None:
    backends = [FakeBackend("cuda", ("flash2", "numpy")), FakeBackend("host", ("numpy", "other"))]
    cases = plan(SweepRequest(seqs=(128,)), backends, GPU, algorithm_of).cases
    assert [(p.case.impl, p.backend) for p in cases] == [("flash2", "cuda"), ("numpy", "cuda"), ("other", "host")]


def test_tiles_multiply_only_what_has_tiles() -> None:
    request = SweepRequest(seqs=(128,), blocks=("auto", (64, 64)), stages=(1, 2), impls=("flash2", "numpy"))
    tiles = [(p.case.impl, p.case.tile) for p in planned(request)]
    assert tiles == [
        ("flash2", Tile(64, 32, 1, 4)),
        ("flash2", Tile(64, 32, 2, 4)),
        ("flash2", Tile(64, 64, 1, 4)),
        ("flash2", Tile(64, 64, 2, 4)),
        ("numpy", None),
    ]


def test_a_tile_that_auto_gives_too_is_run_once() -> None:
    request = SweepRequest(seqs=(128, 128), blocks=("auto", (64, 32), (64, 32)), impls=("flash2",))
    assert [str(p.case.tile) for p in planned(request)] == ["64x32"]


def test_too_much_shared_memory_is_skipped_and_a_missing_architecture_is_unsupported() -> None:
    # FakeAlgorithm asks 200,000 bytes for 128-row tiles; an A100 gives a block 166,912.
    request = SweepRequest(seqs=(128,), blocks=((128, 64), (64, 64)), impls=("flash2",))
    outcome = [(p.status, p.reason) for p in planned(request)]
    assert outcome == [("skipped", "It needs 200000 bytes of shared memory; 64x64 fits."), ("run", "")]
    old = replace(GPU, compute_capability=(7, 5), smem_per_block_bytes=65536)
    (case,) = plan(replace(request, blocks=((64, 64),)), fake_backends(), old, algorithm_of).cases
    assert (case.status, case.reason) == ("unsupported", "It needs sm_80.")


def test_without_a_legal_tile_the_case_is_one_unsupported_row() -> None:
    class Tileless(FakeAlgorithm):
        def auto_tile(self, case: Case, gpu: object) -> Tile:
            raise Unsupported("No tile fits.")

    request = SweepRequest(seqs=(128,), stages=(1, 2), impls=("flash2",))
    (case,) = plan(request, fake_backends(), GPU, Tileless).cases
    assert (case.case.tile, case.status, case.reason) == (None, "unsupported", "No tile fits.")


def test_a_backend_can_say_at_planning_that_it_lacks_a_case() -> None:
    class Fp32Only(FakeBackend):
        def required_bytes(self, case: Case) -> int:
            if case.dtype != "fp32":
                raise Unsupported("numpy computes in fp32.")
            return 1

    request = SweepRequest(seqs=(128,), dtypes=("fp16", "fp32"))
    cases = plan(request, [Fp32Only("host", ("numpy",))], GPU, algorithm_of).cases
    assert [(p.case.dtype, p.status, p.reason) for p in cases] == [
        ("fp16", "unsupported", "numpy computes in fp32."),
        ("fp32", "run", ""),
    ]


def test_more_memory_than_is_free_is_skipped_with_both_figures() -> None:
    # The fake backend needs 1000 bytes per query row: 512,000 bytes = 500 KiB at 512, of which 250 KiB are free.
    request = SweepRequest(seqs=(256, 512), impls=("flash2",))
    small, large = planned(request, free_bytes=256_000)
    assert (small.status, small.required_bytes) == ("run", 256_000)
    assert (large.status, large.required_bytes) == ("skipped", 512_000)
    assert large.reason == "It needs 500 KiB of memory; 250 KiB are free."


def test_planning_runs_nothing() -> None:
    backends = fake_backends()
    plan(SweepRequest(seqs=(128,)), backends, GPU, algorithm_of)
    assert [backend.ran for backend in backends] == [[], []]


def test_batches_heads_and_kv_heads_are_axes() -> None:
    request = SweepRequest(seqs=(128, 64), batches=(1, 4, 1), heads=(8, 16), heads_kv=(2, 8), impls=("numpy",))
    shapes = [(s.seq_q, s.batch, s.heads_q, s.heads_kv) for s in request.shapes()]
    heads = [(8, 2), (8, 8), (16, 2), (16, 8)]
    assert shapes == [(seq, batch, *pair) for seq in (64, 128) for pair in heads for batch in (1, 4)]


def test_any_value_that_is_off_is_found_among_many() -> None:
    # Each alone is fine: 2 million sequences of 2048 heads are more slices than a grid holds, 12 heads don't share 8.
    for axes in ({"batches": (1, 2**21), "heads": (1, 2048)}, {"heads": (8, 12, 16), "heads_kv": (4, 8)}):
        with pytest.raises(UsageError):
            SweepRequest(seqs=tuple(range(1, 5000)), impls=("numpy",), **axes)


def test_tokens_and_hidden_set_batch_and_heads() -> None:
    request = SweepRequest(seqs=(512, 1024), head_dims=(64, 128), tokens=16384, hidden=2048, impls=("numpy",))
    # 16384 / 512 = 32 and 16384 / 1024 = 16 sequences; 2048 / 64 = 32 and 2048 / 128 = 16 heads.
    shapes = [(s.seq_q, s.batch, s.head_dim, s.heads_q, s.heads_kv) for s in request.shapes()]
    assert shapes == [
        (512, 32, 64, 32, 32),
        (512, 32, 128, 16, 16),
        (1024, 16, 64, 32, 32),
        (1024, 16, 128, 16, 16),
    ]


def test_key_lengths_combine_with_query_lengths() -> None:
    request = SweepRequest(seqs=(1, 300), seqs_kv=(300, 127), heads=(8,), heads_kv=(2,))
    assert [(s.seq_q, s.seq_kv) for s in request.shapes()] == [(1, 127), (1, 300), (300, 127), (300, 300)]
    assert {(s.heads_q, s.heads_kv) for s in request.shapes()} == {(8, 2)}


@pytest.mark.parametrize(
    ("axes", "sentence"),
    [
        ({"seqs": ()}, "The axis seqs is empty."),
        ({"seqs": (0,)}, "seq_q must be at least 1, not 0."),
        ({"seqs_kv": (0,)}, "seq_kv must be at least 1, not 0."),
        ({"head_dims": (65,)}, "head_dim must be a multiple of 8 up to 256, not 65."),
        ({"blocks": ((48, 7),)}, "block_n must be a multiple of 16 from 16 to 256, not 7."),
        ({"stages": (3,)}, "stages must be 1 or 2, not 3."),
        ({"dtypes": ("fp64",)}, "dtype must be one of fp16, bf16, fp32, not 'fp64'."),
        ({"layouts": ("sbhd",)}, "layout must be one of bhsd, bshd, not 'sbhd'."),
        ({"heads": (8,), "heads_kv": (3,)}, "heads_q must be a multiple of heads_kv, but 8 is not a multiple of 3."),
        ({"batches": (0,)}, "batch must be at least 1, not 0."),
        ({"batches": (2,), "tokens": 1024}, "batch and tokens can't both be given: tokens sets the batch."),
        ({"heads": (2,), "hidden": 128}, "heads and hidden can't both be given: hidden sets the heads."),
        ({"tokens": 64}, "64 tokens hold no sequence of length 128."),
        ({"hidden": 32}, "A hidden size of 32 holds no head of 64."),
        ({"seed": -1}, "seed must be at least 0, not -1."),
    ],
)
def test_bad_axes_are_refused_at_once(axes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        SweepRequest(**({"seqs": (128,)} | axes))
    assert caught.value.message == sentence


def test_an_unknown_implementation_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        planned(SweepRequest(seqs=(128,), impls=("flahs2",)))
    assert caught.value.message == "Implementation 'flahs2' does not run on emulator, host here."
    assert caught.value.hint == "Did you mean 'flash2'?"


@settings(deadline=None, max_examples=50)
@given(
    seqs=st.lists(st.integers(1, 4096), min_size=1, max_size=4),
    head_dims=st.lists(st.integers(1, 32).map(lambda n: 8 * n), min_size=1, max_size=2),
    causal=st.lists(st.booleans(), min_size=1, max_size=3),
    blocks=st.lists(st.sampled_from(["auto", (64, 32), (64, 64), (128, 64)]), min_size=1, max_size=3),
    impls=st.lists(st.sampled_from(["flash1", "flash2", "numpy"]), max_size=3),
    free_bytes=st.none() | st.integers(0, 4_096_000),
)
def test_a_plan_names_every_case_once_and_gives_a_reason_for_what_it_skips(
    seqs: list[int], head_dims: list[int], causal: list[bool], blocks: list[Any], impls: list[str], free_bytes: int
) -> None:
    request = SweepRequest(
        seqs=tuple(seqs), head_dims=tuple(head_dims), causal=tuple(causal), blocks=tuple(blocks), impls=tuple(impls)
    )
    cases = planned(request, free_bytes=free_bytes)
    ids = [p.case.case_id for p in cases]
    assert len(ids) == len(set(ids))
    lengths = [p.case.shape.seq_q for p in cases]
    assert lengths == sorted(lengths)
    assert set(lengths) == set(seqs)
    assert all((p.status == "run") == (p.reason == "") for p in cases)
    assert cases == planned(request, free_bytes=free_bytes)


def test_every_known_gpu_can_be_a_target() -> None:
    request = SweepRequest(seqs=(128,), impls=("flash2",))
    for gpu in gpus.all_gpus():
        (case,) = plan(request, fake_backends(), gpu, algorithm_of).cases
        assert (case.status == "run") == (gpu.compute_capability >= (8, 0))


def test_a_packed_batch_stands_for_lengths_and_batch() -> None:
    lengths = ((5, 7), (0, 3))
    request = SweepRequest(seqs=(), seqlens=lengths, head_dims=(32, 64), causal=(False, True), hidden=128)
    shapes = list(request.shapes())
    assert [(s.head_dim, s.heads_q, s.causal) for s in shapes] == [
        (32, 4, False), (32, 4, True), (64, 2, False), (64, 2, True),
    ]  # fmt: skip
    assert {(s.batch, s.seq_q, s.seq_kv, s.seqlens) for s in shapes} == {(2, 5, 7, lengths)}


@pytest.mark.parametrize("beside", [{"seqs": (128,)}, {"seqs_kv": (128,)}, {"batches": (2,)}, {"tokens": 64}], ids=repr)
def test_beside_a_packed_batch_there_are_no_lengths(beside: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="seqlens stand for"):
        SweepRequest(**{"seqs": (), "seqlens": ((5, 7),), **beside})
