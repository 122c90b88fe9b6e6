"""What the models need to know of a GPU. The data are TOML files: see ``fa_bench.model.gpus``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Threads of a warp on every NVIDIA GPU.
WARP_SIZE: Final = 32


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU; peaks are dense data-sheet figures with fp32 accumulation.

    ``None`` means that the unit does not exist or that no source gives the figure.

    Attributes
    ----------
    slug, name, aliases
        Short name (``a100-sxm-80``), the maker's name, and other spellings that the registry accepts.
    l2_bytes, l2_partitions
        L2 in all, and the partitions that it has: 2 where each SM is wired to one half of it, which keeps copies of
        lines that the other half is the home of.
    l1_bytes
        The memory of an SM that L1 and shared memory divide; ``fa_bench.model.l1`` says how.
    smem_per_block_bytes
        The most shared memory that one CTA may ask for (opt-in limit).
    boost_mhz, boost_max_mhz
        The SM clock that the tensor peaks refer to, and the highest clock that the driver may set.
    mem_bytes
        Capacity. Data sheets write GB for 2^30 bytes of memory; the driver keeps part of it.
    mem_bandwidth_gbs
        Peak DRAM bandwidth in 10^9 bytes per second.
    mufu_per_clk_per_sm
        Special functions (``ex2``, ``rcp`` …) per clock and SM.
    smem_bytes_per_clk_per_sm
        Shared-memory bandwidth: 32 banks of 4 bytes.
    board_power_w
        The board's power limit in watts, None where no source gives it for the GPU alone.
    unverified
        Names of the fields whose figure rests on a single or indirect source.
    """

    slug: str
    name: str
    aliases: tuple[str, ...]
    arch: str
    compute_capability: tuple[int, int]
    sm_count: int
    l2_bytes: int
    l2_partitions: int
    l1_bytes: int
    smem_per_sm_bytes: int
    smem_per_block_bytes: int
    regs_per_sm: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    boost_mhz: float
    boost_max_mhz: float
    mem_bytes: int
    mem_type: str
    mem_bandwidth_gbs: float
    fp16_tensor_tflops: float | None
    bf16_tensor_tflops: float | None
    tf32_tensor_tflops: float | None
    fp8_tensor_tflops: float | None
    fp32_tflops: float
    mufu_per_clk_per_sm: int
    smem_bytes_per_clk_per_sm: int
    sources: tuple[str, ...]
    board_power_w: float | None = None
    unverified: tuple[str, ...] = ()
    note: str = ""

    @property
    def sm(self) -> str:
        """The architecture as NVRTC spells it, e.g. ``sm_80``."""
        return f"sm_{self.compute_capability[0]}{self.compute_capability[1]}"

    def tensor_tflops(self, dtype: str) -> float | None:
        """Dense tensor-core peak for operands of ``dtype``, in 10^12 FLOP/s.

        ``fp32`` operands run on tensor cores as TF32.
        """
        return {
            "fp16": self.fp16_tensor_tflops,
            "bf16": self.bf16_tensor_tflops,
            "fp32": self.tf32_tensor_tflops,
        }[dtype]
