"""PTX that comes with fa-bench, for machines without NVRTC: the kernels of the default cases, compiled once.

The archive is a zip file: ``index.json`` names every kernel, and one member per source holds the PTX of its variants,
compressed together because they differ little. ``scripts/ship_ptx.py`` makes it. A kernel is found by its source, entry
and defines, the architecture, and a hash of the source and its headers: PTX of an older source is never used.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from fa_bench.algorithms.base import KernelSpec
from fa_bench.sources import closure, content_hash

ARCHIVE: Final = Path(__file__).parent / "_shipped" / "ptx.zip"
INDEX: Final = "index.json"
#: Time stamps would make two archives of the same kernels differ; this is the earliest that a zip file can hold.
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ShippedKernel:
    """PTX and what ptxas said of it when it was made; ``nvrtc_version`` is that of the compiler."""

    ptx: str
    registers: int
    static_smem_bytes: int
    spill_bytes: int
    nvrtc_version: str


@dataclass(frozen=True, slots=True)
class ShippedIndex:
    """What the archive holds.

    Parameters
    ----------
    contents : mapping of str to str
        Name of each kernel's variant (:func:`variant`) -> hash of the source and headers that it was made of.
    nvrtc_version : str
    """

    contents: Mapping[str, str]
    nvrtc_version: str

    @property
    def architectures(self) -> tuple[str, ...]:
        """What the kernels are compiled for."""
        return tuple(sorted({name.split(":")[2] for name in self.contents}))


def variant(spec: KernelSpec, sm: str) -> str:
    """Name of a kernel as it is compiled: source, entry, architecture, and a hash of the defines."""
    defines = hashlib.sha256(json.dumps(sorted(spec.defines)).encode()).hexdigest()[:16]
    return f"{spec.source}:{spec.entry}:{sm}:{defines}"


def content(spec: KernelSpec, folder: Path) -> str:
    """Hash of the kernel's source below ``folder`` and of what it includes there."""
    return content_hash(*closure(folder / spec.source))


@functools.cache
def index() -> ShippedIndex | None:
    """What is shipped; None if nothing is."""
    if not ARCHIVE.is_file():
        return None
    return ShippedIndex(**_member(INDEX))


def find(spec: KernelSpec, sm: str, folder: Path) -> ShippedKernel | None:
    """The PTX of ``spec`` for ``sm``, if it is shipped and its source below ``folder`` is what it was made of."""
    shipped = index()
    name = variant(spec, sm)
    if shipped is None or shipped.contents.get(name) != content(spec, folder):
        return None
    return ShippedKernel(**_kernels(spec.source)[name], nvrtc_version=shipped.nvrtc_version)


def missing(spec: KernelSpec, sm: str) -> str:
    """One sentence that says why :func:`find` found nothing."""
    shipped = index()
    if shipped is not None and variant(spec, sm) in shipped.contents:
        return f"{spec.source} was changed since its PTX was made, and there is no compiler (NVRTC) here to compile it."
    defines = " ".join(f"{name}={value}" for name, value in spec.defines)
    return (
        f"There is no compiler (NVRTC) here, and {spec.entry} for {sm} with {defines or 'no defines'} "
        "is not among the kernels that come compiled."
    )


def pack(kernels: Iterable[tuple[KernelSpec, str, str, ShippedKernel]]) -> bytes:
    """An archive; equal kernels give equal bytes.

    Parameters
    ----------
    kernels : iterable of (KernelSpec, str, str, ShippedKernel)
        Kernel, architecture, :func:`content` and product, all of one NVRTC.

    Raises
    ------
    ValueError
        If they are not of one NVRTC.
    """
    contents: dict[str, str] = {}
    members: dict[str, dict[str, Any]] = {}
    versions = set()
    for spec, sm, made_of, kernel in kernels:
        name = variant(spec, sm)
        contents[name] = made_of
        fields = asdict(kernel)
        versions.add(fields.pop("nvrtc_version"))
        members.setdefault(spec.source, {})[name] = fields
    if len(versions) != 1:
        raise ValueError(f"kernels of one NVRTC make an archive, not of {sorted(versions)}")
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_LZMA) as archive:
        for member, value in sorted({INDEX: asdict(ShippedIndex(contents, versions.pop())), **members}.items()):
            text = json.dumps(value, indent=0, sort_keys=True)
            archive.writestr(zipfile.ZipInfo(member, _EPOCH), text, zipfile.ZIP_LZMA)
    return target.getvalue()


@functools.lru_cache(maxsize=16)
def _kernels(source: str) -> Mapping[str, Mapping[str, Any]]:
    """Variants of one source; some megabytes of text each."""
    return _member(source)


def _member(name: str) -> dict[str, Any]:
    with zipfile.ZipFile(ARCHIVE) as archive:
        content: dict[str, Any] = json.loads(archive.read(name))
    return content
