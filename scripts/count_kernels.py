#!/usr/bin/env python3
"""Count what our kernels execute per tile, for ``fa-bench predict``: small squares of each default tile, emulated.

    python scripts/count_kernels.py            # writes fa_bench/data/kernel_counts.csv; some minutes
    python scripts/count_kernels.py --check    # writes nothing; exits with 1 if a count would change

Every default tile of every GPU of the registry, for each head dimension that kernels are compiled for, with and without
a causal mask, forward also for few queries on many keys, in fp16, compiled for an A100, or for an H100 where it takes
more shared memory. Per slice, a counter of a kernel is a + b · (tiles of Q) + c · (tiles of scores): squares of one,
two and three tiles settle the three (`fa_bench.tuning.counts`). Kernels without products are left out: they are passes
over memory, and what they execute goes by other tiles.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from fa_bench import algorithms, backends
from fa_bench.algorithms.tensors import PADDED_HEAD_DIMS
from fa_bench.backends.base import Backend
from fa_bench.cases import AttentionShape, Case
from fa_bench.errors import Unsupported
from fa_bench.model import gpus
from fa_bench.prediction.counts import COLUMNS, COUNTERS, FILE, basis
from fa_bench.tuning.counts import counted, small_cases

DATA: Final = Path(__file__).resolve().parents[1] / "fa_bench" / "data"
IMPLEMENTATIONS: Final = ("standard", "flash1", "flash2")
#: Long enough for no tile to be chosen for its length.
_SEQ: Final = 4096
#: Queries for which tiles are lower: a forward pass may have as few (decoding, speculation).
_FEW: Final = (16, 32, 64)
#: Whose kernels are counted: the first one that has the shared memory.
_GPUS: Final = ("a100-sxm-80", "h100-sxm")


def cases() -> Iterator[Case]:
    """Every case whose tile is some GPU's default, without repetition."""
    found: dict[Case, None] = {}
    for impl in IMPLEMENTATIONS:
        algorithm = algorithms.get(impl)
        for dim in PADDED_HEAD_DIMS:
            for causal in (False, True):
                for direction in algorithm.directions:
                    square = AttentionShape(1, 1, 1, _SEQ, _SEQ, dim, causal)
                    for queries in (*_FEW, _SEQ) if direction == "fwd" else (_SEQ,):
                        asked = Case(impl, replace(square, seq_q=queries), direction=direction)
                        for gpu in gpus.all_gpus():
                            try:
                                case = replace(asked, shape=square, tile=algorithm.auto_tile(asked, gpu))
                            except Unsupported:
                                continue
                            if algorithm.unsupported(case, gpu) is None:
                                found[case] = None
    return iter(found)


def rows(case: Case, backend: Backend) -> Iterator[dict[str, object]]:
    """One row per kernel of a case."""
    shape, tile = case.shape, case.tile
    assert tile is not None
    able = (gpus.get(slug) for slug in _GPUS)
    gpu = next(gpu for gpu in able if algorithms.get(case.impl).unsupported(case, gpu) is None)
    _, *squares = small_cases(case)
    results = [backend.run(square, gpu) for square in squares]
    matrix = np.array([basis(square) for square in squares])
    kernels = [counted(result) for result in results]
    resources = results[-1].resources
    assert resources is not None
    work = algorithms.get(case.impl).work(squares[0])
    assert work is not None
    for kernel in (entry for entry, tensor_flops, *_ in work.per_kernel if tensor_flops):
        row: dict[str, object] = {
            "impl": case.impl,
            "direction": case.direction,
            "head_dim": shape.head_dim,
            "causal": int(shape.causal),
            "block_m": tile.block_m,
            "block_n": tile.block_n,
            "stages": tile.stages,
            "num_warps": tile.num_warps,
            "kernel": kernel,
            "threads": resources.threads,
            "registers": resources.registers,
            "smem_bytes": resources.smem_bytes,
        }
        for counter in COUNTERS:
            values = np.array([float(found[kernel][counter]) for found in kernels])
            for name, value in zip(("slice", "q_tile", "tile"), np.linalg.solve(matrix, values), strict=True):
                row[f"{counter}_per_{name}"] = f"{round(value, 6) + 0.0:.6g}"
        yield row


def main(argv: Iterable[str] | None = None) -> int:
    """Count, and write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    options = parser.parse_args(None if argv is None else list(argv))
    backend = backends.open_backend("emulator", jobs=1)
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for case in cases():
        writer.writerows(rows(case, backend))
    backend.close()
    path = DATA / FILE
    if options.check:
        same = path.exists() and path.read_text(encoding="utf-8") == out.getvalue()
        print("the file is current" if same else "the file would change")
        return int(not same)
    path.write_text(out.getvalue(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
