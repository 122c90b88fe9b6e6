"""The programs in ``examples/`` run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fa_bench.compiler import nvrtc_available

FOLDER = Path(__file__).resolve().parents[1] / "examples"
PROGRAMS = sorted(path.name for path in FOLDER.glob("*.py"))
#: What each prints, in part: figures that follow from its kernel.
PRINTS = {
    # 32 floats in 4, 8 and 32 sectors; twelve instructions of one warp.
    "emulate_ptx.py": ("stride 1:  4 sectors, 12", "stride 2:  8 sectors", "stride 8: 32 sectors"),
    # Eight warps, 64 rows: 512 requests of 4 sectors, or of 32.
    "profile_raw_kernel.py": ("65,536 bytes read in 512 requests", "524,288 bytes read in 512 requests"),
}
NEEDS_NVRTC = {"profile_raw_kernel.py"}


def test_every_program_is_known() -> None:
    assert set(PRINTS) == set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example(name: str, tmp_path: Path) -> None:
    if name in NEEDS_NVRTC and (reason := nvrtc_available()) is not None:
        pytest.skip(reason)
    done = subprocess.run(
        [sys.executable, "-W", "error", FOLDER / name], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    for part in PRINTS[name]:
        assert part in done.stdout
