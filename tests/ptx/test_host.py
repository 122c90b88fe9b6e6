"""Code for CPUs with and without f16 arithmetic gives the same numbers."""

from __future__ import annotations

import random

import pytest

from fa_bench.ptx import host, jit

#: Signed zeros, subnormals, ties, the largest number, infinity, NaN, and numbers near 1.
CORNERS = [0, 0x8000, 1, 0x8001, 0x03FF, 0x0400, 0x3BFF, 0x3C00, 0x3C01, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00]


@pytest.fixture(params=[False, True], ids=["through f32", "native"])
def native(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the generated code may calculate in f16; it is never taken from a cache."""
    if request.param and not host.has_half_arithmetic():
        pytest.skip("this CPU has no f16 arithmetic")
    monkeypatch.setattr(host, "has_half_arithmetic", lambda: request.param)
    monkeypatch.setattr(jit, "_LOADED", {})
    monkeypatch.setattr(jit.EMULATOR, "read", lambda key: None)
    monkeypatch.setattr(jit.EMULATOR, "write", lambda key, content: None)
    return bool(request.param)


def pattern(r: random.Random) -> int:
    if r.random() < 0.5:
        return r.choice(CORNERS)
    return r.getrandbits(1) << 15 | r.randrange(0x3400, 0x4400)


@pytest.mark.parametrize(
    "op, sources",
    [
        ("add.rn.f16x2", 2), ("sub.rn.ftz.f16x2", 2), ("mul.rn.f16x2", 2), ("mul.rn.sat.f16x2", 2), ("fma.rn.f16x2", 3),
        ("fma.rn.ftz.f16x2", 3), ("fma.rn.relu.f16x2", 3), ("fma.rn.bf16x2", 3), ("min.f16x2", 2), ("max.NaN.f16x2", 2),
    ],
)  # fmt: skip
@pytest.mark.parametrize("engine", ["jit"], indirect=True)
def test_halves(engine, native, op, sources):
    """The interpreter is the oracle; NaN patterns may differ."""
    r = random.Random(op)
    names = "abc"[:sources]
    inputs = {n: (32, [pattern(r) << 16 | pattern(r) for _ in range(32)]) for n in names}
    body = f"{op} %d, {', '.join(f'%{n}' for n in names)};"
    expected = type(engine)("interpreter").evaluate(body, inputs, {"d": 32})["d"]
    found = engine.evaluate(body, inputs, {"d": 32})["d"]
    infinity = 0x7F80 if "bf16" in op else 0x7C00
    for one, other in zip(expected, found, strict=True):
        for shift in (0, 16):
            x, y = one >> shift & 0xFFFF, other >> shift & 0xFFFF
            assert x == y or min(x & 0x7FFF, y & 0x7FFF) > infinity, f"{one:#x} and {other:#x}"


def test_the_cpu_is_known():
    name, features = host.cpu()
    assert name
    assert "-prefer-256-bit" in features.split(",")
    assert not host.has("no-such-feature")
