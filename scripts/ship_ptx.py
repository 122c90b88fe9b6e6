"""Make the archive of PTX that comes with fa-bench (fa_bench/_shipped/ptx.zip), for machines without NVRTC.

    python scripts/ship_ptx.py            compile what is new or has changed, and write the archive
    python scripts/ship_ptx.py --check    exit with 1 if the archive is not what the kernels' sources ask for

Run it after a change in kernels/, in what a trace changes of them (fa_bench/tracing/), or in a default tile. It needs
NVRTC; --check does not.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from fa_bench import algorithms, nvrtc, shipped
from fa_bench.algorithms.base import KernelSpec
from fa_bench.cases import DTYPES, AttentionShape, Case, DType, Features, Tile
from fa_bench.compiler import CompiledKernel, compile_kernel, kernels_dir
from fa_bench.errors import FaBenchError
from fa_bench.model import gpus
from fa_bench.tracing.patches import bugs, changed_kernels
from fa_bench.tracing.run import make_case, traced_program
from fa_bench.units import format_bytes

#: The target of every command that names no GPU.
GPU: Final = gpus.get("a100-sxm-80")
#: What ``make sweep``, the presets' small ones and the examples of README.md and docs/ run.
LENGTHS: Final = (16, 64, 100, 256, 300, *(512 << k for k in range(6)))
#: The default grid of ``fa-bench check``.
CHECK_LENGTHS: Final = ((1, 1), (127, 300), (300, 127), (1000, 1000))
CHECK_HEAD_DIMS: Final = (40, 64, 128, 256)
#: Tiles that README.md and docs/cli.md ask for by name.
NAMED_TILES: Final = (Tile(64, 64), Tile(128, 64))


def cases() -> Iterator[Case]:
    """Every case whose kernels are shipped, its tile resolved."""
    for impl, dtype, dim, causal in itertools.product(algorithms.names("fwd"), DTYPES, (64, 128), (False, True)):
        for length in LENGTHS:
            yield from _tiled(impl, dtype, AttentionShape(1, 1, 1, length, length, dim, causal), None)
    for impl, dtype, dim, causal in itertools.product(algorithms.names("fwd"), DTYPES, CHECK_HEAD_DIMS, (False, True)):
        for seq_q, seq_kv in CHECK_LENGTHS:
            yield from _tiled(impl, dtype, AttentionShape(1, 8, 2, seq_q, seq_kv, dim, causal), None)
    for impl, dim, causal, tile in itertools.product(algorithms.names("fwd"), (64, 128), (False, True), NAMED_TILES):
        for length in (1024, 2048, 4096):
            yield from _tiled(impl, "fp16", AttentionShape(1, 1, 1, length, length, dim, causal), tile)
    # README.md's of a window with features, and of backward passes.
    shape = AttentionShape(1, 1, 1, 1024, 1024, 64, window_left=128, window_right=0)
    yield from _tiled("flash2", "fp16", shape, None, features=Features(softcap=30.0, alibi=True, dropout_p=0.1))
    for impl in ("standard", "flash2"):
        yield from _tiled(impl, "fp16", AttentionShape(1, 1, 1, 512, 512, 64), None, direction="fwd+bwd")


def _tiled(impl: str, dtype: DType, shape: AttentionShape, tile: Tile | None, **asked: Any) -> Iterator[Case]:
    """The case with its tile, if it has a legal one."""
    algorithm = algorithms.get(impl)
    case = Case(impl, shape, dtype, **asked)
    try:
        resolved = algorithm.resolve(case, tile or algorithm.auto_tile(case, GPU))
    except FaBenchError:
        return
    case = replace(case, tile=resolved)
    if algorithm.unsupported(case, GPU) is None:
        yield case


def traced() -> Iterator[KernelSpec]:
    """What ``fa-bench trace`` runs, and what it runs with each ``--bug``, where nothing else is asked for."""
    for impl, bug in itertools.product(algorithms.names("fwd"), (None, *bugs().values())):
        shape = AttentionShape(1, 1, 1, 256, 256, 64, bug is not None and bug.causal)
        case = make_case(impl, shape, "fp16", None, bug, GPU)
        for found in (None, bug):
            yield from (launch.kernel for launch in traced_program(case, found).launches)


def kernels() -> tuple[KernelSpec, ...]:
    """The different kernels of all cases and traces."""
    launches = (launch for case in cases() for launch in algorithms.get(case.impl).program(case).launches)
    return tuple(dict.fromkeys([*(launch.kernel for launch in launches), *traced()]))


def stale(specs: Iterable[KernelSpec]) -> list[str]:
    """What the archive lacks, holds of an older source, or holds in vain; empty if it is current."""
    index = shipped.index()
    held = {} if index is None else dict(index.contents)
    found = []
    with changed_kernels(kernels_dir()) as folder:
        for spec in specs:
            name = shipped.variant(spec, GPU.sm)
            made_of = held.pop(name, None)
            if made_of is None:
                found.append(f"{name} is not shipped")
            elif made_of != shipped.content(spec, folder):
                found.append(f"{name} is of an older source")
    return [*found, *(f"{name} is in vain" for name in held)]


def build(specs: Iterable[KernelSpec]) -> bytes:
    """Compile and pack."""
    version = nvrtc.load().version
    packed = []
    with changed_kernels(kernels_dir()) as folder:
        for spec in specs:
            kernel = _compiled(spec, version, folder)
            packed.append((spec, GPU.sm, shipped.content(spec, folder), kernel))
    return shipped.pack(packed)


def _compiled(spec: KernelSpec, version: str, folder: Path) -> shipped.ShippedKernel:
    kernel: CompiledKernel = compile_kernel(spec, GPU.sm, folder=folder)
    assert kernel.registers is not None and kernel.static_smem_bytes is not None and kernel.spill_bytes is not None
    return shipped.ShippedKernel(kernel.ptx, kernel.registers, kernel.static_smem_bytes, kernel.spill_bytes, version)


def main() -> int:
    """Write the archive, or say whether it is current."""
    specs = kernels()
    if "--check" in sys.argv[1:]:
        found = stale(specs)
        print("\n".join(found) or f"{shipped.ARCHIVE} is current: {len(specs)} kernels for {GPU.sm}.")
        return int(bool(found))
    archive = build(specs)
    shipped.ARCHIVE.parent.mkdir(exist_ok=True)
    shipped.ARCHIVE.write_bytes(archive)
    print(f"{shipped.ARCHIVE}: {len(specs)} kernels for {GPU.sm}, {format_bytes(len(archive))}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
