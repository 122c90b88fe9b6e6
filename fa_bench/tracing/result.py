"""What a trace is: the steps of one algorithm in the order in which they ran, and what its registers held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fa_bench.algorithms.base import Buffer, Op, Program
from fa_bench.backends.base import Verification
from fa_bench.cases import Case

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int = NDArray[np.int32]
Range = tuple[int, int]

#: What a step can compute: a tile of scores, the state m and l of rows, their weights, their accumulators.
Product = Literal["S", "state", "P", "O"]


@dataclass(frozen=True, slots=True)
class Touch:
    """What a step asks of one tensor in one direction.

    ``nbytes`` are whole sectors. ``rows`` and ``columns`` (first, one past the last) are the rectangle around them;
    a vector of rows has no columns.
    """

    tensor: str
    op: Op
    nbytes: int
    rows: Range
    columns: Range | None


@dataclass(frozen=True, slots=True)
class Step:
    """What a CTA does from one barrier to the next.

    Parameters
    ----------
    kernel : str
    cta : int
        Linear number in the grid.
    touches : tuple of Touch
    computed : tuple of str
        What the step left in the trace for the first time.
    rows, keys : (int, int) or None
        Which rows and keys that was: first, one past the last.
    """

    kernel: str
    cta: int
    touches: tuple[Touch, ...]
    computed: tuple[Product, ...]
    rows: Range | None
    keys: Range | None


@dataclass(frozen=True, slots=True)
class Values:
    """What the registers held, for R query rows and T tiles of block_n keys; NaN where nothing was left.

    Parameters
    ----------
    m, l, factor : ndarray of float32, ``[R, T]``
        Maximum of the scaled scores and sum of the exponentials after a tile; the factor by which what was accumulated
        before the tile shrank. Standard attention has m and l of the whole row alone, at the last tile.
    S, P : ndarray of float32, ``[R, T · block_n]``
        Scaled, masked scores; exponentials relative to the maximum at that time, for standard attention probabilities.
    O : ndarray of float32, ``[R, T, head_dim]``
        The accumulator after a tile.
    state_step, output_step : ndarray of int32, ``[R, T]``
        The step that left m and l, and O; -1 where none did.
    """

    m: Float32
    l: Float32  # noqa: E741 - the papers' name
    factor: Float32
    S: Float32
    P: Float32
    O: Float32  # noqa: E741 - likewise
    state_step: Int
    output_step: Int


@dataclass(frozen=True, slots=True)
class Counted:
    """Bytes of one kernel, tensor and direction: what the model says, and what the steps asked for."""

    kernel: str
    tensor: str
    op: Op
    predicted_bytes: int
    counted_bytes: int


@dataclass(frozen=True, slots=True)
class Trace:
    """One algorithm on one case, from start to end.

    Parameters
    ----------
    case : Case
    bug : str
        Name of the mistake in the kernels; empty for none.
    program : Program
        Buffers and launches, those of the trace left out.
    steps : tuple of Step
    values : Values
    output : ndarray of float64, ``[R, head_dim]``
        The O that was written.
    running : ndarray of float64, ``[R, T, head_dim]``
        O after a tile, divided by l where the accumulator isn't yet; NaN where the row has no such tile.
    exact : ndarray of float64, ``[R, head_dim]``
        O of attention in fp64.
    verification : Verification
    traffic : tuple of Counted
    """

    case: Case
    bug: str
    program: Program
    steps: tuple[Step, ...]
    values: Values
    output: Float64
    running: Float64
    exact: Float64
    verification: Verification
    traffic: tuple[Counted, ...]

    @property
    def tensors(self) -> tuple[Buffer, ...]:
        """All tensors in global memory, those that nothing touches left out."""
        touched = {touch.tensor for step in self.steps for touch in step.touches}
        return tuple(buffer for buffer in self.program.buffers if buffer.name in touched)

    @property
    def equal(self) -> bool:
        """Whether every byte is as the model says."""
        return all(part.predicted_bytes == part.counted_bytes for part in self.traffic)

    @property
    def total_bytes(self) -> int:
        """Bytes that the steps asked for."""
        return sum(part.counted_bytes for part in self.traffic)

    @property
    def row_errors(self) -> Float64:
        """Largest error of each row of the O that was written, ``[R]``."""
        errors: Float64 = np.abs(self.output - self.exact).max(axis=1)
        return errors

    @property
    def running_errors(self) -> Float64:
        """Largest distance of each row after a tile from the row's exact result, ``[R, T]``."""
        errors: Float64 = np.abs(self.running - self.exact[:, None]).max(axis=2)
        return errors


@dataclass(frozen=True, slots=True)
class Mistake:
    """What was wrong in the kernels.

    Parameters
    ----------
    name, title, lesson : str
        As ``--bug`` takes it; what is wrong; why, and how it shows.
    diffs : mapping of str to str
        Algorithm -> the change to its kernels, as a unified diff.
    absent : mapping of str to str
        Algorithm -> why it can't have the mistake.
    """

    name: str
    title: str
    lesson: str
    diffs: Mapping[str, str]
    absent: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Some algorithms on the same case, right and, if asked for, with a mistake.

    Parameters
    ----------
    right : tuple of Trace
    wrong : mapping of str to Trace
        Algorithm -> its run with the mistake; those that can't have it are not there.
    mistake : Mistake or None
    row : int
        The query row that is followed.
    """

    right: tuple[Trace, ...]
    wrong: Mapping[str, Trace]
    mistake: Mistake | None
    row: int

    @property
    def shown(self) -> Sequence[Trace]:
        """With the mistake where there is one, else right."""
        return [self.wrong.get(trace.case.impl, trace) for trace in self.right]

    @property
    def passed(self) -> bool:
        """Whether the right runs are right: result within its bound, bytes as the model says."""
        return all(trace.verification.passed and trace.equal for trace in self.right)


def as_range(values: NDArray[Any]) -> Range:
    """First, and one past the last, of some indices."""
    return int(values.min()), int(values.max()) + 1
