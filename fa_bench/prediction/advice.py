"""What would have to change for a case to be faster, worked out from its prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from fa_bench.cases import Case
from fa_bench.model.gpu import Gpu
from fa_bench.prediction.kernels import TiledKernel
from fa_bench.prediction.timing import KernelTime, Pipe

#: What a pipe is called, and what would make its time shorter.
_WORDS: Final[Mapping[Pipe, tuple[str, str]]] = {
    "tensor": ("tensor cores", "only fewer FLOPs, a faster instruction or a higher clock would help"),
    "exp": ("special functions", "fewer exponentials on them would help, as polynomials on the multiply-adders"),
    "fma": ("multiply-adders", "less arithmetic per score would help"),
    "shared": ("shared memory", "more rows of Q per warp would read each operand less often"),
    "l2": ("L2", "larger tiles, or clusters that share them, would ask for fewer bytes"),
    "dram": ("DRAM", "fewer passes over memory would help: fusing, or 16-bit instead of 32-bit tensors"),
    "launch": ("launches", "a CUDA graph or a larger batch would hide them"),
}
#: Below this share of the time there is nothing to be gained by better balance.
_WORTH_A_WORD: Final = 0.05


def advice_for(case: Case, gpu: Gpu, terms_ms: Mapping[Pipe, float], longest: KernelTime, ms: float) -> tuple[str, ...]:
    """Sentences, the most useful first."""
    ranked = sorted(terms_ms, key=terms_ms.__getitem__, reverse=True)
    first = ranked[0]
    name, remedy = _WORDS[first]
    sentences = [f"{name[0].upper()}{name[1:]}: {_share(terms_ms[first], ms)} of the time busy; {remedy}."]
    second = ranked[1]
    both = terms_ms[first] + terms_ms[second]
    if both > ms and first != "launch" and second != "launch":
        hidden = (both - ms) / terms_ms[second]
        sentences.append(f"At least {hidden:.0%} of the time of {_WORDS[second][0]} is hidden behind it.")
    elif first != "launch":
        saved = ms - max(terms_ms[first], terms_ms["launch"])
        sentences.append(
            f"The other units ({_WORDS[second][0]} {_share(terms_ms[second], ms)}) and waiting take the rest; if all "
            f"hid behind it, {_share(saved, ms)} would be saved."
        )
    if isinstance(longest.kernel, TiledKernel) and 1 - longest.balance > _WORTH_A_WORD:
        sentences.append(_balance(case, gpu, longest.kernel, longest.balance))
    return tuple(sentences)


def _balance(case: Case, gpu: Gpu, kernel: TiledKernel, balance: float) -> str:
    idle = f"SMs wait {1 - balance:.0%} of the longest kernel for the last one to end"
    batch = _better_batch(case, gpu, kernel, balance)
    return (
        f"{idle}; a batch of {batch} would leave {1 - _balance_of(case, gpu, kernel, batch):.0%}."
        if batch
        else (f"{idle}.")
    )


def _better_batch(case: Case, gpu: Gpu, kernel: TiledKernel, balance: float) -> int | None:
    """The smallest larger batch, up to eight more or twice as large, that halves the waiting."""
    batch = case.shape.batch
    larger = (*range(batch + 1, batch + 9), 2 * batch)
    return next((b for b in larger if 1 - _balance_of(case, gpu, kernel, b) <= (1 - balance) / 2), None)


def _balance_of(case: Case, gpu: Gpu, kernel: TiledKernel, batch: int) -> float:
    grid = replace(kernel.grid, slices=kernel.grid.slices // case.shape.batch * batch)
    end = grid.end(gpu.sm_count, kernel.blocks_per_sm, 0.0)
    return grid.tiles / gpu.sm_count / end if end else 1.0


def _share(part_ms: float, ms: float) -> str:
    return f"{min(1.0, part_ms / ms) if math.isfinite(part_ms) else 1.0:.0%}"
