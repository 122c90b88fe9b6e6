"""A user's kernel as an Algorithm: what its TOML file says, put in numbers for a case.

Nobody derived its traffic, so it has no model: ``traffic`` and ``work`` are None. What it moves is counted, and what
it computes is verified, like that of any other kernel.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from fa_bench.algorithms.base import PLAIN, Buffer, KernelSpec, Launch, Program, Scalar
from fa_bench.algorithms.expression import Expression, ExpressionError, Number
from fa_bench.algorithms.tensors import padded_head_dim, qkvo, row_vector
from fa_bench.algorithms.tiles import GRID_LIMIT
from fa_bench.algorithms.user_file import UserFile, UserKernel, UserScalar, UserTile, UserWorkspace, read
from fa_bench.cases import DTYPES, LAYOUTS, Case, Direction, Tile
from fa_bench.errors import UsageError
from fa_bench.model.gpu import Gpu
from fa_bench.units import format_bytes

#: Largest extents of a grid in y and z, most threads of a CTA, and its largest extent in z.
GRID_YZ_LIMIT: Final = 65_535
THREADS_LIMIT: Final = 1024
BLOCK_Z_LIMIT: Final = 64

_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*")
_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "bool": (0, 1),
    "i32": (-(2**31), 2**31 - 1),
    "u32": (0, 2**32 - 1),
    "i64": (-(2**63), 2**63 - 1),
    "u64": (0, 2**64 - 1),
}


def load(path: Path) -> UserAlgorithm:
    """The implementation that the TOML file at ``path`` describes, named after the file.

    Raises
    ------
    UsageError
        If the file or its name is off.
    """
    if not _NAME.fullmatch(path.stem):
        raise UsageError(
            f"{str(path)!r} names an implementation {path.stem!r}; a name has letters, digits, '.', '_' and '-'."
        )
    return UserAlgorithm(read(path))


class UserAlgorithm:
    """The Algorithm of a TOML file (see :mod:`fa_bench.algorithms.base`).

    Parameters
    ----------
    file : UserFile
    """

    def __init__(self, file: UserFile) -> None:
        self.file = file
        self.name = file.path.stem
        self.content = file.content
        self.version = file.content
        self.summary = file.summary
        self.uses_tile = file.tile is not None
        self.directions: tuple[Direction, ...] = ("fwd",)
        self.fused = PLAIN

    def auto_tile(self, case: Case, gpu: Gpu) -> Tile:
        """The file's default tile."""
        rule, fields = self._tile(), case_fields(case)
        sizes = {name: self._whole(f"tile.{name}", getattr(rule, name), fields) for name in ("block_m", "block_n")}
        stages = self._whole("tile.stages", rule.stages, fields)
        return self.resolve(case, self._legal(sizes["block_m"], sizes["block_n"], stages))

    def resolve(self, case: Case, tile: Tile) -> Tile:
        """``tile`` with the file's ``num_warps``, which may follow from the rest."""
        if tile.num_warps:
            return tile
        fields = case_fields(case) | {"block_m": tile.block_m, "block_n": tile.block_n, "stages": tile.stages}
        warps = self._whole("tile.num_warps", self._tile().num_warps, fields)
        return self._legal(tile.block_m, tile.block_n, tile.stages, warps)

    def smem_bytes(self, case: Case) -> int:
        """The most dynamic shared memory that a launch takes; static shared memory is known after compiling."""
        return max(launch.smem_bytes for launch in self.program(case).launches)

    def unsupported(self, case: Case, gpu: Gpu) -> str | None:
        """Why ``case`` can't run on ``gpu``, or None."""
        can, shape = self.file.supports, case.shape
        capability = gpu.compute_capability[0] + gpu.compute_capability[1] / 10
        for what, value, known in (
            ("dtype", case.dtype, can.dtypes),
            ("head_dim", shape.head_dim, can.head_dims),
            ("layout", case.layout, can.layouts),
        ):
            if known and value not in known:
                *others, last = map(str, known)
                either = f"{', '.join(others)} or {last}" if others else last
                return f"{self.name} takes {what} {either}, not {value}."
        if shape.causal not in can.causal:
            return (
                f"{self.name} is for causal attention only." if can.causal == (True,) else f"{self.name} has no mask."
            )
        if capability < can.compute_capability:
            return f"{self.name} needs compute capability {can.compute_capability}; {gpu.name} has {capability}."
        for k, needed in enumerate(can.requires):
            if not self._number(f"supports.requires[{k}]", needed, self._fields(case)):
                return f"{self.name} requires {needed.text}."
        for kernel, launch in zip(self.file.kernels, self.program(case).launches, strict=True):
            if clause := _beyond_limits(launch, gpu):
                return f"{self.name}: {kernel.key}.{clause}."
        return None

    def program(self, case: Case) -> Program:
        """Buffers and launches of ``case``.

        Raises
        ------
        UsageError
            If an expression gives no number that can stand where it stands.
        """
        fields = self._fields(case)
        used = {arg for kernel in self.file.kernels for arg in kernel.args if isinstance(arg, str)}
        tensors = [*qkvo(case), row_vector("LSE", case, "output")]
        buffers = [
            *(tensor for tensor in tensors if tensor.name in used),
            *(self._buffer(workspace, fields) for workspace in self.file.workspaces),
        ]
        return Program(tuple(buffers), tuple(self._launch(kernel, fields) for kernel in self.file.kernels))

    def traffic(self, case: Case) -> None:
        """Nobody derived it."""

    def work(self, case: Case) -> None:
        """Nobody counted it."""

    def explain(self, case: Case) -> str:
        """That there is no derivation."""
        return f"{self.name} has no traffic model: its bytes are counted, not predicted ({self.file.path})."

    def _tile(self) -> UserTile:
        if self.file.tile is None:
            raise ValueError(f"{self.name} has no tile")
        return self.file.tile

    def _legal(self, block_m: int, block_n: int, stages: int, num_warps: int = 0) -> Tile:
        try:
            return Tile(block_m, block_n, stages, num_warps)
        except UsageError as error:
            raise UsageError(f"{self.file.path}: tile: {error.message}") from None

    def _fields(self, case: Case) -> dict[str, Number]:
        """All that expressions of kernels and workspaces may use."""
        tile = case.tile
        if not self.uses_tile:
            return case_fields(case)
        if tile is None or not tile.num_warps:
            raise ValueError(f"{self.name} needs a case with a resolved tile")
        names = ("block_m", "block_n", "stages", "num_warps")
        return case_fields(case) | {name: getattr(tile, name) for name in names}

    def _buffer(self, workspace: UserWorkspace, fields: Mapping[str, Number]) -> Buffer:
        key = f"workspaces.{workspace.name}.shape"
        shape = tuple(self._whole(f"{key}[{k}]", size, fields) for k, size in enumerate(workspace.shape))
        strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
        return Buffer(workspace.name, workspace.dtype, shape, strides, "workspace")

    def _launch(self, kernel: UserKernel, fields: Mapping[str, Number]) -> Launch:
        defines = ((name, _literal(self._number(f"{kernel.key}.defines.{name}", value, fields)))
                   for name, value in kernel.defines)  # fmt: skip
        return Launch(
            kernel=KernelSpec(str(kernel.source), kernel.entry, tuple(defines)),
            grid=self._extents(f"{kernel.key}.grid", kernel.grid, fields),
            block=self._extents(f"{kernel.key}.block", kernel.block, fields),
            smem_bytes=self._whole(f"{kernel.key}.smem_bytes", kernel.smem_bytes, fields, least=0),
            args=tuple(
                arg if isinstance(arg, str) else self._scalar(f"{kernel.key}.args[{k}]", arg, fields)
                for k, arg in enumerate(kernel.args)
            ),
        )

    def _extents(self, key: str, extents: Sequence[Expression], fields: Mapping[str, Number]) -> tuple[int, int, int]:
        x, y, z = (*(self._whole(f"{key}[{k}]", extent, fields) for k, extent in enumerate(extents)), 1, 1)[:3]
        return x, y, z

    def _scalar(self, key: str, scalar: UserScalar, fields: Mapping[str, Number]) -> Scalar:
        if scalar.ctype in ("f32", "f64"):
            return Scalar(scalar.ctype, float(self._number(key, scalar.value, fields)))
        return Scalar(scalar.ctype, self._whole(key, scalar.value, fields, least=None))

    def _whole(self, key: str, expression: Expression, fields: Mapping[str, Number], least: int | None = 1) -> int:
        value = self._number(key, expression, fields)
        if isinstance(value, float):
            raise UsageError(
                f"{self.file.path}: {key} must be a whole number, but {expression.text!r} is {value}.",
                hint="Use // or ceil_div instead of /.",
            )
        if least is not None and value < least:
            raise UsageError(
                f"{self.file.path}: {key} must be at least {least}, but {expression.text!r} is {value} for "
                f"seq_q = {fields['seq_q']}, seq_kv = {fields['seq_kv']}, head_dim = {fields['head_dim']}."
            )
        return value

    def _number(self, key: str, expression: Expression, fields: Mapping[str, Number]) -> Number:
        try:
            return expression(fields)
        except ExpressionError as error:
            raise UsageError(f"{self.file.path}: {key} {error.clause}.") from None


