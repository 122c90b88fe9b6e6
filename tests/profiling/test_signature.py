"""Parameters read from a source, kernels found by their names, arguments bound to parameters."""

from __future__ import annotations

import pytest

from fa_bench.errors import UsageError
from fa_bench.profiling.args import Argument, Null, Scalar, Tensor, parse
from fa_bench.profiling.signature import Parameter, bind, choose, declared, demangled

SOURCE = """
// __global__ void commented(int x);
extern "C" __global__ void plain(const float* __restrict__ a, float *b, int n) {}
__global__ void __launch_bounds__(128, 2) bounded(half const* __restrict__ q, unsigned int count = 4) {}
__launch_bounds__(256)
static __global__ void before(float x[], size_t n) {}
template <typename T, int N> __global__ void __launch_bounds__(N * (2 + 2))
generic(const T* __restrict__ in,  // [rows, N]
        T* out, float2 pair, std::uint32_t k) { other(1, 2); }
__global__ void empty() {}
"""


def test_the_parameters_of_a_source() -> None:
    assert declared(SOURCE) == {
        "plain": (("a", "const float*"), ("b", "float*"), ("n", "int")),
        "bounded": (("q", "half const*"), ("count", "unsigned int")),
        "before": (("x", "float*"), ("n", "size_t")),
        "generic": (("in", "const T*"), ("out", "T*"), ("pair", "float2"), ("k", "std::uint32_t")),
        "empty": (),
    }


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ("plain", "plain"),
        ("_Z5scalePfi", "scale"),
        ("_ZL5scalePfi", "scale"),
        ("_Z5scaleIfLi4EEvPT_", "scale"),
        ("_ZN3lab5scaleEPf", "lab::scale"),
        ("_ZN3lab5inner5scaleILi4EEEvPf", "lab::inner::scale"),
        ("_Zodd", "_Zodd"),
    ],
)
def test_a_mangled_name(entry: str, name: str) -> None:
    assert demangled(entry) == name


def test_a_kernel_is_found_by_any_of_its_names() -> None:
    entries = ["_Z5scalePf", "_ZN3lab5shiftEPf", "plain"]
    assert choose(entries, "scale") == "_Z5scalePf"
    assert choose(entries, "_Z5scalePf") == "_Z5scalePf"
    assert choose(entries, "lab::shift") == choose(entries, "shift") == "_ZN3lab5shiftEPf"
    assert choose(["plain"], None) == "plain"
    with pytest.raises(UsageError, match="There are 3 kernels; say which one"):
        choose(entries, None)
    with pytest.raises(UsageError, match="no kernel 'scael'") as refused:
        choose(entries, "scael")
    assert refused.value.hint == "Did you mean 'scale'?"
    with pytest.raises(UsageError, match="2 kernels are called scale"):
        choose(["_Z5scalePf", "_Z5scalePi"], "scale")


PARAMETERS = (Parameter("Q", "const half*", 8), Parameter("O", "float*", 8), Parameter("n", "int", 4))


def arguments(**texts: str) -> list[Argument]:
    return [parse(name, text) for name, text in texts.items()]


def test_arguments_go_by_name_whatever_their_order() -> None:
    bound = bind("k", PARAMETERS, arguments(n="3", O="f32[4]", Q="f16[4]"))
    assert [argument.name for argument in bound] == ["Q", "O", "n"]
    assert bound[2] == Scalar("n", "i32", 3)


def test_arguments_go_by_position_where_no_name_is_known() -> None:
    bound = bind("k", (Parameter("k_param_0", "", 8), Parameter("k_param_1", "", 4)), arguments(x="f16[4]", n="3"))
    assert [argument.name for argument in bound] == ["x", "n"]
    assert bound[1] == Scalar("n", "i32", 3)


@pytest.mark.parametrize(
    ("ctype", "size", "text", "kind"),
    [
        ("float", 4, "1", "f32"),
        ("double", 8, "1", "f64"),
        ("size_t", 8, "1", "u64"),
        ("unsigned", 4, "1", "u32"),
        ("half", 2, "0.5", "f16"),
        ("bool", 1, "1", "u8"),
        ("", 8, "1", "i64"),
        ("", 4, "1.5", "f32"),
        ("index_t", 4, "7", "i32"),
        ("uint32_t", 4, "i32=7", "i32"),
    ],
)
def test_a_number_takes_the_parameters_type(ctype: str, size: int, text: str, kind: str) -> None:
    (bound,) = bind("k", (Parameter("n", ctype, size),), arguments(n=text))
    assert isinstance(bound, Scalar)
    assert bound.type == kind


@pytest.mark.parametrize(
    ("given", "sentence", "advice"),
    [
        ({"Q": "f16[4]", "O": "f32[4]"}, "needs an argument for its parameter n (int)", "k takes Q (const half*)"),
        ({"Q": "f16[4]", "O": "f32[4]", "nn": "3"}, "has no parameter 'nn'", "Did you mean 'n'?"),
        ({"a": "f16[4]"}, "takes 3 arguments, not 1", "k takes Q (const half*), O (float*), n (int)."),
        ({"Q": "f32[4]", "O": "f32[4]", "n": "3"}, "Q (const half*) of kernel k can't be f32[4]", "Q=f16[1024]"),
        ({"Q": "f16=1", "O": "f32[4]", "n": "3"}, "can't be the number f16=1.0", "an array, as in Q=f16[1024]"),
        ({"Q": "f16[4]", "O": "f32[4]", "n": "i64=3"}, "n (int) of kernel k can't be i64=3", "n=i32=1"),
        ({"Q": "f16[4]", "O": "f32[4]", "n": "f32=3"}, "n (int) of kernel k can't be f32=3.0", "n=i32=1"),
        ({"Q": "f16[4]", "O": "f32[4]", "n": "i32[3]"}, "n (int) of kernel k can't be an array", "n=i32=1"),
    ],
)
def test_what_does_not_fit_says_which_parameter_expects_what(given: dict, sentence: str, advice: str) -> None:
    with pytest.raises(UsageError) as refused:
        bind("k", PARAMETERS, arguments(**given))
    assert sentence in refused.value.message
    assert advice in refused.value.hint


def test_pointers() -> None:
    (null,) = bind("k", (Parameter("p", "float*", 8),), arguments(p="null"))
    assert null == Null("p")
    # Sixteen-bit patterns are what NumPy has for bfloat16.
    (bits,) = bind("k", (Parameter("p", "const __nv_bfloat16*", 8),), arguments(p="u16[4]"))
    assert isinstance(bits, Tensor)
    assert bits.type == "bf16"
    # Nothing is known of a type of the user's.
    (own,) = bind("k", (Parameter("p", "element*", 8),), arguments(p="f16[4]"))
    assert isinstance(own, Tensor)
    with pytest.raises(UsageError, match="can't be an array"):
        bind("k", (Parameter("p", "", 4),), arguments(p="f16[4]"))


def test_an_argument_twice() -> None:
    with pytest.raises(UsageError, match="Argument n is given twice"):
        bind("k", PARAMETERS, [parse("n", "1"), parse("n", "2")])


@pytest.mark.parametrize(
    ("ctype", "const"),
    [
        ("const float* __restrict__", True),
        ("half const*", True),
        ("float*", False),
        ("float* const", False),
        ("const int", False),
        ("", False),
    ],
)
def test_pointers_to_const(ctype: str, const: bool) -> None:
    assert Parameter("x", ctype, 8).points_to_const is const
