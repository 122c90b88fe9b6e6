"""The figures that speak for a tile or against it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from fa_bench.cases import Tile
from fa_bench.tuning.tiles import Lack

#: What may be worse than for the default, in the order in which it counts.
Against = Literal["smem", "registers", "grid", "spills", "one CTA", "warps", "bytes", "instructions", "wavefronts"]

#: By how much a figure must be worse to be named.
_WORSE: Final = 1.01


@dataclass(frozen=True, slots=True)
class Weighed:
    """A tile's figures for one case on one GPU; None where it can't run, or where nothing was counted.

    Parameters
    ----------
    tile : Tile
    lack : {"smem", "registers", "grid"}, optional
        What the GPU has too little of.
    registers, spill_bytes : int, optional
        Per thread: of the kernel with the most shared memory; over all kernels.
    blocks_per_sm, warps_per_sm : int, optional
        What an SM holds of that kernel.
    global_bytes : int, optional
        Read and written, by the model.
    instructions_per_score : float, optional
        Instructions of the PTX that a thread executes, over (query, key) pairs, hidden ones included.
    wavefronts_per_score : float, optional
        Clocks of shared memory over the same.
    """

    tile: Tile
    lack: Lack | None = None
    registers: int | None = None
    spill_bytes: int | None = None
    blocks_per_sm: int | None = None
    warps_per_sm: int | None = None
    global_bytes: int | None = None
    instructions_per_score: float | None = None
    wavefronts_per_score: float | None = None

    def against(self, default: Weighed) -> tuple[Against, ...]:
        """What is worse than for ``default``; empty if nothing of what is known here."""
        if self.lack is not None:
            return (self.lack,)
        # Where an SM holds one CTA alone, nothing computes while that one waits at its barriers.
        alone = self.blocks_per_sm == 1 and default.blocks_per_sm != 1
        figures: tuple[tuple[Against, float | None, float | None], ...] = (
            ("spills", self.spill_bytes, default.spill_bytes),
            ("one CTA", int(alone), 0),
            ("warps", default.warps_per_sm, self.warps_per_sm),
            ("bytes", self.global_bytes, default.global_bytes),
            ("instructions", self.instructions_per_score, default.instructions_per_score),
            ("wavefronts", self.wavefronts_per_score, default.wavefronts_per_score),
        )
        return tuple(
            name for name, more, less in figures if more is not None and less is not None and more > less * _WORSE
        )
