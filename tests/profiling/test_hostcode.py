"""A kernel's file with host code around it: what is left out, what stays, and where."""

from __future__ import annotations

import pytest

from fa_bench import nvrtc as library
from fa_bench.profiling.hostcode import HEADERS, device_code

FILE = """#include <iostream>
#define DEV __device__ __forceinline__
#define LOG(x) do { std::cout << x; } while (0)
DEV float square(float x) { return x * x; }
struct Pair { float x; __device__ Pair(float v) { x = v; } };
enum class Mode { A, B };
namespace lab {
constexpr int N = 4;
template <typename T> T on_the_host(T x) { return x; }
template <class T, int W = 2> __global__ void kernel(const T* a, T* b) { b[0] = square(a[0]) * W; }
}
static int table[] = {1, 2};
__constant__ float c[4];
extern "C" {
__global__ void plain(float* x) { if (x) { x[0] = 1; } }
void also_host() { std::vector<int> v; }
}
/* { int x( } */
void run(std::vector<float>& v, const char* s = "{") {
  lab::kernel<float><<<1, 128>>>(p, p);  // }
}
int declared_only(int);
int main() {
  std::cout << "x}" << '}' << R"(})" << std::endl;
  return 0;
}
"""


def test_only_host_functions_go_and_every_line_stays_where_it_was() -> None:
    text = device_code(FILE)
    lines, before = text.split("\n"), FILE.split("\n")
    assert len(lines) == len(before)
    gone = {number for number, line in enumerate(lines, 1) if line != before[number - 1]}
    # The host template, also_host, run (three lines) and main (four); of a line nothing else is lost.
    assert gone == {9, 16, 19, 20, 21, 23, 24, 25, 26}
    assert all(not lines[number - 1].strip() for number in gone)


def test_device_code_stays_as_it_is() -> None:
    text = "__device__ float f(float x) { return x; }\n__global__ void k(float* x) { x[0] = f(x[0]); }\n"
    assert device_code(text) == text


@pytest.mark.usefixtures("nvrtc")
def test_what_is_left_compiles() -> None:
    compiler = library.load()
    options = ["--gpu-architecture=sm_80", f"--include-path={compiler.include}", "--device-as-default-execution-space"]
    product = compiler.compile(device_code(FILE), "file.cu", options, HEADERS, ["lab::kernel<float>"])
    assert product.names["lab::kernel<float>"] in product.ptx


@pytest.mark.usefixtures("nvrtc")
def test_every_header_can_be_included_with_all_others() -> None:
    compiler = library.load()
    source = "".join(f"#include <{name}>\n" for name in HEADERS) + (
        "__global__ void k(float* x, uint64_t* y) {\n"
        "  x[0] = INFINITY; x[1] = FLT_MAX; x[2] = std::numeric_limits<float>::lowest(); x[3] = M_PI;\n"
        "  y[0] = UINT_MAX; y[1] = std::is_same<int, std::int32_t>::value; x[4] = std::max(x[5], std::exp(x[6]));\n"
        "}\n"
    )
    ptx = compiler.compile(source, "k.cu", ["--gpu-architecture=sm_80"], HEADERS).ptx
    # INFINITY, FLT_MAX and its negative, as PTX writes their bits.
    for bits in ("2139095040", "2139095039", "-8388609"):
        assert bits in ptx
