"""From the axis options and a preset to a :class:`fa_bench.sweep.plan.SweepRequest`.

The ``default`` preset gives every axis its default; ``--config`` replaces what its preset names, an option what it
names. A value keeps the label of where it came from, so that an error can say which option or file is off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from fa_bench.cases import DIRECTIONS, DTYPES, LAYOUTS, Direction, DType, Features, Layout, Tile
from fa_bench.config import AXES, load_preset
from fa_bench.errors import UsageError, nearest
from fa_bench.units import parse_axis, parse_int, parse_list, parse_tile

if TYPE_CHECKING:
    from fa_bench.sweep.plan import Block, SweepRequest, Window

T = TypeVar("T")

#: Two ways to say the same size: the one that is named last holds.
_EXCLUSIVE: Final = (
    *(("batch", "tokens"), ("heads", "hidden")),
    *(("seq", "seqlens"), ("batch", "seqlens"), ("tokens", "seqlens")),
)
_FEATURES: Final = {"softcap": "softcap", "dropout": "dropout_p", "bias": "bias", "alibi": "alibi", "sinks": "sinks"}
_WITH_NUMBER: Final = ("softcap", "dropout")
_CAUSAL: Final[Mapping[str, tuple[bool, ...]]] = {"true": (True,), "false": (False,), "both": (False, True)}


@dataclass(frozen=True, slots=True)
class AxisText:
    """An axis as it was given, and where: ``--seq``, or ``seq in 'paper-fa2'``."""

    text: str
    label: str


def merge_axes(options: Mapping[str, Any], config: str | None = None) -> dict[str, AxisText]:
    """Lay the options over the preset ``config`` over the default preset.

    Parameters
    ----------
    options : mapping
        Axis -> option text; None where the option was not given. Keys that are no axes are ignored.
    config : str, optional
        Name or path of a preset.
    """
    given = {axis: options[axis] for axis in AXES if options.get(axis) is not None}
    for one, other in _EXCLUSIVE:
        if one in given and other in given:
            raise UsageError(f"--{one} and --{other} can't both be given: --{other} sets the {one}.")
    layers = [_preset_axes("default")] + ([_preset_axes(config)] if config is not None else [])
    layers.append({axis: AxisText(text, f"--{axis.replace('_', '-')}") for axis, text in given.items()})
    merged: dict[str, AxisText] = {}
    for layer in layers:
        for pair in _EXCLUSIVE:
            if any(axis in layer for axis in pair):
                for axis in pair:
                    merged.pop(axis, None)
        merged.update(layer)
    return merged


def sweep_request(axes: Mapping[str, AxisText], device: str, gpu: str | None) -> SweepRequest:
    """Parse merged axes.

    Raises
    ------
    UsageError
        Naming the option or preset key whose value is off.
    """
    from fa_bench.sweep.plan import SweepRequest

    def parsed(axis: str, parse: Callable[[str], T], default: T) -> T:
        return parse_labelled(axes[axis], parse) if axis in axes else default

    def size(axis: str) -> int | None:
        return parsed(axis, _size, None)

    causal: tuple[bool, ...] = parsed("causal", parse_causal, (False,))
    windows: tuple[Window, ...] = parsed("window", parse_windows, (None,))
    # With both masks asked for, the window's right side is the other one's.
    if all(causal):
        _refuse_windows_ahead(axes, windows)
    return SweepRequest(
        seqs=parsed("seq", parse_axis, ()),
        head_dims=parsed("head_dim", parse_axis, (64,)),
        blocks=parsed("block", parse_blocks, ("auto",)),
        stages=parsed("stages", _stages, ()),
        impls=parsed("impl", _impls, ()),
        dtypes=parsed("dtype", parse_dtypes, ("fp16",)),
        causal=causal,
        windows=windows,
        features=parsed("features", parse_features, (Features(),)),
        head_dim_v=size("head_dim_v"),
        layouts=parsed("layout", parse_layouts, ("bhsd",)),
        directions=parsed("direction", parse_directions, ("fwd",)),
        seqlens=parsed("seqlens", parse_seqlens, None),
        batches=parsed("batch", parse_axis, ()),
        heads=parsed("heads", parse_axis, ()),
        heads_kv=parsed("kv_heads", parse_axis, ()),
        tokens=size("tokens"),
        hidden=size("hidden"),
        device=device,
        gpu=gpu,
    )


def _refuse_windows_ahead(axes: Mapping[str, AxisText], windows: tuple[Window, ...]) -> None:
    """Refuse a window that names keys behind the query of its own number: ``8`` under a causal mask is ``8:0``."""
    for left, right in filter(None, windows):
        if right not in (None, 0, left):
            raise UsageError(
                f"{axes['window'].label}: {'-' if left is None else left}:{right} shows {right} keys behind the query, "
                f"which a causal mask hides ({axes['causal'].label}).",
                hint=f"Write {'-' if left is None else left}:0, or leave the causal mask out.",
            )


def parse_labelled(axis: AxisText, parse: Callable[[str], T]) -> T:
    """Parse an axis; an error names where the text came from."""
    try:
        return parse(axis.text)
    except UsageError as error:
        raise UsageError(f"{axis.label}: {error.message}", error.hint) from None


def parse_blocks(text: str) -> tuple[Block, ...]:
    """``auto`` and tiles such as ``64x64``, mixed with commas; tiles are checked."""
    return tuple(_block(item) for item in parse_list(text))


def parse_dtypes(text: str) -> tuple[DType, ...]:
    """Data types, separated by commas."""
    return cast("tuple[DType, ...]", _words(text, DTYPES))


def parse_layouts(text: str) -> tuple[Layout, ...]:
    """Tensor layouts, separated by commas."""
    return cast("tuple[Layout, ...]", _words(text, LAYOUTS))


def parse_directions(text: str) -> tuple[Direction, ...]:
    """Passes, separated by commas."""
    return cast("tuple[Direction, ...]", _words(text, DIRECTIONS))


def parse_causal(text: str) -> tuple[bool, ...]:
    """``true``, ``false`` or ``both``; also the list of the first two that a preset may hold."""
    values = [value for word in _words(text, tuple(_CAUSAL)) for value in _CAUSAL[word]]
    return tuple(dict.fromkeys(values))


def parse_windows(text: str) -> tuple[Window, ...]:
    """``none``, ``128`` (to either side), ``128:0`` (to the left, to the right), ``128:-`` (no limit), with commas."""

    def side(item: str) -> int | None:
        return None if item == "-" else parse_int(item, minimum=0)

    windows: list[Window] = []
    for item in parse_list(text):
        left, colon, right = item.partition(":")
        try:
            windows.append(None if item == "none" else (side(left), side(right if colon else left)))
        except UsageError as error:
            raise UsageError(error.message, hint="Write 128, 128:0, 128:- or none.") from None
    return tuple(windows)


def parse_features(text: str) -> tuple[Features, ...]:
    """``none`` and what is fused, put together with ``+``: ``alibi``, ``softcap=30+dropout=0.1``; with commas."""
    return tuple(_features(item) for item in parse_list(text))


def _features(item: str) -> Features:
    if item == "none":
        return Features()
    given: dict[str, Any] = {}
    for word in item.split("+"):
        name, equals, value = word.partition("=")
        if name not in _FEATURES or bool(equals) != (name in _WITH_NUMBER):
            raise UsageError(
                f"{word!r} is no feature.", hint="Write softcap=30, dropout=0.1, bias, alibi or sinks, joined with +."
            )
        if _FEATURES[name] in given:
            raise UsageError(f"{name} stands twice in {item!r}.")
        try:
            given[_FEATURES[name]] = float(value) if equals else True
        except ValueError:
            raise UsageError(f"{value!r} of {name} is no number.") from None
    return Features(**given)


def parse_pairs(text: str) -> list[tuple[int, int]]:
    """(seq_q, seq_kv) of each item of ``--seq``: ``N`` or ``QxKV``."""
    pairs = []
    for item in parse_list(text):
        query, cross, key = item.partition("x")
        try:
            lengths = parse_int(query, minimum=1), parse_int(key if cross else query, minimum=1)
        except UsageError as error:
            raise UsageError(f"--seq: {error.message}", hint="Write N, or QxKV as in 127x300.") from None
        pairs.append(lengths)
    return pairs


def parse_seqlens(text: str) -> tuple[tuple[int, int], ...]:
    """(queries, keys) of each sequence of a packed batch: ``N`` or ``QxKV``, with commas; either may be 0."""
    lengths = []
    for item in parse_list(text):
        query, cross, key = item.partition("x")
        try:
            lengths.append((parse_int(query, minimum=0), parse_int(key if cross else query, minimum=0)))
        except UsageError as error:
            raise UsageError(error.message, hint="Write N, or QxKV as in 127x300, for each sequence.") from None
    return tuple(lengths)


def _preset_axes(name: str) -> dict[str, AxisText]:
    preset = load_preset(name)
    return {axis: AxisText(text, f"{axis} in {name!r}") for axis, text in preset.axes.items()}


def _block(item: str) -> Block:
    if item == "auto":
        return "auto"
    tile = Tile(*parse_tile(item))
    return tile.block_m, tile.block_n


def _size(text: str) -> int:
    return parse_int(text, minimum=1)


def _stages(text: str) -> tuple[int, ...]:
    return () if text == "auto" else parse_axis(text)


def _impls(text: str) -> tuple[str, ...]:
    return parse_list(text)


def _words(text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    words = parse_list(text)
    for word in words:
        if word not in known:
            raise UsageError(f"{word!r} is none of {', '.join(known)}.", hint=nearest(word, known))
    return words
