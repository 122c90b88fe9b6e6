"""Profiles as files: ``BASE.json``, one document with a version.

Schema 1 (fa-bench 0.1): ``schema, version, source, gpu, seed, launches``; a launch holds what
:class:`fa_bench.profiling.result.KernelProfile` holds, without the outputs, and sums beside it. Fields are only added;
what a field means never changes within a schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

import numpy as np

from fa_bench.errors import UsageError
from fa_bench.profiling.result import (
    Cached,
    Fit,
    KernelProfile,
    Line,
    Profile,
    Resources,
    StaticCount,
    Traffic,
)

SCHEMA: Final = 1
SUFFIX: Final = ".json"


def document(profile: Profile) -> dict[str, Any]:
    """A profile as JSON has it; its fields are described in docs/profile.md."""
    return {
        "schema": SCHEMA,
        "version": profile.version,
        "source": profile.source,
        "gpu": profile.gpu,
        "seed": profile.seed,
        "launches": [_launch(launch) for launch in profile.launches],
    }


def from_document(data: Mapping[str, Any]) -> Profile:
    """The profile that `document` made; keys that this version does not know are passed over.

    Raises
    ------
    KeyError, TypeError, ValueError
        If it is no such document.
    """
    return Profile(
        str(data["source"]),
        str(data["version"]),
        str(data["gpu"]),
        int(data["seed"]),
        tuple(_read_launch(launch) for launch in data["launches"]),
    )


def save(profile: Profile, base: str) -> Path:
    """Write ``BASE.json``.

    Raises
    ------
    UsageError
        If it can't be written.
    """
    path = path_of(base)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document(profile), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{str(path)!r} can't be written: {error.strerror}.") from None
    return path


def load(base: str) -> Profile:
    """Read ``BASE.json`` (or ``BASE``, where that is the file's whole name).

    Raises
    ------
    UsageError
        If there is no such file, or it is no profile that this version reads.
    """
    path = path_of(base)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"There is no profile {str(path)!r}.", f"fa-bench profile --save {base} makes one.") from None
    except OSError as error:
        raise UsageError(f"{str(path)!r} can't be read: {error.strerror}.") from None
    except ValueError:
        raise UsageError(f"{str(path)!r} is not JSON.") from None
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        raise UsageError(f"{str(path)!r} is no profile of schema {SCHEMA}, which this fa-bench reads.")
    try:
        return from_document(data)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{str(path)!r} is no whole profile: {type(error).__name__} {error}.") from None


def save_outputs(profile: Profile, folder: Path) -> list[Path]:
    """Write what the last launch that wrote a tensor left in it, ``NAME.npy`` each; bfloat16 as uint16 patterns.

    Raises
    ------
    UsageError
        If the folder can't be written.
    """
    outputs = {name: values for launch in profile.launches for name, values in launch.outputs.items()}
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, values in outputs.items():
            np.save(folder / f"{name}.npy", values)
            paths.append(folder / f"{name}.npy")
    except OSError as error:
        raise UsageError(f"{str(folder)!r} can't be written: {error.strerror}.") from None
    return paths


def path_of(base: str) -> Path:
    """The file that a base name means."""
    return Path(base if base.endswith(SUFFIX) else f"{base}{SUFFIX}")


def _launch(launch: KernelProfile) -> dict[str, Any]:
    data = {name: value for name, value in _fields(launch).items() if name != "outputs"}
    data |= {
        "grid": list(launch.grid),
        "block": list(launch.block),
        "arguments": dict(launch.arguments),
        "instructions": dict(launch.instructions),
        "unwritten": dict(launch.unwritten),
        "notes": list(launch.notes),
        "resources": {**asdict(launch.resources), "smem_bytes": launch.resources.smem_bytes},
        "occupancy": {**asdict(launch.occupancy), "limits": list(launch.occupancy.limits)},
        "traffic": [{**asdict(moved), "bytes": moved.bytes} for moved in launch.traffic],
        "lines": [{**asdict(line), "tensors": list(line.tensors), "bytes": line.bytes} for line in launch.lines],
        "sass": [asdict(count) for count in launch.sass],
        "caches": [asdict(cached) for cached in launch.caches],
        "global_bytes": launch.global_bytes,
        "warp_instructions": launch.warp_instructions,
        "lane_share": launch.lane_share,
    }
    return data


def _read_launch(data: Mapping[str, Any]) -> KernelProfile:
    x, y, z = data["grid"]
    bx, by, bz = data["block"]
    return KernelProfile(
        **{
            **_own(KernelProfile, data),
            "grid": (x, y, z),
            "block": (bx, by, bz),
            "resources": Resources(**_own(Resources, data["resources"])),
            "occupancy": Fit(
                **{**_own(Fit, data["occupancy"]), "limits": tuple(data["occupancy"]["limits"])},
            ),
            "traffic": tuple(Traffic(**_own(Traffic, moved)) for moved in data["traffic"]),
            "lines": tuple(Line(**{**_own(Line, line), "tensors": tuple(line["tensors"])}) for line in data["lines"]),
            "sass": tuple(StaticCount(**_own(StaticCount, count)) for count in data["sass"]),
            "caches": tuple(Cached(**_own(Cached, cached)) for cached in data.get("caches", ())),
            "notes": tuple(data["notes"]),
        }
    )


def _fields(instance: KernelProfile) -> dict[str, Any]:
    return {item.name: getattr(instance, item.name) for item in fields(instance)}


def _own(cls: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    """What a class of data knows of a document's object."""
    return {item.name: data[item.name] for item in fields(cls) if item.name in data}
