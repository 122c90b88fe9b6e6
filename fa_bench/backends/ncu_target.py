"""The process that a profiler is put around: launches one case once, between cudaProfilerStart and cudaProfilerStop.

``python -m fa_bench.backends.ncu_target FILE`` reads a `Request` of :mod:`fa_bench.backends.wire`. Inputs, compilation
and warm-up are outside of the range. Nothing is measured here and nothing comes back but the exit code; what went wrong
is one line on standard error.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import cast

from fa_bench import algorithms
from fa_bench.algorithms.user import UserAlgorithm
from fa_bench.backends.wire import receive
from fa_bench.errors import described


def main(file: str) -> None:
    """Launch the case that ``file`` describes.

    Raises
    ------
    SystemExit
        With one line, if that was not possible.
    """
    try:
        from fa_bench.backends.cuda import CudaBackend

        with Path(file).open("rb") as pipe:
            request = receive(pipe)
        case, gpu, ordinal = request.args
        for algorithm in request.added:
            algorithms.add(cast(UserAlgorithm, algorithm))
        with closing(CudaBackend(ordinal)) as backend:
            backend.profile(case, gpu)
    except Exception as error:
        raise SystemExit(f"ERROR: {described(error)}") from error


if __name__ == "__main__":
    main(sys.argv[1])
