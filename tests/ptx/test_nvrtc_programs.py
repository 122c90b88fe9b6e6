"""CUDA programs in everyday shapes: compiled by NVRTC for several architectures, run, checked against NumPy.

They bring in what compilers make of device functions, structs by value, local arrays, constant and global variables,
atomics, half precision, double precision, wmma and generic pointers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fa_bench import nvrtc, ptx
from fa_bench.ptx.counters import LaunchCounters
from fa_bench.ptx.interpreter import run as interpret

pytestmark = pytest.mark.skipif(nvrtc.unavailable() is not None, reason=f"{nvrtc.unavailable()}")

#: Each program once on the middle one; on the others where time does not matter.
ARCHITECTURES = ["sm_80", *(pytest.param(sm, marks=pytest.mark.slow) for sm in ("sm_75", "sm_89", "sm_90", "sm_100"))]


@functools.cache
def load(source: str, sm: str) -> ptx.Module:
    compiler = nvrtc.load()
    options = [f"--gpu-architecture={sm}", "--std=c++17", f"--include-path={compiler.include}"]
    return ptx.load(compiler.compile(source, "program.cu", options).ptx)


def launch(
    module: ptx.Module,
    name: str,
    args: Mapping[str, Any],
    grid: int = 1,
    block: int = 64,
    jobs: int = 1,
    engine: str = "jit",
) -> tuple[dict[str, np.ndarray], LaunchCounters]:
    """Run a kernel; arrays become buffers, whose contents afterwards are returned."""
    memory = ptx.Memory()
    given, arrays = [], {}
    for key, value in args.items():
        if isinstance(value, np.ndarray):
            memory.allocate(key, value.nbytes)[:] = value.view(np.uint8).ravel()
            arrays[key] = memory.array(key).view(value.dtype)
            given.append(np.uint64(memory.address(key)))
        else:
            given.append(value)
    function = interpret if engine == "interpreter" else functools.partial(ptx.launch, jobs=jobs)
    counters = function(module.kernel(name), grid=(grid, 1, 1), block=(block, 1, 1), args=given, memory=memory)
    return arrays, counters


CALLS = """
__constant__ float table[8] = {1.f, 2.f, 3.f, 4.f, 5.f, 6.f, 7.f, 8.f};
struct Big { float x[6]; int n; };
__device__ __noinline__ float poly(float x, int n) {
    float r = 1.f;
    for (int i = 0; i < n; ++i) r = r * x + table[i & 7];
    return r;
}
__device__ __noinline__ float pick(Big b, int i) { return b.x[i % 6] + b.n; }
__device__ __noinline__ float2 two(float a, double d) { return make_float2(a + 1.f, (float)d * 2.f); }
__device__ __noinline__ void fill(float* out, int n) { for (int i = 0; i < n; ++i) out[i] = i * 1.5f; }
__device__ __noinline__ int outer(int a) { return a + (a & 1 ? (int)poly((float)a, 3) : 0); }
__device__ __noinline__ short mixed(short a, unsigned char b, bool c) { return c ? a - b : a + b; }
extern "C" __global__ void calls(float* out, int n) {
    int t = threadIdx.x;
    Big b;
    for (int i = 0; i < 6; ++i) b.x[i] = t + i;
    b.n = n;
    float buffer[10];
    fill(buffer, 10);
    float2 p = two((float)t, t * 0.5);
    out[t] = poly((float)t, t % 4) + pick(b, t) + p.x + p.y + buffer[(t * 3) % 10] + outer(t) + mixed(t, 3, t & 1);
}
"""


@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_device_functions(sm):
    """All terms are small integers or halves: exact. Seven calls are inlined, one of them within another."""
    module = load(CALLS, sm)
    assert module.kernel("calls").inlined == 7
    found, _ = launch(module, "calls", {"out": np.zeros(64, np.float32), "n": np.int32(7)})

    def poly(x: int, n: int) -> int:
        r = 1
        for i in range(n):
            r = r * x + i + 1
        return r

    expected = [
        poly(t, t % 4) + (t + t % 6 + 7) + (t + 1) + t + (t * 3 % 10) * 1.5
        + (t + (poly(t, 3) if t & 1 else 0)) + (t - 3 if t & 1 else t + 3)
        for t in range(64)
    ]  # fmt: skip
    assert found["out"].tolist() == expected


def test_device_functions_on_the_interpreter():
    found, _ = launch(load(CALLS, "sm_80"), "calls", {"out": np.zeros(8, np.float32), "n": np.int32(1)}, block=8)
    again, _ = launch(
        load(CALLS, "sm_80"), "calls", {"out": np.zeros(8, np.float32), "n": np.int32(1)}, block=8, engine="interpreter"
    )
    assert (found["out"] == again["out"]).all()


STATICS = """
__constant__ float table[8] = {1.f, 2.f, 3.f, 4.f, 5.f, 6.f, 7.f, 8.f};
__constant__ int later[4];
__device__ int counter = 5;
__device__ float weights[4] = {0.5f, 0.25f};
__device__ int* pointer = &counter;
extern "C" __global__ void statics(float* out) {
    int t = threadIdx.x;
    atomicAdd(&counter, 1);
    if (t < 4) weights[t] += 1.f;
    __syncthreads();
    out[t] = weights[t & 3] + later[t & 3] + table[(t * 5) & 7] + *pointer;
}
"""


@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_variables_of_the_module(sm):
    """Globals outlive a launch and are counted as buffers; the host sets constants between launches."""
    # A module of its own: another test must not find the counter raised.
    module = load(STATICS + f"// {sm}", sm)
    t = np.arange(64)
    weights = np.array([0.5, 0.25, 0, 0], np.float32)
    for launches in (1, 2):
        found, counters = launch(module, "statics", {"out": np.zeros(64, np.float32)})
        later = np.zeros(4) if launches == 1 else np.array([10, 20, 30, 40])
        expected = weights[t & 3] + launches + later[t & 3] + (t * 5 & 7) + 1 + 5 + 64 * launches
        assert found["out"].tolist() == expected.tolist()
        # One add by each of two warps; one of them stores to four weights, one sector.
        assert counters.tensors["counter"].atomic_requests == 2
        assert counters.tensors["weights"].write_sectors == 1
        module.variable("later").view(np.int32)[:] = [10, 20, 30, 40]
    assert module.variable("counter").view(np.int32)[0] == 5 + 128


ATOMICS = """
#include <cuda_fp16.h>
extern "C" __global__ void atomics(unsigned* u, float* f, double* d, unsigned long long* w, __half2* h, int* s,
                                   int* seen) {
    __shared__ unsigned sums[4];
    __shared__ float total;
    int t = threadIdx.x;
    if (t < 4) sums[t] = 0;
    if (t == 0) total = 0;
    __syncthreads();
    atomicAdd(&sums[t & 3], t);
    atomicAdd(&total, 0.5f);
    atomicAdd(f, 1.f);
    atomicAdd(d, 0.25);
    atomicAdd(w, 1ull << 33);
    atomicMin(s, -(int)(blockIdx.x * 64 + t));
    atomicOr(&u[0], 1u << (t & 31));
    atomicInc(&u[1], 6u);
    atomicDec(&u[2], 5u);
    atomicXor(&u[3], t);
    atomicMax(&u[4], t * 3);
    atomicAnd(&u[5], ~(1u << (t & 7)));
    seen[blockIdx.x * 64 + t] = atomicCAS(&u[6], 0u, blockIdx.x * 64 + t + 1);
    if (blockIdx.x < 16) atomicAdd(h, __floats2half2_rn(1.f, 2.f));
    __syncthreads();
    if (t < 4) u[8 + t] = sums[t] + (unsigned)total;
}
"""


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_atomics(sm, jobs):
    """4096 threads; the order of CTAs does not matter for any result. 1024 halves sum exactly up to 2048."""
    arrays = {
        "u": np.zeros(12, np.uint32), "f": np.zeros(1, np.float32), "d": np.zeros(1), "w": np.zeros(1, np.uint64),
        "h": np.zeros(2, np.float16), "s": np.zeros(1, np.int32), "seen": np.zeros(4096, np.int32),
    }  # fmt: skip
    arrays["u"][5] = 0xFFFFFFFF
    found, counters = launch(load(ATOMICS, sm), "atomics", arrays, grid=64, jobs=jobs)
    u = found["u"]
    # inc counts 0 ... 6 and again: 4096 mod 7 = 1; dec from 0 counts 5, 4 ... 0 and again: 4096 mod 6 = 4 is 2.
    assert u[:6].tolist() == [0xFFFFFFFF, 1, 2, 0, 189, 0xFFFFFF00]
    # Exactly one thread found the zero, and its number is what all others saw.
    winner = int(u[6])
    assert np.count_nonzero(found["seen"] == 0) == 1 and found["seen"][winner - 1] == 0
    assert set(found["seen"].tolist()) == {0, winner}
    # Sums over t = r, r + 4, ... < 64: 16 r + 4 * 120; 64 halves are 32.
    assert u[8:12].tolist() == [16 * r + 480 + 32 for r in range(4)]
    assert (found["f"][0], found["d"][0], int(found["w"][0]), found["s"][0]) == (4096, 1024, 4096 << 33, -4095)
    assert found["h"].tolist() == [1024, 2048]
    # Two warps of 64 CTAs, each with one sector per request.
    assert counters.tensors["f"].atomic_requests == counters.tensors["f"].atomic_sectors == 128
    assert counters.tensors["u"].atomic_requests == 7 * 128


HALVES = """
#include <cuda_fp16.h>
extern "C" __global__ void halves(__half2* out, const __half2* a, const __half2* b) {
    int t = threadIdx.x;
    __half2 x = a[t], y = b[t];
    __half2 r = __hfma2(x, y, __hadd2(x, y));
    r = __hmax2(r, __hmul2(x, x));
    r = __hsub2(r, __hneg2(y));
    if (__hgt(__low2half(x), __low2half(y))) r = __hadd2_sat(r, x);
    out[t] = __halves2half2(htrunc(__low2half(r)), __hmul(__high2half(r), __float2half(0.3f)));
}
"""


@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_half_precision(sm):
    """Every operation rounds once; double precision holds the exact results of all of them."""
    r = np.random.default_rng(3)
    a, b = (r.normal(size=128).astype(np.float16) for _ in range(2))
    found, _ = launch(load(HALVES, sm), "halves", {"out": np.zeros(128, np.float16), "a": a, "b": b})

    def f16(value: np.ndarray) -> np.ndarray:
        return value.astype(np.float16).astype(np.float64)

    x, y = a.astype(np.float64), b.astype(np.float64)
    expected = f16(x * y + f16(x + y))
    expected = f16(np.maximum(expected, f16(x * x)) + y)
    saturated = np.clip(f16(expected + x), 0, 1)
    expected = np.where(np.repeat(x[::2] > y[::2], 2), saturated, expected)
    expected[::2] = np.trunc(expected[::2])
    expected[1::2] = f16(expected[1::2] * float(np.float16(0.3)))
    assert (found["out"].astype(np.float64) == expected).all()


BFLOATS = """
#include <cuda_bf16.h>
extern "C" __global__ void bfloats(__nv_bfloat162* out, const __nv_bfloat162* a, const __nv_bfloat162* b) {
    int t = threadIdx.x;
    __nv_bfloat162 x = a[t], y = b[t];
    __nv_bfloat162 r = __hfma2(x, y, __hadd2(x, y));
    r = __hmin2(r, __hmul2(x, x));
    if (__hlt(__high2bfloat16(x), __high2bfloat16(y))) r = __hsub2(r, y);
    out[t] = r;
}
"""


def bfloat(value: np.ndarray) -> np.ndarray:
    """Doubles rounded to bf16, to nearest even; exact, since all values here are multiples of 2^-40 or so."""
    scale = np.exp2(np.floor(np.log2(np.maximum(np.abs(value), 1e-300))) - 7)
    return np.rint(value / scale) * scale


@pytest.mark.parametrize("sm", ["sm_80", *(pytest.param(sm, marks=pytest.mark.slow) for sm in ("sm_90", "sm_100"))])
def test_bfloat16(sm):
    r = np.random.default_rng(4)
    x, y = (bfloat(r.normal(size=128)) for _ in range(2))
    a, b = ((v.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for v in (x, y))
    found, _ = launch(load(BFLOATS, sm), "bfloats", {"out": np.zeros(128, np.uint16), "a": a, "b": b})
    expected = bfloat(x * y + bfloat(x + y))
    expected = np.minimum(expected, bfloat(x * x))
    expected = np.where(np.repeat(x[1::2] < y[1::2], 2), bfloat(expected - y), expected)
    assert ((found["out"].astype(np.uint32) << 16).view(np.float32) == expected).all()


DOUBLES = """
extern "C" __global__ void doubles(double* out, const double* a) {
    int t = threadIdx.x;
    double x = a[t];
    out[t] = sqrt(x) / (x + 1.0) + fma(x, x, -0.5) + exp(-x) * log(x + 1.0) + (double)(long long)(x * 1e3)
           + fmin(x, 2.5) + rsqrt(x) + tanh(x) + pow(x, 1.7) + rint(x * 3.0) + (double)__double2float_rz(x);
}
"""


@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_double_precision(sm):
    """The library's functions are within a few ulp; truncations and roundings are exact."""
    x = np.random.default_rng(5).uniform(0.01, 9, 64)
    found, _ = launch(load(DOUBLES, sm), "doubles", {"out": np.zeros(64), "a": x})
    single = x.astype(np.float32)
    single = np.where(single > x, np.nextafter(single, np.float32(0)), single).astype(np.float64)
    expected = np.sqrt(x) / (x + 1) + x * x - 0.5 + np.exp(-x) * np.log(x + 1) + np.trunc(x * 1e3)
    expected += np.minimum(x, 2.5) + 1 / np.sqrt(x) + np.tanh(x) + x**1.7 + np.rint(x * 3) + single
    np.testing.assert_allclose(found["out"], expected, rtol=1e-14)


