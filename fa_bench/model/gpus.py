"""The registry of GPUs: one TOML file each in ``gpus/``, with its sources, checked when it is read.

A GPU is added by one file; its name is the slug. Figures stand in the units of data sheets (KiB, MiB, MHz, GB/s,
TFLOP/s) and become bytes here, once. A tensor-core peak or a board's power that does not exist or that no source gives
is left out; every other key must be there, and no key may be there that this module does not know.

A GPU is found by its slug, by the driver's name or by an alias. Case does not matter, nor do the differences
between blanks, hyphens and underscores, a leading "NVIDIA" or a remark in parentheses at the end. The bare name of
a family (``a100``, ``h100``) stands for its SXM board with the most memory in the registry.
"""

from __future__ import annotations

import difflib
import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final

from fa_bench.errors import UsageError, nearest
from fa_bench.model.gpu import Gpu

_KIB: Final = 1024
_MIB: Final = 1024**2
_GIB: Final = 1024**3

_TEXT_KEYS: Final = ("name", "arch", "mem_type", "compute_capability")
_LIST_KEYS: Final = ("aliases", "sources")
#: TOML key -> field of Gpu and the factor between them.
_WHOLE_KEYS: Final[dict[str, tuple[str, int]]] = {
    "sm_count": ("sm_count", 1),
    "l2_mib": ("l2_bytes", _MIB),
    "l2_partitions": ("l2_partitions", 1),
    "l1_kib": ("l1_bytes", _KIB),
    "smem_per_sm_kib": ("smem_per_sm_bytes", _KIB),
    "smem_per_block_kib": ("smem_per_block_bytes", _KIB),
    "smem_bytes_per_clk_per_sm": ("smem_bytes_per_clk_per_sm", 1),
    "regs_per_sm": ("regs_per_sm", 1),
    "max_threads_per_sm": ("max_threads_per_sm", 1),
    "max_blocks_per_sm": ("max_blocks_per_sm", 1),
    "mufu_per_clk_per_sm": ("mufu_per_clk_per_sm", 1),
    "mem_gib": ("mem_bytes", _GIB),
}
_NUMBER_KEYS: Final = ("boost_mhz", "boost_max_mhz", "mem_bandwidth_gbs", "fp32_tflops")
_PEAK_KEYS: Final = ("fp16_tensor_tflops", "bf16_tensor_tflops", "tf32_tensor_tflops", "fp8_tensor_tflops")
_OPTIONAL_KEYS: Final = (*_PEAK_KEYS, "board_power_w")
_REQUIRED: Final = (*_TEXT_KEYS, *_LIST_KEYS, *_WHOLE_KEYS, *_NUMBER_KEYS)
_KNOWN: Final = (*_REQUIRED, *_OPTIONAL_KEYS, "unverified", "note")


def get(name: str) -> Gpu:
    """The GPU called ``name``: a slug, a driver's name or an alias.

    Raises
    ------
    UsageError
        If the registry has no such GPU; the hint names the nearest slug.
    """
    gpu = find(name)
    if gpu is None:
        # An alias may be nearer than its slug, but the slug is what there is to learn.
        close = difflib.get_close_matches(_key(name), _by_key(), n=1)
        known = [_by_key()[close[0]].slug] if close else [gpu.slug for gpu in all_gpus()]
        hint = f"Did you mean {known[0]!r}?" if close else f"Known: {', '.join(known)}."
        raise UsageError(f"There is no GPU {name!r} in the registry.", hint)
    return gpu


def find(name: str) -> Gpu | None:
    """Like :func:`get`, but None where the registry has no such GPU."""
    return _by_key().get(_key(name))


def all_gpus() -> tuple[Gpu, ...]:
    """Every GPU of the registry, by compute capability, then by slug.

    Raises
    ------
    UsageError
        If a file of the registry is off.
    """
    return _shipped()


def read_folder(folder: Traversable) -> tuple[Gpu, ...]:
    """Read and check every ``*.toml`` file of ``folder``.

    Raises
    ------
    UsageError
        If a file is not TOML, has a gap, an unknown key or an impossible figure, or if two files share a name.
    """
    gpus = [
        parse(entry.name.removesuffix(".toml"), entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    ]
    _index(gpus)
    return tuple(sorted(gpus, key=lambda gpu: (gpu.compute_capability, gpu.slug)))


def parse(slug: str, text: str) -> Gpu:
    """Make a GPU from the text of its TOML file.

    Parameters
    ----------
    slug : str
        The file's name without ``.toml``; errors name it.
    text : str
        The file's content.

    Raises
    ------
    UsageError
        See :func:`read_folder`.
    """
    where = f"{slug}.toml"
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where} is not valid TOML: {error}.") from error
    _check_keys(where, data)
    values: dict[str, Any] = {key: _text(where, data, key) for key in _TEXT_KEYS}
    values |= {field: _whole(where, data, key) * factor for key, (field, factor) in _WHOLE_KEYS.items()}
    values |= {key: _number(where, data, key) for key in _NUMBER_KEYS}
    values |= {key: _number(where, data, key) if key in data else None for key in _OPTIONAL_KEYS}
    values |= {key: _texts(where, data, key) for key in _LIST_KEYS}
    values["compute_capability"] = _capability(where, values["compute_capability"])
    values["unverified"] = _unverified(where, data)
    values["note"] = _text(where, data, "note", empty=True) if "note" in data else ""
    gpu = Gpu(slug=slug, **values)
    _check_sense(where, gpu)
    return gpu


