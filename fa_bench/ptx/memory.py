"""Global memory of a launch: named host buffers at their real addresses.

A kernel may touch registered bytes only. Buffers that :meth:`Memory.allocate` makes lie apart and hold 0xFF bytes (NaN
in every floating type), so that overruns fault and bytes that were never written show in the result.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

#: Alignment of allocated buffers in bytes, the same as cudaMalloc's.
ALIGNMENT: Final = 256
#: Alignment of buffers in the device's address space, as memory pools hand them out.
DEVICE_ALIGNMENT: Final = 512
#: Unregistered bytes kept on either side of an allocated buffer.
GUARD_BYTES: Final = 256


class Buffer(NamedTuple):
    """A registered range of addresses."""

    name: str
    address: int
    nbytes: int


class Memory:
    """Named buffers that kernels may read and write.

    Examples
    --------
    >>> memory = Memory()
    >>> q = memory.allocate("Q", 64).view(np.float16)
    >>> memory.find(memory.address("Q") + 63).name
    'Q'
    """

    def __init__(self) -> None:
        self._arrays: dict[str, Bytes] = {}
        self._sorted: list[Buffer] = []

    def allocate(self, name: str, nbytes: int) -> Bytes:
        """Make a buffer of ``nbytes`` bytes, filled with 0xFF, 256-byte aligned, with a gap around it.

        Parameters
        ----------
        name : str
            Unique in this memory.
        nbytes : int
            At least 1.

        Returns
        -------
        ndarray of uint8, shape (nbytes,)
            The buffer itself, not a copy.

        Raises
        ------
        ValueError
            If the name is taken or the size is not positive.
        """
        if nbytes < 1:
            raise ValueError(f"Buffer {name!r} must have at least 1 byte, not {nbytes}.")
        whole = np.empty(nbytes + 2 * GUARD_BYTES + ALIGNMENT, dtype=np.uint8)
        start = GUARD_BYTES + -(_address(whole) + GUARD_BYTES) % ALIGNMENT
        buffer = whole[start : start + nbytes]
        buffer.fill(0xFF)
        self._insert(name, buffer)
        return buffer

    def register(self, name: str, array: NDArray[Any]) -> None:
        """Let kernels access an existing array in place.

        Parameters
        ----------
        name : str
            Unique in this memory.
        array : ndarray
            C-contiguous and not empty; kept alive by this memory. Arrays that touch each other hide overruns from one
            into the next.

        Raises
        ------
        ValueError
            If the name is taken, or the array is empty, not C-contiguous or overlaps a registered buffer.
        """
        if not array.flags.c_contiguous or array.nbytes == 0:
            raise ValueError(f"Buffer {name!r} must be C-contiguous and not empty.")
        self._insert(name, array.reshape(-1).view(np.uint8))

    def _insert(self, name: str, data: Bytes) -> None:
        buffer = Buffer(name, _address(data), data.nbytes)
        if name in self._arrays:
            raise ValueError(f"There is a buffer {name!r} already.")
        place = bisect_right(self._sorted, buffer.address, key=lambda b: b.address)
        for other in self._sorted[max(0, place - 1) : place + 1]:
            if buffer.address < other.address + other.nbytes and other.address < buffer.address + buffer.nbytes:
                raise ValueError(f"Buffer {name!r} overlaps buffer {other.name!r}.")
        self._arrays[name] = data
        self._sorted.insert(place, buffer)

    def address(self, name: str) -> int:
        """Address of the first byte of buffer ``name`` (KeyError if there is none)."""
        return _address(self._arrays[name])

    def array(self, name: str) -> Bytes:
        """The bytes of buffer ``name``, not a copy (KeyError if there is none)."""
        return self._arrays[name]

    def names(self) -> list[str]:
        """All buffers' names in the order of their registration."""
        return list(self._arrays)

    def buffers(self) -> list[Buffer]:
        """All buffers by ascending address."""
        return list(self._sorted)

    def device_addresses(self) -> dict[str, int]:
        """Where each buffer would lie on a GPU: one behind the other, in the order of their registration.

        Host addresses differ from run to run; these don't, so that the sets of a cache are the same ones every time.
        The offset within 256 bytes is the host's, which keeps sectors and lines as they are.
        """
        places: dict[str, int] = {}
        end = DEVICE_ALIGNMENT
        for name, data in self._arrays.items():
            places[name] = end + _address(data) % ALIGNMENT
            end = -(-(places[name] + data.nbytes) // DEVICE_ALIGNMENT) * DEVICE_ALIGNMENT
        return places

    def find(self, address: int) -> Buffer | None:
        """The buffer that holds the byte at ``address``, or None."""
        place = bisect_right(self._sorted, address, key=lambda b: b.address)
        if place == 0:
            return None
        buffer = self._sorted[place - 1]
        return buffer if address < buffer.address + buffer.nbytes else None

    def nearest(self, address: int) -> Buffer | None:
        """The buffer with the byte nearest to ``address``; None if there are no buffers."""
        return min(
            self._sorted,
            key=lambda b: max(b.address - address, address - (b.address + b.nbytes - 1), 0),
            default=None,
        )


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])
