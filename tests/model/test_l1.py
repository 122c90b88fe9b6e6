"""L1 beside shared memory: carve-outs by compute capability, and what they leave."""

from __future__ import annotations

import pytest

from fa_bench.model import gpus
from fa_bench.model.gpu import Gpu
from fa_bench.model.l1 import carve_outs_bytes, l1_data_bytes
from fa_bench.model.occupancy import occupancy

KIB = 1024

#: CUDA C++ Programming Guide 13, shared memory capacity per compute capability: unified data cache, sizes, all in KB.
GUIDE = {
    (7, 0): (128, (0, 8, 16, 32, 64, 96)),
    (7, 5): (96, (32, 64)),
    (8, 0): (192, (0, 8, 16, 32, 64, 100, 132, 164)),
    (8, 6): (128, (0, 8, 16, 32, 64, 100)),
    (8, 9): (128, (0, 8, 16, 32, 64, 100)),
    (9, 0): (256, (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)),
    (10, 0): (256, (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)),
    (12, 0): (128, (0, 8, 16, 32, 64, 100)),
    (12, 1): (128, (0, 8, 16, 32, 64, 100)),
}


@pytest.mark.parametrize("gpu", gpus.all_gpus(), ids=lambda gpu: gpu.slug)
def test_every_gpu_has_the_sizes_of_its_compute_capability(gpu: Gpu) -> None:
    total_kib, sizes_kib = GUIDE[gpu.compute_capability]
    assert gpu.l1_bytes == total_kib * KIB
    assert carve_outs_bytes(gpu) == tuple(kib * KIB for kib in sizes_kib)
    assert carve_outs_bytes(gpu)[-1] == gpu.smem_per_sm_bytes


@pytest.mark.parametrize(
    ("name", "blocks", "smem_bytes", "l1_kib"),
    [
        # A30, 192 KiB. One CTA of 163 KiB: with the driver's 1 KiB it fills 164, 28 are left.
        ("a30", 1, 163 * KIB, 28),
        # 2 x (48 + 1) = 98 <= 100; a third makes 147 <= 164.
        ("a30", 2, 48 * KIB, 192 - 100),
        ("a30", 3, 48 * KIB, 192 - 164),
        # No shared memory of its own: 1 KiB each. 8 CTAs fill 8, 9 need 16, 32 need 32.
        ("a30", 8, 0, 192 - 8),
        ("a30", 9, 0, 192 - 16),
        ("a30", 32, 0, 192 - 32),
        # 64 KiB + 1 is one above the size of 64.
        ("a30", 1, 63 * KIB, 192 - 64),
        ("a30", 1, 64 * KIB, 192 - 100),
        # One byte more than 31 KiB: 32 KiB + 1 byte, rounded up to 128 bytes, is above 32.
        ("a30", 1, 31 * KIB, 192 - 32),
        ("a30", 1, 31 * KIB + 1, 192 - 64),
        # Ada: 128 KiB, no size between 64 and 100.
        ("l4", 2, 40 * KIB, 128 - 100),
        # Hopper: 3 x 65 = 195 <= 196.
        ("h100-sxm", 3, 64 * KIB, 256 - 196),
        # Turing never has less than 32 KiB of shared memory, and keeps nothing for the driver: 2 x 32 = 64.
        ("t4", 1, 0, 96 - 32),
        ("t4", 2, 32 * KIB, 96 - 64),
        # Volta: without shared memory all of it is L1.
        ("v100-sxm2-32", 4, 0, 128),
        ("v100-sxm2-32", 2, 48 * KIB, 128 - 96),
    ],
)
def test_what_a_carve_out_leaves(name: str, blocks: int, smem_bytes: int, l1_kib: int) -> None:
    assert l1_data_bytes(gpus.get(name), blocks, smem_bytes) == l1_kib * KIB


@pytest.mark.parametrize("gpu", gpus.all_gpus(), ids=lambda gpu: gpu.slug)
@pytest.mark.parametrize("smem_kib", [0, 1, 7, 16, 33, 48, 64])
def test_what_occupancy_admits_has_a_carve_out(gpu: Gpu, smem_kib: int) -> None:
    # Independent of this module: occupancy() divides the SM's most shared memory by what a CTA is given.
    blocks = occupancy(gpu, threads=128, smem_bytes=smem_kib * KIB, registers=0).blocks_per_sm
    left = l1_data_bytes(gpu, blocks, smem_kib * KIB)
    assert gpu.l1_bytes - gpu.smem_per_sm_bytes <= left <= gpu.l1_bytes


@pytest.mark.parametrize(
    ("blocks", "smem_bytes", "fault"),
    [
        (0, 0, "blocks_per_sm must be at least 1, not 0"),
        (1, -1, "smem_bytes must not be negative, but is -1"),
        (2, 82 * KIB, "2 CTAs with 83968 bytes of shared memory need 169984 bytes of an SM; a30 has 167936"),
    ],
)
def test_what_does_not_fit_is_refused(blocks: int, smem_bytes: int, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        l1_data_bytes(gpus.get("a30"), blocks, smem_bytes)
