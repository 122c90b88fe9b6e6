"""Files that hold a kernel and the host code around it, as tutorials have them: what NVRTC needs, and no more.

NVRTC compiles device code only. It has no C or C++ standard headers, and it refuses functions that are neither
``__device__`` nor ``__global__``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

#: Headers that a kernel's file may include for its host code: nothing is in them. cuda.h is the driver's interface.
_EMPTY: Final = (
    *("array", "assert.h", "cassert", "chrono", "complex", "cstdarg", "cstdio", "cstdlib", "cstring"),
    *("cublas_v2.h", "cuda.h", "cuda_profiler_api.h", "thread", "typeinfo", "unistd.h"),
    *("ctime", "errno.h", "fstream", "functional", "initializer_list", "iomanip", "iostream", "map", "memory"),
    *("numeric", "random", "set", "sstream", "stdbool.h", "stdexcept", "stdio.h", "stdlib.h", "string", "string.h"),
    *("sys/time.h", "time.h", "tuple", "unordered_map", "utility", "vector"),
)
_INTEGERS: Final = """#pragma once
typedef signed char int8_t; typedef unsigned char uint8_t; typedef short int16_t; typedef unsigned short uint16_t;
typedef int int32_t; typedef unsigned int uint32_t; typedef long long int64_t; typedef unsigned long long uint64_t;
typedef long long intptr_t; typedef unsigned long long uintptr_t;
namespace std {
using ::int8_t; using ::uint8_t; using ::int16_t; using ::uint16_t; using ::int32_t; using ::uint32_t;
using ::int64_t; using ::uint64_t; using ::intptr_t; using ::uintptr_t;
}
"""
_LIMITS: Final = """#pragma once
#define CHAR_BIT 8
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define SHRT_MIN (-32768)
#define SHRT_MAX 32767
#define USHRT_MAX 65535
#define INT_MIN (-2147483647 - 1)
#define INT_MAX 2147483647
#define UINT_MAX 4294967295u
#define LLONG_MAX 9223372036854775807ll
#define LLONG_MIN (-9223372036854775807ll - 1)
#define ULLONG_MAX 18446744073709551615ull
"""
_FLOAT: Final = """#pragma once
#define FLT_EPSILON 1.1920928955078125e-07f
#define FLT_MIN 1.1754943508222875e-38f
#define FLT_MAX 3.4028234663852886e+38f
#define DBL_EPSILON 2.2204460492503131e-16
#define DBL_MIN 2.2250738585072014e-308
#define DBL_MAX 1.7976931348623157e+308
"""
_MATH: Final = """#pragma once
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define HUGE_VALF INFINITY
#define M_E 2.71828182845904523536
#define M_LOG2E 1.44269504088896340736
#define M_LN2 0.693147180559945309417
#define M_PI 3.14159265358979323846
#define M_SQRT2 1.41421356237309504880
namespace std {
using ::abs; using ::ceil; using ::exp; using ::fabs; using ::floor; using ::fmax; using ::fmin; using ::isinf;
using ::isnan; using ::log; using ::pow; using ::sqrt; using ::tanh;
}
"""
_NUMERIC_LIMITS: Final = """#pragma once
namespace std {
template <typename T> struct numeric_limits;
template <> struct numeric_limits<float> {
  static __device__ float infinity() { return __int_as_float(0x7f800000); }
  static __device__ float quiet_NaN() { return __int_as_float(0x7fffffff); }
  static constexpr __device__ float max() { return 3.4028234663852886e+38f; }
  static constexpr __device__ float min() { return 1.1754943508222875e-38f; }
  static constexpr __device__ float lowest() { return -3.4028234663852886e+38f; }
  static constexpr __device__ float epsilon() { return 1.1920928955078125e-07f; }
};
template <> struct numeric_limits<int> {
  static constexpr __device__ int max() { return 2147483647; }
  static constexpr __device__ int min() { return -2147483647 - 1; }
  static constexpr __device__ int lowest() { return min(); }
};
}
"""
_TRAITS: Final = """#pragma once
namespace std {
template <bool B, typename T = void> struct enable_if {};
template <typename T> struct enable_if<true, T> { typedef T type; };
template <bool B, typename T = void> using enable_if_t = typename enable_if<B, T>::type;
template <bool B, typename T, typename F> struct conditional { typedef T type; };
template <typename T, typename F> struct conditional<false, T, F> { typedef F type; };
template <bool B, typename T, typename F> using conditional_t = typename conditional<B, T, F>::type;
template <typename T, typename U> struct is_same { static constexpr bool value = false; };
template <typename T> struct is_same<T, T> { static constexpr bool value = true; };
template <typename T, typename U> constexpr bool is_same_v = is_same<T, U>::value;
}
"""

#: The standard headers, as far as device code uses them.
HEADERS: Final[dict[str, str]] = {
    **dict.fromkeys(_EMPTY, "#pragma once\n"),
    **dict.fromkeys(("stdint.h", "cstdint", "inttypes.h", "cinttypes"), _INTEGERS),
    **dict.fromkeys(("limits.h", "climits"), _LIMITS),
    **dict.fromkeys(("float.h", "cfloat"), _FLOAT),
    **dict.fromkeys(("math.h", "cmath"), _MATH),
    **dict.fromkeys(("stddef.h", "cstddef"), "#pragma once\nnamespace std { using ::size_t; }\n"),
    "algorithm": "#pragma once\nnamespace std { using ::max; using ::min; }\n",
    "limits": _NUMERIC_LIMITS,
    "type_traits": _TRAITS,
}

_OPAQUE: Final = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:\\\n|[^\n])*',
    re.DOTALL | re.MULTILINE,
)
_DEFINE: Final = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:\([^)]*\))?((?:\\\n|[^\n])*)", re.MULTILINE)
_DEVICE: Final = re.compile(r"\b(?:__global__|__device__|__constant__|__shared__|constexpr)\b")
_SCOPE: Final = re.compile(r"\bnamespace\b|\bextern\s*$")
_TYPE: Final = re.compile(r"^\s*(?:typedef\s+)?(?:class|struct|union|enum)\b(?!.*\))", re.DOTALL)


def device_code(source: str) -> str:
    """A CUDA source without its host functions, every line where it was.

    A function definition at namespace scope is left out if neither ``__global__`` nor ``__device__`` nor
    ``constexpr`` nor a macro that stands for one of them comes before its name. Everything else stays.

    Parameters
    ----------
    source : str

    Returns
    -------
    str
        ``source`` itself if it has no host function.
    """
    text = _OPAQUE.sub(lambda found: _blank(found.group()), source)
    macros = {found[1] for found in _DEFINE.finditer(source) if _DEVICE.search(found[2])}
    result = list(source)
    for start, stop in _host_functions(text, macros):
        result[start:stop] = _blank(source[start:stop])
    return "".join(result)


def _host_functions(text: str, macros: set[str]) -> Iterator[tuple[int, int]]:
    """Where the host functions are in a text without comments, strings and directives."""
    start = place = 0
    while (found := re.compile(r"[;{}]").search(text, place)) is not None:
        place = found.end()
        if found.group() != "{":
            start = place
            continue
        head = text[start : found.start()]
        if _SCOPE.search(head) and "(" not in head:
            start = place
            continue
        place = _closing(text, place)
        plain = _without_template(head)
        annotated = _DEVICE.search(head) or any(word in macros for word in re.findall(r"\w+", head))
        if "(" in plain and "=" not in plain.partition("(")[0] and not annotated and not _TYPE.match(plain):
            yield start + len(head) - len(head.lstrip()), place
            start = place
        elif "(" in plain and "=" not in plain:
            start = place


def _without_template(head: str) -> str:
    """A declaration's head without ``template <...>`` before it."""
    found = re.match(r"\s*template\s*<", head)
    if found is None:
        return head
    depth = 1
    for place in range(found.end(), len(head)):
        depth += {"<": 1, ">": -1}.get(head[place], 0)
        if depth == 0:
            return _without_template(head[place + 1 :])
    return head


def _closing(text: str, place: int) -> int:
    """Behind the brace that closes the one before ``place``."""
    depth = 1
    for brace in re.compile(r"[{}]").finditer(text, place):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return brace.end()
    return len(text)


def _blank(text: str) -> str:
    """Spaces in its place, so that positions and lines stay."""
    return re.sub(r"[^\n]", " ", text)
