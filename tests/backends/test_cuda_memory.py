"""Memory of the GPU: cases that cannot fit are not launched, and one that runs out leaves room for the next."""

from __future__ import annotations

from typing import Any

import pytest
from fake_cuda import CASE, FLUSH_BYTES, FakeCupy, OutOfMemoryError, make

from fa_bench import algorithms
from fa_bench.errors import OutOfMemory
from fa_bench.model import gpus
from fa_bench.model.gpu import Gpu
from fa_bench.sweep.plan import SweepRequest, plan

GIB = 2**30
GPU = gpus.get("a100-sxm-80")


def planned(memory: int, impl: str = "standard,flash2") -> dict[str, tuple[str, str]]:
    """What becomes of (4, 48, 16384, 128) where so much is free: implementation -> (status, reason)."""
    backend = make(FakeCupy(memory=memory))
    backend._lookup = algorithms.get
    request = SweepRequest(
        seqs=(16_384,), head_dims=(128,), batches=(4,), heads=(48,), impls=tuple(impl.split(",")), device="cuda"
    )
    return {cell.case.impl: (cell.status, cell.reason) for cell in plan(request, [backend], GPU).cases}


def test_standard_attention_beyond_memory_is_skipped_and_flash_of_the_same_shape_runs() -> None:
    # S alone is 4 · 48 · 16384² · 2 bytes = 96 GiB, P as much; Q, K, V and O 0.75 GiB each. LSE is of flash2 only.
    result = planned(80 * GIB)
    assert result["standard"] == ("skipped", "It needs 195 GiB of memory; 80.0 GiB are free.")
    assert result["flash2"] == ("run", "")
    assert planned(200 * GIB)["standard"] == ("run", "")


def test_what_does_not_fit_is_never_launched_even_where_the_driver_would_spill_to_the_host(any_gpu: Gpu) -> None:
    # Under WSL an allocation beyond the card's memory may succeed, and everything crawls: no error is to be relied on.
    cupy = FakeCupy(memory=16 * GIB)
    cupy.empty = lambda nbytes, dtype: pytest.fail("allocated")  # type: ignore[method-assign]
    backend = make(cupy)
    backend._lookup = algorithms.get
    request = SweepRequest(seqs=(65_536,), batches=(1,), heads=(4,), impls=("standard",), device="cuda")
    made = plan(request, [backend], any_gpu)
    assert made.runnable == () and "GiB are free" in made.cases[0].reason


class Pool:
    """CuPy's memory pool: it keeps the blocks of arrays that are gone until it is told to free them.

    A block serves again for an array of its own size only.
    """

    def __init__(self, cupy: FakeCupy) -> None:
        self.cupy, self.kept, self.live = cupy, dict[int, int](), dict[int, int]()
        cupy.empty, self._empty = self.empty, cupy.empty  # type: ignore[method-assign]
        cupy._release = self.release  # type: ignore[method-assign]

    def _settle(self) -> None:
        now: dict[int, int] = {}
        for array in self.cupy.arrays:
            now[array.nbytes] = now.get(array.nbytes, 0) + 1
        for nbytes, count in self.live.items():
            gone = count - now.get(nbytes, 0)
            self.kept[nbytes] = self.kept.get(nbytes, 0) + max(0, gone)
        self.live = now

    def empty(self, nbytes: int, dtype: type) -> Any:
        self._settle()
        if self.kept.get(nbytes):
            self.kept[nbytes] -= 1
        elif self.cupy.used() + sum(size * count for size, count in self.kept.items()) + nbytes > self.cupy.memory:
            raise OutOfMemoryError(f"out of memory allocating {nbytes} bytes")
        array = self._empty(nbytes, dtype)
        self.live[nbytes] = self.live.get(nbytes, 0) + 1
        return array

    def release(self) -> None:
        self._settle()
        self.kept.clear()


def test_a_pool_that_keeps_blocks_is_emptied_after_out_of_memory_and_the_next_case_runs(any_gpu: Gpu) -> None:
    cupy = FakeCupy()
    pool = Pool(cupy)
    backend = make(cupy)
    backend.run(CASE, any_gpu)
    assert cupy.used() == 0  # the buffer of the flush too is free for others, a profiler's process for one
    held = FLUSH_BYTES
    # Q, K, V, O, LSE and l: 512, 256, 256, 512, 64 and 64 bytes. Room for all of them, and 900 bytes of a neighbour.
    cupy.memory = held + 1664 + 900
    with backend._device:
        neighbour = backend._device.allocate(1000)
    with pytest.raises(OutOfMemory):
        backend.run(CASE, any_gpu)
    assert cupy.used() == 1000 and not pool.kept
    del neighbour
    pool.release()
    result = backend.run(CASE, any_gpu)
    assert result.verification is not None and result.verification.passed
