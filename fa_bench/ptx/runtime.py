"""The run-time part of generated code: LLVM IR templates in ``ir/`` with the layout's constants put in."""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import Final

from fa_bench.ptx import layout

#: ``${Class.FIELD}``, ``${NAME}``, or one of them and a number: ``${Context.CTAID + 4}``; ``|`` joins flags.
_PLACE: Final = re.compile(r"\$\{([\w.]+)(?: ([-+*|]) ([\w.]+))?\}")
_UNITS: Final = {1: "i8", 2: "i16", 4: "i32", 8: "i64", 16: "<2 x i64>", 32: "<4 x i64>"}


def template(name: str, **values: int | str) -> str:
    """Text of ``ir/NAME.ll`` with its placeholders replaced.

    Parameters
    ----------
    name : str
    **values
        What is not a constant of :mod:`fa_bench.ptx.layout`.

    Raises
    ------
    KeyError
        If a placeholder has no value.
    """

    def value(word: str) -> int | str:
        if word.isdigit():
            return int(word)
        if word in values:
            return values[word]
        found: object = layout
        for part in word.split("."):
            found = vars(found)[part]
        assert isinstance(found, int)
        return found

    def put(place: re.Match[str]) -> str:
        left = value(place[1])
        if place[2] is None:
            return str(left)
        right = value(place[3])
        assert isinstance(left, int) and isinstance(right, int)
        operations = {"+": left + right, "-": left - right, "*": left * right, "|": left | right}
        return str(operations[place[2]])

    return _PLACE.sub(put, _read(name))


@functools.cache
def _read(name: str) -> str:
    return resources.files("fa_bench.ptx").joinpath("ir", f"{name}.ll").read_text(encoding="utf-8")


def access(size: int) -> str:
    """Loads and stores of ``size`` bytes per lane in both spaces."""
    return template("access", SIZE=size, UNIT=_UNITS[size])


def quads() -> str:
    """``@quads(addresses, mask, out)``: 16 bytes per lane, turned into four vectors of 32 words.

    Four registers hold the data of lanes (j, j+4, j+8, j+12), j = 0 ... 3; a 4 x 4 transposition inside each quarter
    then leaves the lanes in order. Lanes that are off read where the first active lane reads.
    """
    lines = [
        "define internal void @quads(<32 x i64> %a, i32 %mask, ptr %out) #1 {",
        "  %slots = alloca <32 x i64>, align 64",
        "  %f = call i32 @llvm.cttz.i32(i32 %mask, i1 true)",
        "  %af = extractelement <32 x i64> %a, i32 %f",
        "  %one = insertelement <32 x i64> poison, i64 %af, i64 0",
        "  %all = shufflevector <32 x i64> %one, <32 x i64> poison, <32 x i32> zeroinitializer",
        "  %on = bitcast i32 %mask to <32 x i1>",
        "  %safe = select <32 x i1> %on, <32 x i64> %a, <32 x i64> %all",
        "  store <32 x i64> %safe, ptr %slots, align 64",
    ]

    def shuffle(name: str, kind: str, a: str, b: str, lanes: list[int]) -> None:
        indices = ", ".join(f"i32 {k}" for k in lanes)
        lines.append(f"  {name} = shufflevector {kind} {a}, {kind} {b}, <{len(lanes)} x i32> <{indices}>")

    for half in range(2):
        for j in range(4):
            for q in range(4):
                lane = 16 * half + j + 4 * q
                lines += [
                    f"  %s{lane} = getelementptr i64, ptr %slots, i64 {lane}",
                    f"  %p{lane} = load ptr, ptr %s{lane}, align 8",
                    f"  %v{lane} = load <4 x i32>, ptr %p{lane}, align 16",
                ]
            first = 16 * half + j
            for q in (0, 8):
                shuffle(f"%w{first + q}", "<4 x i32>", f"%v{first + q}", f"%v{first + q + 4}", list(range(8)))
            shuffle(f"%z{half}{j}", "<8 x i32>", f"%w{first}", f"%w{first + 8}", list(range(16)))
        z = [f"%z{half}{j}" for j in range(4)]
        low = [4 * q + i for q in range(4) for i in (0, 16, 1, 17)]
        high = [4 * q + i for q in range(4) for i in (2, 18, 3, 19)]
        for name, lanes in (("l", low), ("h", high)):
            shuffle(f"%{name}{half}a", "<16 x i32>", z[0], z[1], lanes)
            shuffle(f"%{name}{half}b", "<16 x i32>", z[2], z[3], lanes)
        for k in range(4):
            name = "lh"[k // 2]
            lanes = [4 * q + i + 2 * (k % 2) for q in range(4) for i in (0, 1, 16, 17)]
            shuffle(f"%r{half}{k}", "<16 x i32>", f"%{name}{half}a", f"%{name}{half}b", lanes)
            lines += [
                f"  %o{half}{k} = getelementptr i8, ptr %out, i64 {128 * k + 64 * half}",
                f"  store <16 x i32> %r{half}{k}, ptr %o{half}{k}, align 64",
            ]
    return "\n".join([*lines, "  ret void", "}", ""])