def case_fields(case: Case) -> dict[str, Number]:
    """What expressions may use of a case without its tile: the names in `user_file.FIELDS`."""
    shape = case.shape
    fields: dict[str, Number] = {
        "batch": shape.batch,
        "heads_q": shape.heads_q,
        "heads_kv": shape.heads_kv,
        "group": shape.group,
        "slices": shape.slices,
        "seq_q": shape.seq_q,
        "seq_kv": shape.seq_kv,
        "head_dim": shape.head_dim,
        "padded_head_dim": padded_head_dim(shape.head_dim),
        "itemsize": case.itemsize,
        "scale": 1 / math.sqrt(shape.head_dim),
        "causal": int(shape.causal),
    }
    fields |= {dtype: int(case.dtype == dtype) for dtype in DTYPES}
    fields |= {layout: int(case.layout == layout) for layout in LAYOUTS}
    for tensor in qkvo(case):
        batch, head, row, _ = tensor.strides
        name = tensor.name.lower()
        fields |= {f"{name}_batch_stride": batch, f"{name}_head_stride": head, f"{name}_row_stride": row}
    return fields


def _literal(value: Number) -> str:
    """A number as C reads it; a fraction is a float, not a double."""
    return f"{value!r}f" if isinstance(value, float) else str(value)


