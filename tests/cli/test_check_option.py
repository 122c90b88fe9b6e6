"""``--check`` of sweep, check and profile: the checks of the emulator, as a user asks for them."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from fa_bench import backends
from fa_bench.cases import Case
from fa_bench.errors import KernelFault

FINDING = (
    "Kernel flash2_fwd, CTA (0, 0, 0), warp 1, lane 0: 'ld.shared.u32' (PTX line 7, k.cu:3) reads what nobody wrote."
)


def found(case: Case) -> None:
    raise KernelFault(FINDING)


@pytest.mark.parametrize(
    "words",
    [
        "sweep --seq 64 --head-dim 64 --impl flash2",
        "check --seq 64 --head-dim 64 --impl flash2 --dtype fp16 --causal false",
    ],
)
def test_a_finding_is_a_failed_row(words: str, cli: Callable, fakes: Callable, emulator: Callable) -> None:
    fakes(emulator(on_run=found))
    ran = cli(*words.split(), "--check", "--format", "csv")
    assert ran.code == 1
    assert FINDING in ran.out.replace('""', '"')
    assert "error" in ran.out


@pytest.mark.parametrize(("words", "checks"), [("--check", True), ("", False)])
@pytest.mark.parametrize("command", ["sweep", "check"])
def test_the_emulator_is_asked_to_check(
    command: str, words: str, checks: bool, cli: Callable, fakes: Callable, emulator: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    asked: list[dict[str, object]] = []
    fakes(emulator())
    fake_open = backends.open_backend
    monkeypatch.setattr(backends, "open_backend", lambda name, **how: asked.append(how) or fake_open(name))
    assert cli(command, "--seq", "64", "--head-dim", "64", "--impl", "flash2", *words.split()).code == 0
    assert [how["checks"] for how in asked] == [checks]


def test_with_checks_auto_is_the_emulator(cli: Callable, fakes: Callable, emulator: Callable, host: Callable) -> None:
    fakes(host(), emulator())
    ran = cli("sweep", "--seq", "64", "--check", "--dry-run", "--format", "csv")
    assert ran.code == 0
    assert "numpy" not in ran.out


@pytest.mark.parametrize("device", ["cuda", "host"])
def test_other_devices_have_no_checks(device: str, cli: Callable, fakes: Callable, emulator: Callable) -> None:
    fakes(emulator())
    ran = cli("sweep", "--device", device, "--check")
    assert ran.code == 2
    assert f"the checks are the emulator's; --device {device} has none" in ran.err


#: Thread t of two warps stores x[t] in shared memory and sends what the other warp's thread stored to y[t].
EXCHANGE = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry exchange(.param .u64 x, .param .u64 y)
{
    .reg .b32 %r<5>;
    .reg .b64 %rd<6>;
    .shared .align 4 .b8 s[256];
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.u32 %r2, [%rd4];
    shl.b32 %r3, %r1, 2;
    st.shared.u32 [%r3], %r2;
    bar.sync 0;
    xor.b32 %r4, %r3, 128;
    ld.shared.u32 %r2, [%r4];
    st.global.u32 [%rd5], %r2;
    ret;
}
"""
ARGUMENTS = "--grid 1 --block 64 --arg x=i32[64] --arg y=out:i32[64] --check"


@pytest.mark.parametrize(
    ("old", "new", "words", "message"),
    [
        ("bar.sync 0;", "", ARGUMENTS, "(a race)"),
        ("[%rd4];", "[%rd5];", ARGUMENTS, "y[0]), the first of which was never written"),
        ("bar.sync 0;", "bar.sync 0;", ARGUMENTS.replace("out:i32[64]", "out:i32[65]"), "The output y[64] (byte 256)"),
        ("bar.sync 0;", "bar.sync 0;", ARGUMENTS, ""),
    ],
    ids=["race", "never written", "output", "clean"],
)
def test_a_profile_with_checks(old: str, new: str, words: str, message: str, cli: Callable, tmp_path: Path) -> None:
    (tmp_path / "exchange.ptx").write_text(EXCHANGE.replace(old, new))
    ran = cli("profile", "exchange.ptx", *shlex.split(words))
    assert ran.code == (1 if message else 0)
    assert message in ran.err


CUDA = """
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[64];
  s[threadIdx.x] = x[threadIdx.x];
  %s
  y[threadIdx.x] = s[63 - threadIdx.x];
  %s
}
"""


@pytest.mark.parametrize(
    ("barrier", "last", "parts"),
    [
        ("", "", ["k.cu:4", "k.cu:6", "(a race)"]),
        ("__syncthreads();", "const_cast<float*>(x)[threadIdx.x] = 0;", ["k.cu:7", "x[0]), which is an input"]),
        ("__syncthreads();", "", []),
    ],
    ids=["race", "input", "clean"],
)
def test_cuda_is_named_by_its_lines(barrier: str, last: str, parts: list[str], cli: Callable, tmp_path: Path) -> None:
    from fa_bench import nvrtc

    if reason := nvrtc.unavailable():
        pytest.skip(reason)
    (tmp_path / "k.cu").write_text(CUDA % (barrier, last))
    words = "--grid 1 --block 64 --arg x=f32[64] --arg y=out:f32[64] --check"
    ran = cli("profile", "k.cu", *shlex.split(words))
    assert ran.code == int(bool(parts))
    for part in parts:
        assert part in ran.err
