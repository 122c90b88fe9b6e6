"""Measured peaks of devices, kept in the user's cache folder: one JSON file per device, by its name and UUID."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Final

from fa_bench.errors import FaBenchError, UsageError
from fa_bench.filecache import PEAKS
from fa_bench.model import gpus
from fa_bench.model.gpu import Gpu
from fa_bench.model.peaks import MeasuredPeaks

_HINT: Final = "Measure them on a machine that has one: fa-bench doctor --peaks."


def store(peaks: MeasuredPeaks) -> None:
    """Keep the peaks of a device, instead of older ones.

    Raises
    ------
    FaBenchError
        If the folder cannot be written.
    """
    key, content = _key(peaks), json.dumps(asdict(peaks), indent=1).encode()
    PEAKS.write(key, content)
    if PEAKS.read(key) != content:
        raise FaBenchError(f"The measured peaks can't be kept in {PEAKS.folder}.", "Set FA_BENCH_CACHE.")


def stored() -> tuple[MeasuredPeaks, ...]:
    """The peaks of all devices that were measured, the latest first. A file that is off is none."""
    found = []
    for key in PEAKS.entries():
        content = PEAKS.read(key)
        try:
            found.append(MeasuredPeaks(**json.loads(content or b"")))
        except (ValueError, TypeError):  # cut off, or of another version
            continue
    return tuple(sorted(found, key=lambda peaks: peaks.measured_at, reverse=True))


def find(gpu: Gpu, device: str = "") -> MeasuredPeaks:
    """The latest peaks of the device called ``device``, else of one that the registry knows as ``gpu``.

    Raises
    ------
    UsageError
        If none was measured.
    """
    known = stored()
    for matches in (lambda name: name == device, lambda name: gpus.find(name) == gpu):
        for peaks in known:
            if matches(peaks.device):
                return peaks
    raise UsageError(f"--peaks measured: no peaks of {device or gpu.name} were measured here.", _HINT)


def _key(peaks: MeasuredPeaks) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "-", f"{peaks.device} {peaks.identity}").strip("-")
    return f"{name}.json"
