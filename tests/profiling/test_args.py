"""Specifications of arguments: what is read, what it holds, what is refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fa_bench.errors import UsageError
from fa_bench.profiling.args import FILLS, STORAGE, Null, Scalar, Tensor, from_value, parse, parse_option, scalar_bytes


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("i32=1024", "i32", 1024),
        ("i64=-5", "i64", -5),
        ("u32=0xff", "u32", 255),
        ("i32=16k", "i32", 16384),
        ("u8=255", "u8", 255),
        ("f32=0.125", "f32", 0.125),
        ("f32=1", "f32", 1.0),
        ("fp32=-1e-3", "f32", -0.001),
        ("f64=.5", "f64", 0.5),
        ("1024", None, 1024),
        ("0.125", None, 0.125),
        ("-3", None, -3),
    ],
)
def test_a_scalar(text: str, kind: str | None, value: float) -> None:
    argument = parse("n", text)
    assert argument == Scalar("n", kind, value)
    assert type(argument.value) is type(value)


@pytest.mark.parametrize(
    ("text", "shape", "fill"),
    [
        ("f16[1024,64]", (1024, 64), "normal"),
        ("fp16[16k]", (16384,), "normal"),
        ("out:f32[2,3,4]", (2, 3, 4), "out"),
        ("zeros:i32[8]", (8,), "zeros"),
        ("range:u8[8]", (8,), "range"),
    ],
)
def test_an_array(text: str, shape: tuple[int, ...], fill: str) -> None:
    argument = parse("x", text)
    assert isinstance(argument, Tensor)
    assert (argument.shape, argument.fill) == (shape, fill)


def test_a_null_pointer() -> None:
    assert parse("p", "null") == Null("p")


def contents(text: str, seed: int = 0, name: str = "x") -> np.ndarray:
    argument = parse(name, text)
    assert isinstance(argument, Tensor)
    return argument.contents(seed)


@pytest.mark.parametrize("kind", STORAGE)
@pytest.mark.parametrize("fill", FILLS)
def test_every_fill_of_every_type_has_the_type_and_the_shape(kind: str, fill: str) -> None:
    values = contents(f"{fill}:{kind}[2,3]")
    assert values.shape == (2, 3)
    assert values.dtype == STORAGE[kind]
    assert values.flags.c_contiguous


def test_what_the_fills_hold() -> None:
    assert contents("zeros:f32[3]").tolist() == [0, 0, 0]
    assert contents("ones:i8[3]").tolist() == [1, 1, 1]
    assert contents("range:f32[2,2]").tolist() == [[0, 1], [2, 3]]
    # 1.0 is 0x3F80 in bfloat16.
    assert contents("ones:bf16[2]").tolist() == [0x3F80, 0x3F80]
    assert np.isnan(contents("out:f16[4]")).all()
    assert contents("out:u32[1]").tolist() == [0xFFFFFFFF]
    drawn = contents("i8[1000]")
    # 16 times a standard normal number, rounded: about two thirds lie within 16.
    assert 0.6 < np.mean(np.abs(drawn.astype(int)) <= 16) < 0.78
    assert contents("u8[1000]").min() == 0


def test_the_seed_and_the_name_draw_the_numbers() -> None:
    assert (contents("f32[8]") == contents("f32[8]")).all()
    assert (contents("f32[8]") != contents("f32[8]", seed=1)).any()
    assert (contents("f32[8]") != contents("f32[8]", name="y")).any()


def test_data_from_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "k.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    plain = parse("K", "k.npy", tmp_path)
    assert isinstance(plain, Tensor)
    assert (plain.type, plain.shape) == ("f32", (2, 3))
    assert plain.contents(0).tolist() == [[0, 1, 2], [3, 4, 5]]
    half = parse("K", "f16:k.npy", tmp_path)
    assert isinstance(half, Tensor)
    assert half.contents(0).dtype == np.float16
    brain = parse("K", "bf16:k.npy", tmp_path)
    assert isinstance(brain, Tensor)
    assert brain.contents(0)[0, 1] == 0x3F80
    # Sixteen-bit patterns are taken as they are.
    np.save(tmp_path / "bits.npy", np.array([0x3F80], np.uint16))
    bits = parse("K", "bf16:bits.npy", tmp_path)
    assert isinstance(bits, Tensor)
    assert bits.contents(0).tolist() == [0x3F80]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("n", "is not NAME=SPECIFICATION"),
        ("=f16[4]", "is not NAME=SPECIFICATION"),
        ("x=f16", "x=f16 is no argument"),
        ("x=f17[4]", "there is no type 'f17'"),
        ("x=f16[]", "is not a whole number"),
        ("x=f16[0]", "is too small"),
        ("x=f16[4,-1]", "is not a whole number"),
        ("x=poison:f16[4]", "there is no fill 'poison'"),
        ("x=i32=1.5", "is no number"),
        ("x=i32=ten", "is no argument"),
        ("x=i8=128", "i8 holds -128 to 127"),
        ("x=u8=-1", "u8 holds 0 to 255"),
        ("x=i32=99999999999999", "i32 holds"),
        ("x=none.npy", "there is no such file"),
        ("x=f64[999999,999999]", "bytes; 1 to"),
    ],
)
def test_what_is_no_argument_is_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_option(text)
    assert sentence in refused.value.message
    assert refused.value.message.count("\n") == 0


def test_a_file_that_is_no_array(tmp_path: Path) -> None:
    (tmp_path / "text.npy").write_text("hello")
    np.savez(tmp_path / "two.npz", a=np.zeros(1), b=np.zeros(1))
    (tmp_path / "two.npz").rename(tmp_path / "two.npy")
    np.save(tmp_path / "complex.npy", np.zeros(2, complex))
    for name, sentence in {"text": "can't be read", "two": "holds several arrays", "complex": "has the type"}.items():
        with pytest.raises(UsageError, match=sentence):
            parse("x", f"{name}.npy", tmp_path)


def test_values_of_python() -> None:
    assert from_value("n", 3) == Scalar("n", None, 3)
    assert from_value("n", np.int64(3)) == Scalar("n", "i64", 3)
    assert from_value("n", np.float16(0.5)) == Scalar("n", "f16", 0.5)
    assert from_value("n", None) == Null("n")
    assert from_value("n", "i32=3") == Scalar("n", "i32", 3)
    transposed = from_value("x", np.arange(6, dtype=np.int32).reshape(2, 3).T)
    assert isinstance(transposed, Tensor)
    assert transposed.contents(0).tolist() == [[0, 3], [1, 4], [2, 5]]
    with pytest.raises(UsageError, match="Argument x is a list"):
        from_value("x", [1, 2])
    with pytest.raises(UsageError, match="has the type complex"):
        from_value("x", np.zeros(2, complex))
    with pytest.raises(UsageError, match="has 0 bytes"):
        from_value("x", np.zeros(0, np.float32))


def test_a_scalar_as_its_type() -> None:
    assert scalar_bytes(Scalar("n", None, 3), "i64") == np.int64(3)
    assert scalar_bytes(Scalar("n", None, 3), "f32").dtype == np.float32
    # 1 + 2^-8 lies halfway between two bfloat16 numbers and goes to the even one: 1.0, 0x3F80.
    assert scalar_bytes(Scalar("n", None, 1 + 2**-8), "bf16") == 0x3F80
    with pytest.raises(UsageError, match="holds whole numbers"):
        scalar_bytes(Scalar("n", None, 1.5), "i32")
