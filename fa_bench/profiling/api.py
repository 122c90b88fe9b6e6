"""``fa_bench.profile``: one launch of one kernel, from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from fa_bench.errors import UsageError
from fa_bench.measure.environment import usable_cpus
from fa_bench.model import gpus
from fa_bench.profiling.args import Argument, from_value
from fa_bench.profiling.build import KernelFile
from fa_bench.profiling.launchfile import parse_dim
from fa_bench.profiling.result import KernelProfile
from fa_bench.profiling.run import Launch, run

#: Target where none is named.
DEFAULT_GPU: Final = "a100-sxm-80"
#: What text that came from no file is called.
NAMELESS: Final = {False: "kernel.cu", True: "kernel.ptx"}


def profile(
    source: str | Path,
    kernel: str | None = None,
    grid: int | Sequence[int] = 1,
    block: int | Sequence[int] | None = None,
    args: Mapping[str, Any] | Sequence[Any] = (),
    *,
    smem_bytes: int = 0,
    defines: Mapping[str, object] | None = None,
    includes: Sequence[str | Path] = (),
    options: Sequence[str] = (),
    gpu: str = DEFAULT_GPU,
    seed: int = 0,
    jobs: int | None = None,
    check: bool = False,
    caches: bool = False,
) -> KernelProfile:
    """Run a kernel on the CPU and say what it did.

    Parameters
    ----------
    source : str or Path
        CUDA C++ or PTX, as text (what ``cupy.RawKernel`` takes) or as a file.
    kernel : str, optional
        Its name; an instance of a template as ``scale<float, 4>``. May be left out where there is one.
    grid, block : int or sequence of int
        Extents. ``block`` is what the kernel declares (``__launch_bounds__``) by default, else 128.
    args : mapping or sequence
        Arguments by parameter name, or in order as ``RawKernel`` takes them: arrays, NumPy scalars, numbers (which
        take the parameter's type), None for a null pointer, or specifications such as ``"out:f16[1024,64]"``. The
        arrays stay as they are: the kernel works on copies, and ``outputs`` of the result has what it left. One array
        that is passed twice is one array in the kernel too.
    smem_bytes : int
        Dynamic shared memory per CTA.
    defines : mapping, optional
        Preprocessor definitions.
    includes : sequence of str or Path
        Folders of headers.
    options : sequence of str
        Further options for NVRTC, e.g. ``--use_fast_math``.
    gpu : str
        Target of the compilation and of the occupancy, by slug, alias or driver name.
    seed : int
        For arrays that a specification leaves to chance.
    jobs : int, optional
        Threads; all cores by default.
    check : bool
        Look for races, reads of what was never written, and more: a finding is a `KernelFault`. What a pointer to const
        points to must not be written, an ``out`` array must be written whole.
    caches : bool
        Also say what L1, L2 and DRAM of ``gpu`` see, its CTAs side by side.

    Returns
    -------
    KernelProfile

    Raises
    ------
    UsageError
        If kernel, arguments or launch do not fit.
    CompileError
        If NVRTC refuses the source.
    DeviceUnavailable
        If the source is CUDA C++ and NVRTC is not here.
    KernelFault
        If the kernel does something illegal.

    Examples
    --------
    >>> import numpy as np
    >>> import fa_bench
    >>> code = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
    >>> report = fa_bench.profile(code, "twice", grid=1, block=64, args=[np.ones(64, np.float32)])
    >>> report.bytes("x", "read"), report.outputs["x"].sum()
    (256, np.float32(128.0))
    """
    file = _file(source)
    file = replace(
        file,
        defines=tuple((name, str(value)) for name, value in (defines or {}).items()),
        includes=tuple(Path(folder).resolve() for folder in includes),
        options=tuple(options),
    )
    launch = Launch(
        kernel,
        parse_dim(grid, "grid"),
        None if block is None else parse_dim(block, "block"),
        smem_bytes,
        _arguments(args),
        positional=not isinstance(args, Mapping),
    )
    target = gpus.get(gpu)
    return run(file, [launch], target, seed=seed, jobs=jobs or usable_cpus(), check=check, caches=caches).launches[0]


def read_source(path: Path) -> KernelFile:
    """A kernel's file.

    Raises
    ------
    UsageError
        If it can't be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"There is no file {str(path)!r}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{str(path)!r} is neither CUDA C++ nor PTX.", "A cubin has no PTX in it.") from None
    except OSError as error:
        raise UsageError(f"{str(path)!r} can't be read: {error.strerror}.") from None
    return KernelFile(path.name, text, path.resolve().parent)


def _file(source: str | Path) -> KernelFile:
    if isinstance(source, Path) or ("\n" not in source and source.endswith((".cu", ".ptx"))):
        return read_source(Path(source))
    file = KernelFile(NAMELESS[False], source)
    return replace(file, name=NAMELESS[file.is_ptx])


def _arguments(args: Mapping[str, Any] | Sequence[Any]) -> tuple[Argument, ...]:
    if isinstance(args, Mapping):
        return tuple(from_value(name, value) for name, value in args.items())
    made: list[Argument] = []
    for number, value in enumerate(args):
        # The same array again is the same memory: both get the name of its first place.
        again = next((k for k in range(number) if args[k] is value and hasattr(value, "dtype")), None)
        shared = again is not None and getattr(value, "ndim", 0) > 0
        argument = from_value(f"argument {number}", value)
        made.append(replace(argument, name=f"#{again if shared else number}"))
    return tuple(made)
