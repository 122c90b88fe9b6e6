"""Buffers: alignment, poison, gaps, lookup."""

from itertools import pairwise

import numpy as np
import pytest

from fa_bench.ptx.memory import GUARD_BYTES, Memory


def test_allocations_are_aligned_poisoned_and_apart():
    memory = Memory()
    for k, nbytes in enumerate([1, 256, 1000, 4096]):
        buffer = memory.allocate(f"b{k}", nbytes)
        assert buffer.shape == (nbytes,) and buffer.dtype == np.uint8
        assert memory.address(f"b{k}") % 256 == 0
        assert (buffer == 0xFF).all()
    buffers = memory.buffers()
    assert [b.address for b in buffers] == sorted(b.address for b in buffers)
    for one, other in pairwise(buffers):
        assert other.address - (one.address + one.nbytes) >= GUARD_BYTES


def test_poison_is_nan_in_every_float_type():
    memory = Memory()
    buffer = memory.allocate("x", 16)
    assert np.isnan(buffer.view(np.float32)).all()
    assert np.isnan(buffer.view(np.float16)).all()


def test_find_and_nearest():
    memory = Memory()
    assert memory.find(0) is None and memory.nearest(0) is None
    memory.allocate("a", 100)
    memory.allocate("b", 100)
    low, high = memory.buffers()
    assert memory.find(low.address) == memory.find(low.address + 99) == low
    assert memory.find(low.address - 1) is None and memory.find(low.address + 100) is None
    assert memory.nearest(low.address - 5) == low
    assert memory.nearest(low.address + 104) == low
    assert memory.nearest(high.address - 5) == high
    assert memory.nearest(high.address + 50) == high
    # Between them: the last byte of a is at distance m, the first of b one further.
    middle = (low.address + 99 + high.address) // 2
    assert memory.nearest(middle) == low


def test_registered_arrays_are_used_in_place():
    memory = Memory()
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    memory.register("x", array)
    assert memory.buffers() == [("x", array.ctypes.data, 24)]
    memory.array("x").view(np.float32)[4] = 50
    assert array[1, 1] == 50


def test_what_cannot_be_registered():
    memory = Memory()
    whole = np.zeros(100, np.uint8)
    memory.register("x", whole[20:60])
    with pytest.raises(ValueError, match="overlaps buffer 'x'"):
        memory.register("y", whole[:21])
    with pytest.raises(ValueError, match="overlaps buffer 'x'"):
        memory.register("y", whole[59:])
    with pytest.raises(ValueError, match="a buffer 'x' already"):
        memory.register("x", whole[80:])
    with pytest.raises(ValueError, match="C-contiguous"):
        memory.register("y", whole[::2])
    with pytest.raises(ValueError, match="not empty"):
        memory.register("y", whole[:0])
    with pytest.raises(ValueError, match="at least 1 byte"):
        memory.allocate("y", 0)
    memory.register("y", whole[:20])
    memory.register("z", whole[60:])
    assert [b.name for b in memory.buffers()] == ["y", "x", "z"]
