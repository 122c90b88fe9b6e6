"""fa-bench: benchmark attention kernels and profile their IO.

Importing the package imports nothing heavy: no CuPy, torch, pandas, numba or llvmlite.
"""

__version__ = "0.1.0"
