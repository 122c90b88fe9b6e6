"""The default prediction of a case: its algorithm's exact counts and the models, put together."""

from __future__ import annotations

from fa_bench import algorithms
from fa_bench.cases import Case
from fa_bench.model.compulsory import compulsory_read_bytes, compulsory_write_bytes
from fa_bench.model.dram import bytes_per_kernel, dram_traffic
from fa_bench.model.flops import nominal
from fa_bench.model.gpu import Gpu
from fa_bench.model.roofline import arithmetic_intensity, roofline
from fa_bench.sweep.build import Prediction


def predict(case: Case, gpu: Gpu) -> Prediction:
    """What is known of ``case`` on ``gpu`` before it runs.

    An implementation without an algorithm room (NumPy, torch) or without a traffic model (a kernel of the user's), and
    a case for which no tile is legal, have nominal FLOPs and compulsory bytes only. Arithmetic intensity is nominal
    FLOPs over the modelled dram bytes, so that it belongs to the same roofline as ``tflops``.
    """
    flops_nominal = nominal(case.shape, case.direction)
    compulsory = compulsory_read_bytes(case), compulsory_write_bytes(case)
    algorithm = algorithms.find(case.impl)
    if algorithm is None:
        return Prediction(flops_nominal, *compulsory)
    if algorithm.uses_tile and case.tile is None:
        return Prediction(flops_nominal, *compulsory, impl_version=algorithm.version)
    work, parts = algorithm.work(case), algorithm.traffic(case)
    if work is None or parts is None:
        return Prediction(flops_nominal, *compulsory, impl_version=algorithm.version)
    traffic = tuple(parts)
    dram = dram_traffic(algorithm.program(case), traffic, gpu)
    bound = roofline(case, work, bytes_per_kernel(dram), gpu)
    return Prediction(
        flops_nominal,
        *compulsory,
        impl_version=algorithm.version,
        work=work,
        traffic={"global": traffic, "dram": dram},
        roofline_ms=bound.ms,
        roofline_limiter=bound.limiter,
        arithmetic_intensity=arithmetic_intensity(flops_nominal, sum(part.bytes for part in dram)),
    )
