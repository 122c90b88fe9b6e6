"""fa-bench: benchmark attention kernels and profile their IO.

Importing the package imports nothing heavy: no CuPy, torch, pandas, numba or llvmlite. ``fa_bench.profile`` runs a
kernel of anybody's on the CPU and says what it did; it is imported when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fa_bench.profiling.api import profile

__version__ = "0.1.0"
__all__ = ["__version__", "profile"]


def __getattr__(name: str) -> Any:
    if name == "profile":
        from fa_bench.profiling.api import profile

        return profile
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
