"""One fixture runs tiny PTX programs on every engine: the interpreter and the JIT must agree with the PTX ISA."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fa_bench import ptx
from fa_bench.ptx.counters import LaunchCounters
from fa_bench.ptx.interpreter import run
from fa_bench.ptx.memory import Memory
from fa_bench.ptx.parser import load

LETTERS = "abce"
FORMATS = {16: "b16", 32: "b32", 64: "b64"}


def is_nan(pattern: int, bits: int, bfloat: bool = False) -> bool:
    """Whether a pattern of f64, f32, f16 or, with ``bfloat``, bf16 is a NaN."""
    infinity = {64: 0x7FF << 52, 32: 0x7F800000, 16: 0x7F80 if bfloat else 0x7C00}[bits]
    return pattern & (1 << bits - 1) - 1 > infinity


@dataclass(frozen=True)
class Engine:
    """Runs PTX text on one engine."""

    name: str

    @property
    def function(self) -> Callable[..., LaunchCounters]:
        """What launches a kernel."""
        return run if self.name == "interpreter" else ptx.launch

    @staticmethod
    def wrap(body: str, params: str = "", declarations: str = "") -> str:
        """A PTX file with one kernel ``k``; ``%r0-15`` (b32), ``%rd0-15`` (b64), ``%p0-7`` are declared."""
        return (
            f".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k({params})\n{{\n"
            f".reg .b32 %r<16>;\n.reg .b64 %rd<16>;\n.reg .pred %p<8>;\n{declarations}\n{body}\nret;\n}}\n"
        )

    def launch(
        self,
        text: str,
        *,
        memory: Memory,
        args: Sequence[Any] = (),
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (32, 1, 1),
        smem_bytes: int = 0,
        ctas: Sequence[int] | None = None,
        **limits: int,
    ) -> LaunchCounters:
        """Run kernel ``k`` of ``text``; ``limits`` may hold the engine's ``budget``."""
        kernel = load(text).kernel("k")
        return self.function(
            kernel, grid=grid, block=block, args=list(args), memory=memory, smem_bytes=smem_bytes, ctas=ctas, **limits
        )

    def evaluate(
        self, body: str, inputs: Mapping[str, tuple[int, Sequence[int]]], outputs: Mapping[str, int]
    ) -> dict[str, list[int]]:
        """Run ``body`` in one warp: registers ``%name`` of the widths given, inputs set per lane, outputs returned.

        A width of 1 is a predicate. Up to 32 values per input; the last is repeated in the lanes beyond.
        """
        lanes = max((len(values) for _, values in inputs.values()), default=32)
        declarations, before, after = [], [], []
        memory = Memory()
        source = memory.allocate("in", 32 * 8 * max(1, len(inputs))).view(np.uint64).reshape(32, -1)
        target = memory.allocate("out", 32 * 8 * len(outputs)).view(np.uint64).reshape(32, -1)
        target[:] = 0
        for k, (name, (width, values)) in enumerate(inputs.items()):
            padded = [*values, *[values[-1]] * (32 - len(values))]
            source[:, k] = [v % 2**64 for v in padded]
            if width == 1:
                before.append(f"ld.global.u32 %flag, [%at+{8 * k}];\nsetp.ne.u32 %{name}, %flag, 0;")
            else:
                before.append(f"ld.global.b{width} %{name}, [%at+{8 * k}];")
        for k, (name, width) in enumerate(outputs.items()):
            if width == 1:
                after.append(f"selp.u32 %flag, 1, 0, %{name};\nst.global.u32 [%at+{8 * k}], %flag;")
            else:
                after.append(f"st.global.b{width} [%at+{8 * k}], %{name};")
        for name, width in {**{n: w for n, (w, _) in inputs.items()}, **outputs}.items():
            declarations.append(f".reg .{'pred' if width == 1 else f'b{width}'} %{name};")
        text = self.wrap(
            f"mov.u32 %lane, %tid.x;\nld.param.u64 %from, [in];\nld.param.u64 %to, [out];\n"
            f"mad.wide.u32 %at, %lane, {8 * source.shape[1]}, %from;\n" + "\n".join(before) + f"\n{body}\n"
            f"mad.wide.u32 %at, %lane, {8 * target.shape[1]}, %to;\n" + "\n".join(after),
            ".param .u64 in, .param .u64 out",
            "\n".join([*declarations, ".reg .b32 %lane, %flag;", ".reg .b64 %from, %to, %at;"]),
        )
        self.launch(text, memory=memory, args=[np.uint64(memory.address("in")), np.uint64(memory.address("out"))])
        return {name: [int(v) for v in target[:lanes, k]] for k, name in enumerate(outputs)}

    def check(self, op: str, widths: str, rows: Sequence[tuple[int | str, ...]]) -> None:
        """Compare ``op d, a, b, ...`` with expected patterns.

        ``widths`` are bits of d and of each source. A row holds the sources and then the expected pattern; "nan"
        expects any NaN (engines need not agree on NaN payloads).
        """
        target, *sources = (int(w) for w in widths.split())
        names = LETTERS[: len(sources)]
        inputs = {n: (w, [int(r[k]) for r in rows]) for k, (n, w) in enumerate(zip(names, sources, strict=True))}
        body = f"{op} {', '.join(f'%{n}' for n in ['d', *names])};"
        results = self.evaluate(body, inputs, {"d": target})["d"]
        for row, result in zip(rows, results, strict=True):
            *given, expected = row
            shown = f"{op} {', '.join(f'{int(v):#x}' for v in given)} gave {result:#x}, not {expected}"
            if expected == "nan":
                assert is_nan(result, target, bfloat=".bf16" in op), shown
            else:
                assert result == int(expected) % 2**target, shown


@pytest.fixture(params=["interpreter", "jit"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn."""
    return Engine(request.param)