def _beyond_limits(launch: Launch, gpu: Gpu) -> str | None:
    """The first thing that CUDA, the GPU or a C type has no room for, as a clause that begins with its key."""
    x, y, z = launch.grid
    if x > GRID_LIMIT or max(y, z) > GRID_YZ_LIMIT:
        return f"grid is {x} x {y} x {z}; a grid holds {GRID_LIMIT} x {GRID_YZ_LIMIT} x {GRID_YZ_LIMIT}"
    threads = math.prod(launch.block)
    if threads > THREADS_LIMIT or launch.block[2] > BLOCK_Z_LIMIT:
        x, y, z = launch.block
        return f"block is {x} x {y} x {z}; a CTA holds {THREADS_LIMIT} threads, {BLOCK_Z_LIMIT} in z"
    if launch.smem_bytes > gpu.smem_per_block_bytes:
        return (
            f"smem_bytes is {format_bytes(launch.smem_bytes)}; "
            f"{gpu.name} has {format_bytes(gpu.smem_per_block_bytes)} per block"
        )
    for k, arg in enumerate(launch.args):
        if isinstance(arg, Scalar) and arg.ctype in _RANGES:
            low, high = _RANGES[arg.ctype]
            if not low <= arg.value <= high:
                return f"args[{k}] is {arg.value}, which no {arg.ctype} holds"
    return None
