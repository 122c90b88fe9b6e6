"""Files that a command writes beside its data: text, and PNG made of SVG."""

from __future__ import annotations

from pathlib import Path


def rasteriser(instead: str) -> str:
    """The program that makes PNG of SVG.

    Parameters
    ----------
    instead : str
        A sentence on what does without it.

    Raises
    ------
    UsageError
        If it isn't here.
    """
    import shutil

    from fa_bench.errors import UsageError

    found = shutil.which("rsvg-convert")
    if found is None:
        raise UsageError(
            "--png takes rsvg-convert, which isn't here.",
            hint=f"It is part of librsvg (librsvg2-bin on Debian and Ubuntu, librsvg on Homebrew). {instead}",
        )
    return found


def write_png(program: str, svg: str, path: Path, zoom: int = 3) -> None:
    """Write a PNG of a chart, by default three pixels per unit: sharp in print at a column's width.

    Raises
    ------
    FaBenchError
        If ``program`` does not make it.
    UsageError
        If it can't be written.
    """
    import subprocess

    from fa_bench.errors import FaBenchError

    command = [program, "--zoom", str(zoom)]
    try:
        made = subprocess.run(command, input=svg.encode(), capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
        raise FaBenchError(f"--png: {program} did not make {path}: {said or error}.") from error
    _write(path, made.stdout, "--png")


def make_folder(folder: Path, option: str) -> None:
    """Make a folder that an option names.

    Raises
    ------
    UsageError
        If it can't be made.
    """
    from fa_bench.errors import UsageError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{option}: {str(folder)!r} can't be made: {error.strerror}.") from error


def check_file(path: Path, option: str) -> None:
    """Refuse a file that can't be written, before a long work for it begins.

    Raises
    ------
    UsageError
    """
    import errno
    import os

    place = path if path.exists() and not path.is_file() else path.parent
    if path.is_dir():
        raise _unwritable(path, option, os.strerror(errno.EISDIR))
    if not place.exists():
        raise _unwritable(path, option, os.strerror(errno.ENOENT))
    if not os.access(place, os.W_OK):
        raise _unwritable(path, option, os.strerror(errno.EACCES))


def write_text(path: Path, text: str, option: str) -> None:
    """Write a file that an option names, whole or not at all.

    Raises
    ------
    UsageError
        If it can't be written.
    """
    from fa_bench.sweep.appender import encoded

    _write(path, encoded(text), option)


def _write(path: Path, content: bytes, option: str) -> None:
    from fa_bench.sweep.journal import replace_bytes

    try:
        replace_bytes(path, content)
    except OSError as error:
        raise _unwritable(path, option, error.strerror) from error


def _unwritable(path: Path, option: str, why: str | None) -> Exception:
    from fa_bench.errors import UsageError

    return UsageError(f"{option}: {str(path)!r} can't be written: {why}.")
