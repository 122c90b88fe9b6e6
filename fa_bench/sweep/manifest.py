"""``run.json``: what a run is, what it was made with, and how to make it again."""

from __future__ import annotations

import dataclasses
import json
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import fa_bench
from fa_bench.backends.base import BackendName
from fa_bench.errors import UsageError
from fa_bench.measure.environment import Environment
from fa_bench.sweep.plan import SweepPlan

MANIFEST_SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class Identity:
    """What rows must share to stand in one folder.

    ``devices`` maps each backend of the sweep to the name of the device that runs it, ``settings`` each option that
    decides what is in a row to its value. A setting that one of two runs does not name, as one of an older version
    doesn't, is no difference: it is not known.
    """

    tool_version: str
    nvrtc_version: str | None
    gpu: str
    devices: Mapping[str, str]
    settings: Mapping[str, str] = field(default_factory=dict)

    def difference(self, other: Identity) -> str | None:
        """A clause that names the first difference of ``self`` (on disk) and ``other`` (now), or None."""
        for name, what in (
            ("tool_version", "fa-bench"),
            ("nvrtc_version", "NVRTC"),
            ("gpu", "target GPU"),
            ("devices", "devices"),
        ):
            then, now = getattr(self, name), getattr(other, name)
            if then != now:
                return f"it was made with {what} {_text(then)}, this run has {_text(now)}"
        for name, then in self.settings.items():
            if (now := other.settings.get(name, then)) != then:
                return f"it was made with {name} {then}, this run has {now}"
        return None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of ``run.json``.

    Parameters
    ----------
    run_id : str
        Time of the start in UTC and a short random part.
    created : str
        ISO 8601, UTC.
    identity : Identity
    command : str
        Shell line that repeats the run.
    argv : tuple of str
    request : mapping
        The axes, as `SweepRequest` holds them.
    environment : mapping
        Versions and machine, as `Environment` holds them.
    gpu : mapping
        The target GPU's data.
    resumed : tuple of mapping
        Time and argv of each time the run was resumed.
    finished : str, optional
        When the last planned case had its row; None until then.
    accepted : tuple of mapping
        For a baseline: when rows of which run were taken over, how many, and how many of them were not ok.
    """

    run_id: str
    created: str
    identity: Identity
    command: str
    argv: tuple[str, ...]
    request: Mapping[str, Any]
    environment: Mapping[str, Any]
    gpu: Mapping[str, Any]
    resumed: tuple[Mapping[str, Any], ...] = ()
    finished: str | None = None
    accepted: tuple[Mapping[str, Any], ...] = ()

    def to_json(self) -> str:
        """The file's text."""
        return json.dumps({"schema": MANIFEST_SCHEMA, **dataclasses.asdict(self)}, indent=2) + "\n"

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read ``run.json``.

        Raises
        ------
        UsageError
            If the file is missing, broken or of another schema.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content.pop("schema") != MANIFEST_SCHEMA:
                raise UsageError(f"{path} was written by another version of fa-bench.")
            content["identity"] = Identity(**content["identity"])
            content["argv"] = tuple(content["argv"])
            content["resumed"] = tuple(content["resumed"])
            content["accepted"] = tuple(content.get("accepted", ()))
            return cls(**content)
        except OSError as error:
            raise UsageError(f"{path.parent} is no run folder: cannot read {path.name} ({error.strerror}).") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{path} is no {path.name} of fa-bench: {error}.") from error

    def difference(self, other: Manifest) -> str | None:
        """A clause on why rows of this run and of ``other`` can't stand together, or None."""
        if (different := self.identity.difference(other.identity)) is not None:
            return different
        then, now = (run.environment.get("driver") for run in (self, other))
        return None if then == now else f"it was made with driver {_text(then)}, this run has {_text(now)}"

    def resumed_by(self, other: Manifest) -> Manifest:
        """This run, with a note that ``other`` goes on with it."""
        note = {"at": other.created, "argv": list(other.argv)}
        return dataclasses.replace(self, resumed=(*self.resumed, note), finished=None)

    def finished_at(self, timestamp: str) -> Manifest:
        """This run, done."""
        return dataclasses.replace(self, finished=timestamp)


def describe(
    plan: SweepPlan,
    devices: Mapping[BackendName, str],
    argv: Sequence[str],
    environment: Environment,
    *,
    nvrtc_version: str | None = None,
    settings: Mapping[str, str] | None = None,
    now: datetime | None = None,
) -> Manifest:
    """The manifest of a sweep that is about to start.

    Parameters
    ----------
    plan : SweepPlan
    devices : mapping of backend name to str
        Backend -> device, for every backend that was opened.
    argv : sequence of str
        Arguments of the command, without the program's path.
    environment : Environment
    nvrtc_version : str, optional
        Of the NVRTC that compiles here; None without one.
    settings : mapping of str to str, optional
        Options that decide what is in a row, with their values.
    now : datetime, optional
        Start of the run; the present by default.
    """
    start = (now or datetime.now(UTC)).astimezone(UTC)
    return Manifest(
        run_id=f"{start:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
        created=start.isoformat(timespec="seconds"),
        identity=Identity(
            fa_bench.__version__,
            nvrtc_version,
            plan.gpu.slug,
            {str(name): device for name, device in devices.items()},
            dict(settings or {}),
        ),
        command=shlex.join(["fa-bench", *argv]),
        argv=tuple(argv),
        request=_plain(plan.request),
        environment=_plain(environment),
        gpu=_plain(plan.gpu),
    )


def _plain(value: Any) -> dict[str, Any]:
    """A dataclass as JSON would read it back, so that a manifest equals itself after a round trip."""
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(value)))
    return plain


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {device}" for name, device in sorted(value.items())) or "none"
    return "none" if value is None else str(value)
