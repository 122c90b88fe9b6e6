"""Files that a command writes beside its data: text, and PNG made of SVG."""

from __future__ import annotations

from pathlib import Path


def rasteriser() -> str:
    """The program that makes PNG of SVG.

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
            hint="It is part of librsvg (librsvg2-bin on Debian and Ubuntu, librsvg on Homebrew). --svg takes nothing.",
        )
    return found


def rasterise(program: str, svg: str, path: Path, zoom: int = 3) -> None:
    """Write a PNG of a chart, by default three pixels per unit: sharp in print at a column's width."""
    import subprocess

    from fa_bench.errors import FaBenchError

    command = [program, "--zoom", str(zoom), "--output", str(path)]
    try:
        subprocess.run(command, input=svg.encode(), capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
        raise FaBenchError(f"--png: {program} did not make {path}: {said or error}.") from error


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


def write_text(path: Path, text: str, option: str) -> None:
    """Write a file that an option names, whole or not at all.

    Raises
    ------
    UsageError
        If it can't be written.
    """
    from fa_bench.errors import UsageError
    from fa_bench.sweep.journal import replace_text

    if path.is_dir():
        raise UsageError(f"{option}: {str(path)!r} can't be written: it is a folder.")
    try:
        replace_text(path, text)
    except OSError as error:
        raise UsageError(f"{option}: {str(path)!r} can't be written: {error.strerror}.") from error
