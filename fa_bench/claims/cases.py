"""Cases of one sequence length with an algorithm's default tile, and what is exactly known of them without running."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from fa_bench import algorithms
from fa_bench.algorithms.base import Program, TensorBytes, Work
from fa_bench.cases import AttentionShape, Case, Direction, DType, Tile
from fa_bench.model import gpus
from fa_bench.model.dram import dram_traffic
from fa_bench.model.gpu import Gpu

#: The shared memory that the statements take for M: all that an A100's SM has, L1 included.
M_BYTES: Final = 192 * 1024
#: The sequence and the head that they take for an example.
N, D = 4096, 64
FP16, FP32 = 2, 4


def a100(gib: int = 40) -> Gpu:
    """The GPU that the statements speak of, with 40 GiB (the first paper's) or 80."""
    return gpus.get(f"a100-sxm-{gib}")


@dataclass(frozen=True, slots=True)
class Known:
    """A case and what its models say.

    Parameters
    ----------
    case : Case
        With its tile.
    program : Program
    traffic : tuple of TensorBytes
        Exact global bytes.
    work : Work
    """

    case: Case
    program: Program
    traffic: tuple[TensorBytes, ...]
    work: Work

    @property
    def global_bytes(self) -> int:
        """Bytes that its instructions ask of memory."""
        return sum(part.bytes for part in self.traffic)

    @property
    def extra_bytes(self) -> int:
        """Bytes of its buffers beyond Q, K, V and O."""
        return sum(buffer.nbytes for buffer in self.program.buffers if buffer.name not in ("Q", "K", "V", "O"))

    def moved(self, tensor: str, op: str) -> int:
        """Global bytes of one tensor, read or written, over all kernels."""
        return sum(part.bytes for part in self.traffic if (part.tensor, part.op) == (tensor, op))

    def dram_bytes(self, gpu: Gpu) -> int:
        """Estimate of what crosses between L2 and DRAM."""
        return sum(part.bytes for part in dram_traffic(self.program, self.traffic, gpu))


def known(
    impl: str,
    seq: int,
    head_dim: int = D,
    *,
    heads: int = 1,
    dtype: DType = "fp16",
    direction: Direction = "fwd",
    tile: Tile | None = None,
) -> Known:
    """What the models say of a square case, in ``tile`` or the algorithm's default for an A100."""
    algorithm = algorithms.get(impl)
    bare = Case(impl, AttentionShape(1, heads, heads, seq, seq, head_dim), dtype, direction=direction)
    case = replace(bare, tile=algorithm.resolve(bare, tile or algorithm.auto_tile(bare, a100())))
    traffic, work = algorithm.traffic(case), algorithm.work(case)
    assert traffic is not None and work is not None
    return Known(case, algorithm.program(case), tuple(traffic), work)


def exponent(lengths: Sequence[int], value: Callable[[int], float]) -> float:
    """The power of N that ``value`` grows with: slope of the least-squares line through logarithms.

    Examples
    --------
    >>> round(exponent([2, 4, 8], lambda n: 5 * n**3), 9)
    3.0
    """
    return float(np.polyfit([math.log(n) for n in lengths], [math.log(value(n)) for n in lengths], 1)[0])