MATHS = """
extern "C" __global__ void maths(float* out, unsigned* whole, const float* a, int n) {
    int t = threadIdx.x;
    float x = a[t];
    out[t] = expf(x) + logf(fabsf(x) + 1.f) + tanhf(x) + sinf(x) + powf(fabsf(x), 1.3f) + erff(x) + fmodf(x, 0.7f)
           + roundf(x * 10.f) + atan2f(x, 2.f) + cbrtf(x) + __fdividef(x, 3.f) + rsqrtf(fabsf(x) + 0.1f);
    int i = __float2int_rn(x * 100.f);
    unsigned r = __popc(i) + __clz(i) + __ffs(i) + __brev(i) + __byte_perm(i, n, 0x5140) + __funnelshift_l(i, n, 5);
    r += __mulhi(i, n) + __sad(i, n, 3) + (i / n) + (i % n);
    unsigned long long w = (unsigned long long)(unsigned)i * (unsigned)n + 12345678901ull;
    r += (unsigned)(w / 977) + (unsigned)(w % 31);
    r += __shfl_xor_sync(~0u, i, 1) + __popc(__match_any_sync(~0u, i % 3)) + __ballot_sync(~0u, i > 0);
    whole[t] = r;
}
"""


@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_single_precision_and_integers(sm):
    """Floats within the library's bounds; the integers are exact."""
    n = 37
    a = np.random.default_rng(6).normal(size=64).astype(np.float32) * 2
    arrays = {"out": np.zeros(64, np.float32), "whole": np.zeros(64, np.uint32), "a": a, "n": np.int32(n)}
    found, _ = launch(load(MATHS, sm), "maths", arrays)
    x = a.astype(np.float64)
    expected = np.exp(x) + np.log(np.abs(x) + 1) + np.tanh(x) + np.sin(x) + np.abs(x) ** 1.3
    expected += [math.erf(v) for v in x] + np.fmod(a, np.float32(0.7)).astype(np.float64)
    expected += (
        np.trunc(x * 10 + np.copysign(0.5, x)) + np.arctan2(x, 2) + np.cbrt(x) + x / 3 + (np.abs(x) + 0.1) ** -0.5
    )
    np.testing.assert_allclose(found["out"], expected, rtol=3e-6, atol=3e-6)
    whole = np.rint(a * np.float32(100)).astype(int).tolist()
    for t, i in enumerate(whole):
        u = i % 2**32
        group = whole[t // 32 * 32 : t // 32 * 32 + 32]
        wide = (u * n + 12345678901) % 2**64
        quotient = abs(i) // n * (1 if i >= 0 else -1)
        source = u.to_bytes(4, "little") + n.to_bytes(4, "little")
        r = u.bit_count() + 32 - u.bit_length() + ((u & -u).bit_length() if u else 0) + int(f"{u:032b}"[::-1], 2)
        r += int.from_bytes(bytes(source[k] for k in (0, 4, 1, 5)), "little")
        r += ((n << 32 | u) << 5 >> 32) % 2**32 + (i * n >> 32) + abs(i - n) + 3 + quotient + i - n * quotient
        r += wide // 977 + wide % 31 + whole[t ^ 1]
        r += sum(math.fmod(v, 3) == math.fmod(i, 3) for v in group) + sum((v > 0) << k for k, v in enumerate(group))
        assert found["whole"][t] == r % 2**32, (t, i)


TENSOR = """
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void product(float* d, const __half* a, const __half* b) {
    fragment<matrix_a, 16, 16, 16, __half, row_major> fa;
    fragment<matrix_b, 16, 16, 16, __half, col_major> fb;
    fragment<accumulator, 16, 16, 16, float> fc;
    fill_fragment(fc, 1.f);
    for (int k = 0; k < 64; k += 16) {
        load_matrix_sync(fa, a + k, 64);
        load_matrix_sync(fb, b + k, 64);
        mma_sync(fc, fa, fb, fc);
    }
    for (int i = 0; i < fc.num_elements; ++i) fc.x[i] *= 2.f;
    store_matrix_sync(d, fc, 16, mem_row_major);
}
"""


@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_wmma(sm):
    r = np.random.default_rng(7)
    a, b = (r.integers(-8, 9, (16, 64)).astype(np.float16) for _ in range(2))
    found, _ = launch(load(TENSOR, sm), "product", {"d": np.zeros((16, 16), np.float32), "a": a, "b": b}, block=32)
    expected = 2 * (a.astype(np.float32) @ b.astype(np.float32).T + 1)
    assert (found["d"].reshape(16, 16) == expected).all()


SPACES = """
__device__ __noinline__ float read(const float* p, int i) { return p[i]; }
extern "C" __global__ void spaces(float* out, const float* in, int n) {
    __shared__ float shared[8];
    float local[8];
    int t = threadIdx.x;
    for (int i = 0; i < 8; ++i) local[i] = 100 * t + i + n;
    if (t < 8) shared[t] = -t;
    __syncthreads();
    const float* p = t % 3 == 0 ? shared : t % 3 == 1 ? in : local;
    out[t] = read(p, t & 7);
    float* q = t % 2 ? &local[n & 7] : &out[64 + t];
    *q = t;
    int which;
    switch ((t + n) % 5) {
        case 0: which = 3 * t; break;
        case 1: which = t + 100; break;
        case 2: which = t ^ 7; break;
        case 3: which = -t; break;
        default: which = 9;
    }
    out[128 + t] = which + (t % 2 ? local[n & 7] : 0.f);
    int count = __syncthreads_count(t % 3 == 0);
    out[192 + t] = 4 * count + 2 * __syncthreads_and(t < 64) + __syncthreads_or(t == 63);
}
"""


@pytest.mark.parametrize("engine", ["jit", pytest.param("interpreter", marks=pytest.mark.slow)])
@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_pointers_into_different_spaces(sm, engine):
    """Lanes of a warp read and write shared, global and local memory through one pointer."""
    n = 3
    values = np.arange(8, dtype=np.float32) * 0.5
    arrays = {"out": np.zeros(256, np.float32), "in": values, "n": np.int32(n)}
    found, counters = launch(load(SPACES, sm), "spaces", arrays, engine=engine)
    out = found["out"]
    for t in range(64):
        assert out[t] == [-(t & 7), values[t & 7], 100 * t + (t & 7) + n][t % 3]
        assert out[64 + t] == (0 if t % 2 else t)
        which = [3 * t, t + 100, t ^ 7, -t, 9][(t + n) % 5]
        assert out[128 + t] == which + (t if t % 2 else 0)
    # Of 64 threads 22 are multiples of 3; all are below 64 and one is 63.
    assert set(out[192:].tolist()) == {4 * 22 + 2 + 1}
    # Each of the two warps reads one sector of `in`; local memory is no traffic.
    assert counters.tensors["in"].read_requests == counters.tensors["in"].read_sectors == 2


GRID = """
struct Settings { float weights[8]; int n; };
extern "C" __global__ void settings(float* out, const __grid_constant__ Settings s, Settings copy, int k) {
    int t = threadIdx.x;
    out[t] = s.weights[t & 7] * s.n + copy.weights[(t * k) & 7];
    const float* p = t & 1 ? s.weights : out;
    __syncthreads();
    out[64 + t] = p[2];
}
"""


@pytest.mark.parametrize("engine", ["jit", "interpreter"])
@pytest.mark.parametrize(
    "sm", ["sm_80", *(pytest.param(sm, marks=pytest.mark.slow) for sm in ("sm_75", "sm_90", "sm_100"))]
)
def test_parameters_are_indexed_and_pointed_to(sm, engine):
    """A structure by value, indexed by the lane; generic pointers into the parameters and into global memory."""
    content = np.arange(9, dtype=np.float32)
    content.view(np.int32)[8] = 3
    structure = content.view(np.dtype((np.void, 36)))[0]
    args = {"out": np.zeros(128, np.float32), "s": structure, "copy": structure, "k": np.int32(5)}
    found, _ = launch(load(GRID, sm), "settings", args, engine=engine)
    t = np.arange(64)
    first = (t & 7) * 3 + (t * 5 & 7)
    assert found["out"][:64].tolist() == first.tolist()
    assert found["out"][64:].tolist() == np.where(t & 1, 2, first[2]).tolist()


PIPE = """
extern "C" __global__ void pipe(float* out, const float* in) {
    __shared__ float s[64];
    __shared__ unsigned long long barrier;
    int t = threadIdx.x;
    unsigned b = __cvta_generic_to_shared(&barrier), a = __cvta_generic_to_shared(&s[t]);
    if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" :: "r"(b));
    __syncthreads();
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(a), "l"(__cvta_generic_to_global(in + t)));
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(b));
    asm volatile("{.reg .pred p; WAIT: mbarrier.test_wait.parity.shared.b64 p, [%0], 0; @p bra DONE; bra WAIT; DONE: }"
                 :: "r"(b) : "memory");
    out[t] = s[63 - t];
}
"""


@pytest.mark.parametrize("engine", ["jit", "interpreter"])
@pytest.mark.parametrize("sm", ["sm_80", *(pytest.param(sm, marks=pytest.mark.slow) for sm in ("sm_90", "sm_100"))])
def test_asynchronous_copies_signal_an_mbarrier(sm, engine):
    """Each thread waits for the copies of all 64, which two warps made."""
    values = np.arange(64, dtype=np.float32)
    found, _ = launch(load(PIPE, sm), "pipe", {"out": np.zeros(64, np.float32), "in": values}, engine=engine)
    assert found["out"].tolist() == values[::-1].tolist()


LOCK = """
__device__ int lock = 0, total = 0;
extern "C" __global__ void critical() {
    bool done = false;
    while (!done) {
        if (atomicCAS(&lock, 0, 1) == 0) {
            __threadfence();
            total += 1;
            __threadfence();
            atomicExch(&lock, 0);
            done = true;
        }
    }
}
"""


@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_a_lock_is_taken_by_one_thread_at_a_time(sm):
    """512 threads of eight CTAs on two worker threads add 1 in turn, without an atomic addition."""
    module = load(LOCK + f"// {sm}", sm)
    launch(module, "critical", {}, grid=8, jobs=2)
    assert module.variable("total").view(np.int32)[0] == 512
