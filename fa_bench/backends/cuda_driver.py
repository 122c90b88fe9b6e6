"""What CuPy has no name for: a few calls of the CUDA driver's own library, through ctypes.

Handles of the runtime, which CuPy hands out, are the driver's too (CUDA documents that they can be mixed). The context
is the calling thread's current one, so callers have entered their device.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Final

from fa_bench.errors import FaBenchError

#: CU_GRAPH_NODE_TYPE_KERNEL (cuda.h).
_KERNEL_NODE: Final = 0


class DriverSilent(FaBenchError):
    """Why the driver does not answer, as the end of a sentence."""


class Driver:
    """The CUDA driver's library.

    Parameters
    ----------
    library : object, optional
        Stands in for it in tests; found by its name at the first call otherwise.
    """

    def __init__(self, library: Any = None) -> None:
        self._library = library

    def kernel_nodes(self, graph: int) -> int:
        """Number of kernels in a captured graph.

        Parameters
        ----------
        graph : int
            A cudaGraph_t.

        Raises
        ------
        DriverSilent
            If the driver does not say.
        """
        count = ctypes.c_size_t(0)
        self._ask("cuGraphGetNodes", ctypes.c_void_p(graph), None, ctypes.byref(count))
        nodes = (ctypes.c_void_p * count.value)()
        self._ask("cuGraphGetNodes", ctypes.c_void_p(graph), nodes, ctypes.byref(count))
        kernels = 0
        for node in nodes:
            kind = ctypes.c_int(-1)
            self._ask("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
            kernels += kind.value == _KERNEL_NODE
        return kernels

    def reset_persisting_l2(self) -> None:
        """Make lines that a library marked as persisting in L2 ordinary ones, which a write can evict.

        A GPU that has no such lines (before compute capability 8.0) refuses, and loses nothing by it.
        """
        try:
            self._load().cuCtxResetPersistingL2Cache()
        except (OSError, AttributeError):  # no such library, or one from before CUDA 11: nothing persists
            return

    def _ask(self, function: str, *args: Any) -> None:
        try:
            code = getattr(self._load(), function)(*args)
        except (OSError, AttributeError) as error:
            raise DriverSilent(f"the driver's library can't be asked ({error})") from error
        if code != 0:
            raise DriverSilent(f"the driver answers {function} with error {code}")

    def _load(self) -> Any:
        if self._library is None:
            self._library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        return self._library
