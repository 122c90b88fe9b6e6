"""The default prediction of a case: its algorithm's exact counts and the models, put together."""

from __future__ import annotations

from dataclasses import replace

from fa_bench import algorithms
from fa_bench.algorithms.base import Program
from fa_bench.algorithms.library_flash import library_model
from fa_bench.backends import baselines
from fa_bench.cases import Case
from fa_bench.model.compulsory import compulsory_read_bytes, compulsory_write_bytes
from fa_bench.model.dram import bytes_per_kernel, dram_traffic
from fa_bench.model.flops import nominal
from fa_bench.model.gpu import Gpu
from fa_bench.model.peaks import MeasuredPeaks
from fa_bench.model.roofline import arithmetic_intensity, roofline
from fa_bench.sweep.build import Prediction


def predict(case: Case, gpu: Gpu, peaks: MeasuredPeaks | None = None) -> Prediction:
    """What is known of ``case`` on ``gpu`` before it runs.

    An implementation without a model (NumPy, most libraries, a kernel of the user's), and a case for which no tile is
    legal, have nominal FLOPs and compulsory bytes only. Arithmetic intensity is nominal FLOPs over the modelled dram
    bytes, so that it belongs to the same roofline as ``tflops``. A library's version is the one that is installed.

    Parameters
    ----------
    case : Case
    gpu : Gpu
    peaks : MeasuredPeaks, optional
        The device's own, for the roofline instead of the data sheet's.
    """
    known = predict_global(case, gpu)
    if known.work is None:
        return known
    traffic = known.traffic["global"]
    dram = dram_traffic(_program(case, gpu), traffic, gpu)
    bound = roofline(case, known.work, bytes_per_kernel(dram), gpu if peaks is None else peaks.applied_to(gpu))
    return replace(
        known,
        traffic={"global": traffic, "dram": dram},
        roofline_ms=bound.ms,
        roofline_limiter=bound.limiter,
        roofline_source=None if bound.ms is None else "datasheet" if peaks is None else "measured",
        arithmetic_intensity=arithmetic_intensity(known.flops_nominal, sum(part.bytes for part in dram)),
    )


def predict_global(case: Case, gpu: Gpu) -> Prediction:
    """What of it rests on no cache: nominal and executed work, compulsory and global bytes.

    Parameters
    ----------
    case : Case
        One case, or one whose sizes are arrays (:mod:`fa_bench.grid`): the columns then are too.
    gpu : Gpu
    """
    algorithm = algorithms.find(case.impl)
    baseline = baselines.find(case.impl)
    version = None if baseline is None else baseline.library.version()
    nothing = Prediction(
        nominal(case.shape, case.direction),
        compulsory_read_bytes(case),
        compulsory_write_bytes(case),
        impl_version=version if algorithm is None else algorithm.version,
    )
    if algorithm is None:
        model = None if algorithms.lacking(case, None) else library_model(case, gpu)
        if model is None:
            return nothing
        tile = model.tile.block_m, model.tile.block_n
        return replace(nothing, work=model.work, traffic={"global": model.traffic}, library_tile=tile)
    if algorithm.uses_tile and case.tile is None:
        return nothing
    work, parts = algorithm.work(case), algorithm.traffic(case)
    if work is None or parts is None:
        return nothing
    return replace(nothing, work=work, traffic={"global": tuple(parts)})


def _program(case: Case, gpu: Gpu) -> Program:
    """The program of a case whose work is known."""
    algorithm = algorithms.find(case.impl)
    if algorithm is not None:
        return algorithm.program(case)
    model = library_model(case, gpu)
    assert model is not None, f"the work of {case.impl} comes from its model"
    return model.program
