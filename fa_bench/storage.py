"""Storage types as NumPy holds them: bfloat16, which NumPy has not, as uint16 bit patterns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def to_bf16(values: Array) -> NDArray[np.uint16]:
    """Round to bfloat16, ties to even, as uint16 bit patterns (NumPy has no bfloat16).

    Parameters
    ----------
    values : ndarray
        Anything that converts to float32; NaN stays NaN, overflow becomes infinity.
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    # Adding 0x7FFF plus the bit that will be the last one rounds the dropped half to nearest even; the carry
    # runs into the exponent, which is what rounding up to the next binade (or to infinity) means.
    rounded = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16
    # A NaN whose payload sits in the dropped half would carry or truncate into something else.
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, np.uint32(0x7FC0), rounded).astype(np.uint16).reshape(np.shape(values))


def from_bf16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """bfloat16 bit patterns as float32, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def encode(values: Array, dtype: str) -> Array:
    """Round float values to a storage type: float16, float32, or uint16 bit patterns for ``bf16``."""
    if dtype == "bf16":
        return to_bf16(values)
    with np.errstate(over="ignore"):
        return np.asarray(values).astype(np.float16 if dtype == "fp16" else np.float32, copy=False)


def decode(stored: Array, target: type = np.float32) -> Array:
    """Stored values as ``target`` floats; uint16 stands for bfloat16 bit patterns. Exact, no copy if none is due."""
    values = from_bf16(stored) if stored.dtype == np.uint16 else stored
    return values.astype(target, copy=False)
