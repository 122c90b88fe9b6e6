"""Ending a process with everything that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import Final

#: Seconds to wait for a killed process: one that hangs in a driver's call ends when that returns, if ever.
PATIENCE_S: Final = 10.0


def end_group(process: subprocess.Popen[bytes], patience_s: float = PATIENCE_S) -> None:
    """Kill a process and its whole group, also what outlived it, and wait for it, but not for ever.

    Parameters
    ----------
    process : subprocess.Popen
        Started with ``start_new_session``; where there are no process groups (Windows) only itself is ended.
    patience_s : float
    """
    if hasattr(os, "killpg"):
        # Gone: nothing of the group is left.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience_s)
