"""One CUDA device through CuPy: memory, modules, events and the L2 flush, all on one stream.

CuPy comes in as an argument, so that the order of calls can be tested without a GPU and importing this module needs
none.
"""

from __future__ import annotations

import hashlib
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fa_bench.backends.cuda_driver import Driver
from fa_bench.compiler import CompiledKernel
from fa_bench.errors import Unsupported

Bytes = NDArray[np.uint8]

#: More dynamic shared memory than this must be asked for explicitly (CUDA C++ Programming Guide).
DEFAULT_SMEM_BYTES: Final = 48 * 1024
#: The flush writes this many times the L2 cache. Hashing and replacement are not public; twice leaves no doubt.
FLUSH_FACTOR: Final = 2
#: It writes at least this: a virtual GPU or an instance of one may name no L2 cache, or its share only.
MIN_FLUSH_BYTES: Final = 64 * 2**20
#: cudaLimitPersistingL2CacheSize (driver_types.h), which CuPy has no name for.
PERSISTING_L2_LIMIT: Final = 6


class CudaDevice:
    """A device and the one stream that everything runs on: uploads, launches, flushes and events.

    Enter it (``with device:``) around all work, so that CuPy's current device and stream are these.

    Parameters
    ----------
    cupy : module
    ordinal : int
        CUDA's number of the device, after CUDA_VISIBLE_DEVICES.
    driver : Driver, optional
        Stands in for the driver's library in tests.
    """

    def __init__(self, cupy: Any, ordinal: int, driver: Driver | None = None) -> None:
        self.cupy = cupy
        self.ordinal = ordinal
        self.driver = driver or Driver()
        self._device = cupy.cuda.Device(ordinal)
        properties = cupy.cuda.runtime.getDeviceProperties(ordinal)
        self.name: str = properties["name"].decode()
        self.sm = f"sm_{self._device.compute_capability}"
        self.l2_bytes = int(properties["l2CacheSize"])
        self.smem_per_block_bytes = int(properties["sharedMemPerBlockOptin"])
        self.driver_major: int = cupy.cuda.runtime.driverGetVersion() // 1000
        # As text, a UUID that holds a zero byte arrives cut short: then only the bus id identifies the device.
        # On Windows it may run on into what lies behind its 16 bytes.
        raw = bytes(properties.get("uuid", b""))[:16]
        self.uuid = f"GPU-{uuid.UUID(bytes=raw)}" if len(raw) == 16 else None
        self.pci_bus_id: str = self._device.pci_bus_id
        self._functions: dict[tuple[str, str], Any] = {}
        self._allowed_smem: dict[tuple[str, str], int] = {}
        self._scratch: Any = None
        with self._device:
            self.stream = cupy.cuda.Stream(non_blocking=True)
            self._pool = cupy.get_default_memory_pool()
            self._begin, self._end = cupy.cuda.Event(), cupy.cuda.Event()

    def __enter__(self) -> CudaDevice:
        self._device.__enter__()
        self.stream.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stream.__exit__(kind, error, trace)
        self._device.__exit__(kind, error, trace)

    # ------------------------------------------------------------------------------------------- memory

    def allocate(self, nbytes: int) -> Any:
        """A device array of ``nbytes`` bytes; CuPy's pool aligns to 512."""
        return self.cupy.empty(nbytes, dtype=np.uint8)

    def upload(self, array: Any, values: Bytes) -> None:
        """Copy host bytes into a device array."""
        array.set(values, stream=self.stream)

    def download(self, array: Any) -> Bytes:
        """The bytes of a device array."""
        host: Bytes = array.get(stream=self.stream)
        self.stream.synchronize()
        return host

    def fill(self, array: Any, value: int) -> None:
        """Set every byte of a device array."""
        array.data.memset_async(value, array.nbytes, self.stream)

    def used_bytes(self) -> int:
        """Bytes of all live arrays, as CuPy's pool rounds them."""
        return int(self._pool.used_bytes())

    def free_bytes(self) -> int:
        """Memory that can be allocated now: the device's, and what the pool holds unused."""
        return int(self._device.mem_info[0]) + int(self._pool.free_bytes())

    def release(self) -> None:
        """Give the pool's unused blocks back to the device."""
        self._pool.free_all_blocks()

    # ------------------------------------------------------------------------------------------ kernels

    def load(self, kernel: CompiledKernel, dynamic_smem_bytes: int) -> Any:
        """Load a kernel's cubin (its PTX where there is none), once, and allow it its dynamic shared memory.

        Raises
        ------
        Unsupported
            If a block of this device has less shared memory.
        """
        need = dynamic_smem_bytes + (kernel.static_smem_bytes or 0)
        if need > self.smem_per_block_bytes:
            raise Unsupported(
                f"{kernel.entry} needs {need} bytes of shared memory; a block of {self.name} has "
                f"{self.smem_per_block_bytes}."
            )
        # CuPy remembers modules by path: the name is the content's, so a changed kernel is another module.
        image, suffix = (kernel.cubin, "cubin") if kernel.cubin else (kernel.ptx.encode(), "ptx")
        key = hashlib.sha256(image).hexdigest()[:32], kernel.entry
        function = self._functions.get(key)
        if function is None:
            with tempfile.TemporaryDirectory(prefix="fa-bench-") as folder:
                path = Path(folder) / f"{key[0]}.{suffix}"
                path.write_bytes(image)
                # get_function loads the module, so the file may go afterwards.
                function = self.cupy.RawModule(path=str(path)).get_function(kernel.entry)
            self._functions[key] = function
        # A case that needs less must not take it from one that shares the function and is still to be launched.
        if dynamic_smem_bytes > self._allowed_smem.get(key, DEFAULT_SMEM_BYTES):
            function.max_dynamic_shared_size_bytes = self._allowed_smem[key] = dynamic_smem_bytes
        return function

    def synchronize(self) -> None:
        """Wait for the stream; a fault of an earlier launch surfaces here."""
        self.stream.synchronize()

    # ------------------------------------------------------------------------------------------- timing

    def profiled(self, launch: Callable[[], None]) -> None:
        """Launch and wait between cudaProfilerStart and cudaProfilerStop, so that nothing else is in the range."""
        self.cupy.cuda.runtime.profilerStart()
        launch()
        self.synchronize()
        self.cupy.cuda.runtime.profilerStop()

    def start(self) -> None:
        """Record the first event on the stream (`fa_bench.measure.timing.EventTimer`)."""
        self._begin.record(self.stream)

    def stop(self) -> float:
        """Record the second event, wait for it, and return the ms between the two."""
        self._end.record(self.stream)
        self._end.synchronize()
        return float(self.cupy.cuda.get_elapsed_time(self._begin, self._end))

    def prepare_flush(self) -> None:
        """Allocate what `flush` writes: twice this device's own L2 cache, or more."""
        if self._scratch is None:
            self._scratch = self.allocate(max(FLUSH_FACTOR * self.l2_bytes, MIN_FLUSH_BYTES))

    def drop_flush(self) -> None:
        """Free what `prepare_flush` allocated."""
        self._scratch = None

    def flush(self) -> None:
        """Evict the L2 cache by writing over a buffer that is larger.

        A library may have set some of the cache aside for lines that persist, which no write evicts: they become
        ordinary lines first. Usually none is set aside, and then this costs nothing.
        """
        if self._persisting_l2_bytes():
            self.driver.reset_persisting_l2()
        self.fill(self._scratch, 0)

    def _persisting_l2_bytes(self) -> int:
        try:
            return int(self.cupy.cuda.runtime.deviceGetLimit(PERSISTING_L2_LIMIT))
        except self.cupy.cuda.runtime.CUDARuntimeError:  # before compute capability 8.0 there is no such limit
            return 0

    def close(self) -> None:
        """Drop modules and memory."""
        self._functions.clear()
        self._allowed_smem.clear()
        self.drop_flush()
        self.release()