@functools.cache
def _shipped() -> tuple[Gpu, ...]:
    return read_folder(resources.files("fa_bench.model") / "gpus")


@functools.cache
def _by_key() -> Mapping[str, Gpu]:
    return _index(_shipped())


def _index(gpus: Iterable[Gpu]) -> dict[str, Gpu]:
    """Every spelling of every GPU; the same spelling twice is an error, within one file too."""
    found: dict[str, Gpu] = {}
    for gpu in gpus:
        # A driver's name may spell the slug; an alias that adds nothing would be a second way to say the same.
        keys = list(dict.fromkeys((_key(gpu.slug), _key(gpu.name)))) + [_key(alias) for alias in gpu.aliases]
        for key in keys:
            if key in found:
                raise UsageError(f"{gpu.slug}.toml claims the name {key!r}, which {found[key].slug}.toml has already.")
            found[key] = gpu
    return found


def _key(name: str) -> str:
    without_remark = re.sub(r"\s*\([^()]*\)\s*$", "", name)
    return re.sub(r"[\s_-]+", "-", without_remark.strip().casefold()).removeprefix("nvidia-")


def _check_keys(where: str, data: Mapping[str, object]) -> None:
    for key in data:
        if key not in _KNOWN:
            raise UsageError(f"{where} has an unknown key {key!r}.", nearest(key, _KNOWN))
    missing = [key for key in _REQUIRED if key not in data]
    if missing:
        raise UsageError(f"{where} lacks {', '.join(missing)}.")


def _check_sense(where: str, gpu: Gpu) -> None:
    if not gpu.sources:
        raise UsageError(f"{where} names no source.")
    if gpu.smem_per_block_bytes > gpu.smem_per_sm_bytes:
        raise UsageError(f"{where} allows one block more shared memory than an SM has.")
    if gpu.smem_per_sm_bytes >= gpu.l1_bytes:
        raise UsageError(f"{where} leaves no L1: smem_per_sm_kib must be less than l1_kib.")
    if gpu.l2_partitions > 2:
        raise UsageError(f"{where} has an L2 of {gpu.l2_partitions} partitions; known are 1 and 2.")
    if gpu.boost_mhz > gpu.boost_max_mhz:
        raise UsageError(f"{where} has boost_mhz above boost_max_mhz.")


def _capability(where: str, text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,2})\.([0-9])", text)
    if match is None:
        raise UsageError(f"{where}: compute_capability must be like '8.0', not {text!r}.")
    return int(match[1]), int(match[2])


def _unverified(where: str, data: Mapping[str, object]) -> tuple[str, ...]:
    keys = _texts(where, data, "unverified") if "unverified" in data else ()
    for key in keys:
        if key not in data:
            raise UsageError(f"{where} marks {key!r} as unverified but does not give it.", nearest(key, data))
    return tuple(_WHOLE_KEYS[key][0] if key in _WHOLE_KEYS else key for key in keys)


def _text(where: str, data: Mapping[str, object], key: str, *, empty: bool = False) -> str:
    value = data[key]
    if not isinstance(value, str) or not (value or empty):
        raise UsageError(f"{where}: {key} must be text, not {value!r}.")
    return value


def _texts(where: str, data: Mapping[str, object], key: str) -> tuple[str, ...]:
    value = data[key]
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise UsageError(f"{where}: {key} must be a list of texts, not {value!r}.")
    return tuple(value)


def _whole(where: str, data: Mapping[str, object], key: str) -> int:
    value = data[key]
    # type() and not isinstance: true and false are ints in Python.
    if type(value) is not int or value < 1:
        raise UsageError(f"{where}: {key} must be a whole number of at least 1, not {value!r}.")
    return value


def _number(where: str, data: Mapping[str, object], key: str) -> float:
    value = data[key]
    # bool is an int to Python. The upper end refuses TOML's inf, and nan fails every comparison.
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e9:
        raise UsageError(f"{where}: {key} must be a positive number, not {value!r}.")
    return float(value)
