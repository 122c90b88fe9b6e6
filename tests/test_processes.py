"""Ending a process: with what it started, and without waiting for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fa_bench.processes import end_group

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no process groups")

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
"""


def ended(pid: int) -> bool:
    """Whether a process is gone, or dead and waits for its parent; given a moment to get there."""
    for _ in range(200):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        stat = Path(f"/proc/{pid}/stat")
        if stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("outlives", [False, True])
def test_what_a_process_started_ends_with_it_also_when_it_is_gone_already(outlives: bool) -> None:
    code = PARENT if outlives else f"{PARENT}import time; time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        if outlives:
            parent.wait()
        end_group(parent)
    assert parent.returncode == (0 if outlives else -9)
    assert ended(child)


def test_a_process_that_a_driver_holds_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, signal: killed.append(group))

    class Held:
        pid = 4711

        def wait(self, timeout: float) -> int:
            raise subprocess.TimeoutExpired("held", timeout)

    held: Any = Held()
    end_group(held, patience_s=0.0)
    assert killed == [4711]
