"""Every kernel, compiled for every generation: the emulator knows all its instructions, and nothing is in local memory.

NVRTC emits other instructions for newer targets (``min.relu`` from sm_100 on, say) and optimises otherwise, so that a
kernel that is fine for one may index a register array, and with it local memory, for the next.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from fa_bench import algorithms, ptx
from fa_bench.backends import why_not
from fa_bench.cases import AttentionShape, Case, Direction, DType, Tile
from fa_bench.compiler import compile_kernel
from fa_bench.model import gpus

pytestmark = pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator")))


@pytest.mark.parametrize("impl", algorithms.names())
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("gpu", ["h100-sxm", "b200-sxm", "rtx-5090"])
def test_kernels_run_in_the_emulator_and_stay_in_registers(impl: str, dtype: DType, gpu: str) -> None:
    algorithm = algorithms.get(impl)
    direction: Direction = "fwd+bwd" if "fwd+bwd" in algorithm.directions else "fwd"
    case = Case(impl, AttentionShape(1, 2, 1, 70, 90, 40, causal=True), dtype, direction=direction)
    case = replace(case, tile=algorithm.resolve(case, Tile(32, 32, 2)))
    for launch in algorithm.program(case).launches:
        compiled = compile_kernel(launch.kernel, gpus.get(gpu).sm)
        ptx.load(compiled.ptx)  # refuses what the emulator doesn't know
        assert set(re.findall(r"\b(?:ld|st|red)\.(\w+)", compiled.ptx)) <= {"param", "global", "shared"}
