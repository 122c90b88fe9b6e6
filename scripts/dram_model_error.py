"""How far the DRAM model is from the emulator, over cases drawn at random: the table of docs/model.md.

    python scripts/dram_model_error.py --cases 360 --seed 1     some ten minutes; prints Markdown, then the worst cases

GPUs have few SMs and as much L2 for each as real ones, so that small cases fill it. It needs NVRTC.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fa_bench import algorithms
from fa_bench.backends.emulator import EmulatorBackend
from fa_bench.backends.hierarchy import blocks_per_sm
from fa_bench.cases import AttentionShape, Case, Tile
from fa_bench.compiler import compile_kernel
from fa_bench.errors import FaBenchError
from fa_bench.model import gpus
from fa_bench.model.compulsory import compulsory_read_bytes, compulsory_write_bytes
from fa_bench.model.dram import dram_traffic
from fa_bench.model.gpu import Gpu
from fa_bench.units import format_percent

#: KiB of L2 for each SM by number of partitions: T4 and RTX 3090 to RTX 4090; A100 to H100 and A30.
L2_KIB_PER_SM = {1: (72, 96, 128, 192, 384, 570), 2: (256, 320, 384, 440)}
GPUS = ("a30", "a100-sxm-80", "h100-sxm", "rtx-3090", "rtx-4090")
#: A second or so of emulation.
MOST_FMA = 2_200_000_000


@dataclass(frozen=True)
class Compared:
    """A case's bytes, and whether more crosses than inputs once."""

    case: Case
    gpu: Gpu
    emulated: Counter[str]
    model: Counter[str]
    model_without_registers: Counter[str]

    @property
    def more_than_inputs(self) -> bool:
        """Whether L2 decides anything: 2 % more than the inputs is read, or 2 % of the outputs are written."""
        read, write = compulsory_read_bytes(self.case), compulsory_write_bytes(self.case)
        return self.emulated["read"] > 1.02 * read or self.emulated["write"] > 0.02 * write

    def error(self, *, registers: bool = True) -> float:
        """Difference of the total, as a fraction of what was emulated."""
        model = self.model if registers else self.model_without_registers
        return model.total() / self.emulated.total() - 1


def draw(rng: random.Random) -> Iterator[tuple[Case, Gpu]]:
    """Legal cases without end."""
    while True:
        gpu = gpus.get(rng.choice(GPUS))
        sms = rng.choice((4, 8, 16))
        gpu = replace(gpu, sm_count=sms, l2_bytes=sms * rng.choice(L2_KIB_PER_SM[gpu.l2_partitions]) << 10)
        heads = rng.choice((1, 2, 4, 8, 16))
        group = rng.choice([size for size in (1, 1, 2, 4) if size <= heads])
        rows = rng.choice((384, 512, 768, 1024, 1536, 2048))
        causal = rng.random() < 0.4
        keys = rng.choice((256, 512, 1024)) if not causal and rng.random() < 0.15 else rows
        dim = rng.choice((64, 64, 128))
        shape = AttentionShape(rng.choice((1, 1, 2)), heads, heads // group, rows, keys, dim, causal)
        case = Case(rng.choice(algorithms.names("fwd")), shape, layout=rng.choice(("bhsd", "bshd")))
        algorithm = algorithms.get(case.impl)
        tile = Tile(rng.choice((64, 128)), rng.choice((32, 64)))
        try:
            tile = algorithm.auto_tile(case, gpu) if rng.random() < 0.5 else algorithm.resolve(case, tile)
            case = replace(case, tile=tile)
            if 2 * shape.slices * rows * keys * dim <= MOST_FMA and algorithm.unsupported(case, gpu) is None:
                yield case, gpu
        except FaBenchError:
            continue


def compare(case: Case, gpu: Gpu, backend: EmulatorBackend) -> Compared:
    """Emulate a case, and predict it."""
    algorithm = algorithms.get(case.impl)
    program, traffic = algorithm.program(case), algorithm.traffic(case) or ()
    counts = backend.run(case, gpu).counts
    blocks = [blocks_per_sm(launch, compile_kernel(launch.kernel, gpu.sm), gpu) for launch in program.launches]
    found: list[Counter[str]] = []
    for parts in (
        counts.traffic["dram"] if counts else (),
        dram_traffic(program, traffic, gpu, blocks),
        dram_traffic(program, traffic, gpu),
    ):
        total: Counter[str] = Counter()
        for part in parts:
            total[part.op] += part.bytes
        found.append(total)
    return Compared(case, gpu, *found)


def row(name: str, errors: Sequence[float]) -> str:
    """One row of the table."""
    within = [100 * sum(abs(error) <= limit for error in errors) / len(errors) for limit in (0.05, 0.1)]
    worst = max(errors, key=abs)
    return f"| {name} | {len(errors)} | {within[0]:.0f} % | {within[1]:.0f} % | {format_percent(worst, signed=True)} |"


def main() -> None:
    """Draw, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=360)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    backend = EmulatorBackend(counters="full")
    cases = draw(random.Random(options.seed))
    compared = [compare(*next(cases), backend) for _ in range(options.cases)]
    print("| | cases | within 5 % | within 10 % | worst |\n|---|---|---|---|---|")
    for impl in algorithms.names("fwd"):
        mine = [c for c in compared if c.case.impl == impl]
        decided = [c for c in mine if c.more_than_inputs]
        for label, some, registers in (
            ("all", mine, True),
            ("more crosses than inputs once", decided, True),
            ("the same, registers not known", decided, False),
        ):
            if some:
                print(row(f"{impl}, {label}", [c.error(registers=registers) for c in some]))
    print()
    for c in sorted(compared, key=lambda c: -abs(c.error()))[:12]:
        s, kib = c.case.shape, {op: (c.model[op] >> 10, c.emulated[op] >> 10) for op in ("read", "write")}
        print(
            f"{format_percent(c.error(), signed=True)}  {c.case.impl} {c.case.tile}, {s.seq_q} x {s.seq_kv}, "
            f"D={s.head_dim}, heads {s.heads_q}/{s.heads_kv} x {s.batch}, {'causal' if s.causal else 'full'}, "
            f"{c.case.layout}, {c.gpu.slug} with {c.gpu.sm_count} SMs and {c.gpu.l2_bytes >> 10} KiB: "
            f"read {kib['read'][0]} for {kib['read'][1]} KiB, written {kib['write'][0]} for {kib['write'][1]} KiB"
        )


if __name__ == "__main__":
    main()
