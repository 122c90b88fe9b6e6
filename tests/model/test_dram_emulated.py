"""The DRAM model against the emulator, on GPUs with few SMs and little L2, so that small cases fill it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from fa_bench import algorithms
from fa_bench.backends import why_not
from fa_bench.backends.emulator import EmulatorBackend
from fa_bench.backends.hierarchy import blocks_per_sm
from fa_bench.cases import AttentionShape, Case, Layout, Tile
from fa_bench.compiler import compile_kernel
from fa_bench.model import gpus
from fa_bench.model.dram import dram_traffic
from fa_bench.model.gpu import Gpu

pytestmark = pytest.mark.skipif(why_not("emulator") is not None, reason=str(why_not("emulator")))


def small(slug: str, sms: int, l2_kib: int) -> Gpu:
    """A GPU with as much L2 for each SM as a real one, but fewer SMs."""
    return replace(gpus.get(slug), sm_count=sms, l2_bytes=l2_kib << 10)


#: Two partitions with 440 KiB of L2 for each SM, one with 96 (as an RTX 3090's 75) and one with 256.
A100, A100_4 = small("a100-sxm-80", 8, 3520), small("a100-sxm-80", 4, 1760)
RTX_3090, RTX_4090 = small("rtx-3090", 8, 768), small("rtx-4090", 8, 2048)


@dataclass(frozen=True)
class Held:
    """A case and how far reads and writes may be off, in percent of all DRAM traffic of the case."""

    gpu: Gpu
    impl: str
    heads: int
    heads_kv: int
    rows: int
    tolerance_pct: float
    causal: bool = False
    layout: Layout = "bhsd"
    batch: int = 1

    def case(self) -> Case:
        shape = AttentionShape(self.batch, self.heads, self.heads_kv, self.rows, self.rows, 64, causal=self.causal)
        case = Case(self.impl, shape, layout=self.layout)
        return replace(case, tile=algorithms.get(self.impl).resolve(case, Tile(64, 64)))


HELD = [
    Held(A100, "standard", 6, 6, 512, 1),
    Held(RTX_3090, "standard", 8, 4, 384, 1),
    Held(A100_4, "standard", 8, 4, 384, 1),
    Held(A100, "flash1", 16, 16, 512, 1),
    Held(A100, "flash1", 8, 8, 512, 2, causal=True),
    Held(RTX_3090, "flash1", 8, 4, 384, 2),
    Held(RTX_4090, "flash1", 8, 4, 384, 3),
    # A pass of the loop just about fits.
    Held(A100_4, "flash1", 8, 4, 384, 10),
    Held(A100, "flash2", 16, 16, 512, 1),
    Held(RTX_3090, "flash2", 8, 8, 512, 3, causal=True),
    Held(RTX_3090, "flash2", 8, 2, 512, 8, layout="bshd", batch=2),
    Held(A100_4, "flash2", 6, 6, 512, 2),
]  # fmt: skip


@pytest.fixture(scope="module")
def emulator() -> Iterator[EmulatorBackend]:
    backend = EmulatorBackend(counters="full")
    yield backend
    backend.close()


@pytest.mark.parametrize("held", HELD, ids=lambda h: f"{h.gpu.slug}-{h.gpu.sm_count}-{h.impl}-{h.heads}x{h.rows}")
def test_the_model_tracks_the_emulator(held: Held, emulator: EmulatorBackend) -> None:
    case, gpu = held.case(), held.gpu
    counts = emulator.run(case, gpu).counts
    assert counts is not None
    emulated: Counter[str] = Counter()
    for part in counts.traffic["dram"]:
        emulated[part.op] += part.bytes
    algorithm = algorithms.get(case.impl)
    program, traffic = algorithm.program(case), algorithm.traffic(case)
    assert traffic is not None
    blocks = [blocks_per_sm(launch, compile_kernel(launch.kernel, gpu.sm), gpu) for launch in program.launches]
    model: Counter[str] = Counter()
    for part in dram_traffic(program, traffic, gpu, blocks):
        model[part.op] += part.bytes
    for op in ("read", "write"):
        difference_pct = 100 * (model[op] - emulated[op]) / emulated.total()
        assert abs(difference_pct) <= held.tolerance_pct, (op, model, emulated)
