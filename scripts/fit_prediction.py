#!/usr/bin/env python3
"""Fit the constants of the time model to published times, and say how far it is off on what was left out.

    python scripts/fit_prediction.py            # prints errors, writes constants and residuals into fa_bench/data
    python scripts/fit_prediction.py --check    # writes nothing; exits with 1 if the files would change

What is fitted: three constants per generation of GPUs, two per implementation, as logarithms, by damped least squares
on the logarithm of predicted over published time. A residual r costs s² · log(1 + (r/s)²) with s = 0.08, so that a
point that is far off pulls little. Each constant has a weak prior, which decides what no point does. Deterministic: no
random numbers, points in the order of their files.

Left out, and then predicted with constants fitted without them: each length of an implementation's curve (head
dimension x length x mask), each whole curve (head dimension x mask, all lengths and directions), each publication on
each GPU, and each GPU.

The interval of a prediction is as many times the spread of the residuals of publications that were left out (of GPUs,
where nothing was fitted on that GPU) as nine in ten of these residuals need, each held against the spread of other
publications. A publication counts as one, however many points it has: what is predicted is of a new one.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import io
import math
import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from fa_bench import datafiles
from fa_bench.cases import AttentionShape, Case
from fa_bench.model import flops, gpus
from fa_bench.model.gpu import Gpu
from fa_bench.prediction.constants import (
    FILE,
    Constants,
    Errors,
    Generation,
    Implementation,
    generation_name,
    power_factor,
    power_per_sm,
)
from fa_bench.prediction.kernels import Kernel
from fa_bench.prediction.predict import BUILDERS, constants_of
from fa_bench.prediction.timing import kernel_time
from fa_bench.published import points
from fa_bench.published.points import POINTS_FILE

DATA: Final = Path(__file__).resolve().parents[1] / "fa_bench" / "data"
RESIDUALS_FILE: Final = "prediction_residuals.csv"

#: Constant, first value and how far its logarithm is thought to be from it.
_GENERATION: Final = (("clock_share", 1.0, 0.06), ("dram_share", 0.85, 0.12), ("launch_us", 6.0, 0.5))
_IMPLEMENTATION: Final = (("tile_factor", 1.0, 0.3), ("overhead", 1500.0, 1.0))
_EAGER: Final = (("tile_factor", 1.5, 0.3), ("overhead", 2.0, 0.5))
_SCALE: Final = 0.08
_PRIOR_WEIGHT: Final = 0.3
_STEP: Final = 1e-3
#: Share of points that an interval is to hold.
_WITHIN: Final = 0.9
#: Publications of all implementations that count with an implementation's own.
_POOLED: Final = 3
#: FlashAttention's first tables are of its first release, a third slower than the one that later papers measured.
_FIRST_RELEASE: Final = "FlashAttention tables 9-20"
#: A table without batch and heads is taken to fill its GPU with the papers' 16k tokens and 2048 columns.
_ASSUMED_SOURCE: Final = "TVM flash_perf"


@dataclass(frozen=True, slots=True)
class Fitted:
    """A published time, its case's kernels and whose constants they need."""

    source: str
    case: Case
    gpu: Gpu
    ms: float
    kernels: tuple[Kernel, ...]
    generation: str
    implementation: str


def fitted_points() -> list[Fitted]:
    """The published times that are fitted on."""
    found = []
    for point in points():
        if point.left_out or point.dtype == "fp32" or point.impl not in BUILDERS:
            continue
        if point.source == _FIRST_RELEASE and point.impl == "flash-attn-1":
            continue
        found.append(_fitted(point.source, point.case(), gpus.get(point.gpu), point.ms))
    for row in datafiles.rows(POINTS_FILE):
        if row["source"] == _ASSUMED_SOURCE:
            seq, dim = int(row["seq_q"]), int(row["head_dim"])
            heads = 2048 // dim
            shape = AttentionShape(16 * 1024 // seq, heads, heads, seq, seq, dim, causal=row["causal"] == "1")
            direction = row["direction"]
            case = Case("flash-attn-2", shape, direction=direction)  # type: ignore[arg-type]  # fwd or bwd
            ms = flops.nominal(shape, case.direction) / float(row["value"]) * 1e-9
            found.append(_fitted(_ASSUMED_SOURCE, case, gpus.get(row["gpu"]), ms))
    return found


def _fitted(source: str, case: Case, gpu: Gpu, ms: float) -> Fitted:
    kernels = tuple(BUILDERS[case.impl](case, gpu))
    return Fitted(source, case, gpu, ms, kernels, generation_name(gpu), constants_of(case.impl, gpu))


class Fit:
    """Constants as one vector of logarithms."""

    def __init__(self, found: Sequence[Fitted]) -> None:
        self.generations = sorted({point.generation for point in found})
        self.implementations = sorted({point.implementation for point in found})
        fields = [(name, field) for name in self.generations for field in _GENERATION]
        fields += [
            (name, field)
            for name in self.implementations
            for field in (_EAGER if name == "pytorch-eager" else _IMPLEMENTATION)
        ]
        self.owners = [name for name, _ in fields]
        self.prior = np.array([np.log(value) for _, (_, value, _) in fields])
        self.spread = np.array([spread for _, (_, _, spread) in fields])

    def constants(self, vector: np.ndarray) -> tuple[dict[str, Generation], dict[str, Implementation]]:
        """The constants that a vector stands for."""
        values = np.exp(vector)
        count = 3 * len(self.generations)
        generations = {n: Generation(*map(float, values[3 * i : 3 * i + 3])) for i, n in enumerate(self.generations)}
        implementations = {
            name: Implementation(*map(float, values[count + 2 * i : count + 2 * i + 2]))
            for i, name in enumerate(self.implementations)
        }
        return generations, implementations

    def residuals(self, vector: np.ndarray, found: Sequence[Fitted]) -> np.ndarray:
        """Logarithm of predicted over published time."""
        generations, implementations = self.constants(vector)
        return np.array(
            [log_error(point, generations[point.generation], implementations[point.implementation]) for point in found]
        )

    def run(self, found: Sequence[Fitted], start: np.ndarray | None = None, most: int = 60) -> np.ndarray:
        """The vector that costs least for these points."""
        vector = self.prior.copy() if start is None else start.copy()
        owned = [
            [i for i, point in enumerate(found) if owner in (point.generation, point.implementation)]
            for owner in self.owners
        ]
        damping, residuals = 1e-2, self.residuals(vector, found)
        cost = self._cost(vector, residuals)
        prior_weight = _SCALE**2 * _PRIOR_WEIGHT / self.spread**2
        for _ in range(most):
            jacobian = np.zeros((len(found), len(vector)))
            for column, rows in enumerate(owned):
                if rows:
                    moved = vector.copy()
                    moved[column] += _STEP
                    changed = self.residuals(moved, [found[row] for row in rows])
                    jacobian[rows, column] = (changed - residuals[rows]) / _STEP
            weights = 1 / (1 + (residuals / _SCALE) ** 2)
            normal = jacobian.T @ (jacobian * weights[:, None]) + np.diag(prior_weight)
            slope = jacobian.T @ (weights * residuals) + (vector - self.prior) * prior_weight
            gained = 0.0
            for _ in range(10):
                moved = vector - np.linalg.solve(normal + damping * np.diag(np.diag(normal)), slope)
                new = self.residuals(moved, found)
                new_cost = self._cost(moved, new)
                if new_cost < cost:
                    gained, vector, residuals, cost = cost - new_cost, moved, new, new_cost
                    damping = max(damping / 10, 1e-9)
                    break
                damping *= 5
            if gained < 1e-6 * cost:
                break
        return vector

    def _cost(self, vector: np.ndarray, residuals: np.ndarray) -> float:
        misfit = _SCALE**2 * np.log1p((residuals / _SCALE) ** 2).sum()
        return float(misfit + (_SCALE**2 * _PRIOR_WEIGHT * ((vector - self.prior) / self.spread) ** 2).sum())


def reference_power() -> dict[str, float]:
    """Watts per SM and GHz of each generation's board with the most, of all that have published times."""
    found: dict[str, float] = {}
    for point in points():
        one = gpus.get(point.gpu)
        found[generation_name(one)] = max(found.get(generation_name(one), 0.0), power_per_sm(one) or 0.0)
    ada = gpus.get("rtx-4090")
    found[generation_name(ada)] = power_per_sm(ada) or 0.0
    return {name: float(f"{power:.4g}") for name, power in sorted(found.items())}


#: Of the boards that were measured, not fitted.
REFERENCE: Final = reference_power()


def log_error(point: Fitted, generation: Generation, implementation: Implementation) -> float:
    """Logarithm of predicted over published time of one point."""
    clock = generation.clock_share * point.gpu.boost_mhz * power_factor(point.gpu, REFERENCE[point.generation])
    times = (kernel_time(k, point.case, point.gpu, generation, implementation, clock).ms for k in point.kernels)
    return float(np.log(sum(times) / point.ms))


def length(point: Fitted) -> Hashable:
    """What is left out together as one shape of a curve."""
    shape = point.case.shape
    return point.implementation, shape.head_dim, shape.causal, shape.seq_q, shape.seq_kv


def curve(point: Fitted) -> Hashable:
    """What is left out together as one curve."""
    return point.implementation, point.case.shape.head_dim, point.case.shape.causal


def publication(point: Fitted) -> Hashable:
    """What is left out together as one publication: on another GPU it is another."""
    return point.source, point.gpu.slug


def gpu(point: Fitted) -> Hashable:
    """What is left out together as one GPU."""
    return point.gpu.slug


def left_out(
    fit: Fit, found: Sequence[Fitted], start: np.ndarray, key: Callable[[Fitted], Hashable], most: int = 12
) -> np.ndarray:
    """Each point's residual by constants that were fitted without all points of its key."""
    residuals = np.empty(len(found))
    for group in dict.fromkeys(map(key, found)):
        inside = [i for i, point in enumerate(found) if key(point) == group]
        others = [point for point in found if key(point) != group]
        vector = fit.run(others, start, most)
        residuals[inside] = fit.residuals(vector, [found[i] for i in inside])
    return residuals


def spread(found: Sequence[Fitted], residuals: np.ndarray, name: str, key: Callable[[Fitted], Hashable]) -> float:
    """How far an implementation's predictions are off: mean over its groups of their mean absolute residuals.

    An implementation with few groups may be lucky, so that `_POOLED` groups of the mean of all count with its own.
    """
    sizes: dict[tuple[str, Hashable], list[float]] = {}
    for point, residual in zip(found, residuals, strict=True):
        sizes.setdefault((point.implementation, key(point)), []).append(abs(float(residual)))
    means = {group: float(np.mean(values)) for group, values in sizes.items()}
    own = [mean for (implementation, _), mean in means.items() if implementation == name]
    return (sum(own) + _POOLED * float(np.mean(list(means.values())))) / (len(own) + _POOLED)


def width(found: Sequence[Fitted], residuals: np.ndarray, key: Callable[[Fitted], Hashable]) -> float:
    """Multiples of the spread within which nine in ten points lie, each with the spread of what isn't its group.

    Every group weighs as much as any other, and its points share its weight.
    """
    scaled: list[tuple[float, float]] = []
    for group in dict.fromkeys(map(key, found)):
        others = [i for i, point in enumerate(found) if key(point) != group]
        known = [found[i] for i in others]
        inside = [i for i, point in enumerate(found) if key(point) == group]
        for i in inside:
            size = abs(residuals[i]) / spread(known, residuals[others], found[i].implementation, key)
            scaled.append((float(size), 1 / len(inside)))
    sizes, weights = np.array(sorted(scaled)).T
    return float(sizes[np.searchsorted(np.cumsum(weights), _WITHIN * weights.sum())])


def interval(log_width: float, count: int) -> Errors:
    """Published over predicted, as far to either side."""
    return Errors(math.exp(-log_width), math.exp(log_width), count)


def mape(residuals: np.ndarray) -> float:
    """Mean absolute relative error of predicted times."""
    return float(np.abs(np.expm1(residuals)).mean())


def rounded(fit: Fit, vector: np.ndarray) -> np.ndarray:
    """Four significant digits: what is stored is what the residuals are of."""
    return np.log([float(f"{value:.4g}") for value in np.exp(vector)])


def constants_text(constants: Constants) -> str:
    """The constants' file."""
    lines = ["# Made by scripts/fit_prediction.py from published times; docs/prediction.md says what each means.", ""]
    lines += ["fitted_gpus = [", *(f'    "{slug}",' for slug in constants.fitted_gpus), "]"]
    for section, entries in (
        ("generation", constants.generations),
        ("implementation", constants.implementations),
        ("errors", constants.errors),
        ("", {"other_gpu": constants.other_gpu}),
    ):
        for name, entry in entries.items():
            lines += ["", f"[{section}.{name}]" if section else f"[{name}]"]
            lines += [f"{key} = {value:.4g}" for key, value in dataclasses.asdict(entry).items()]
    lines += ["", "[reference_power]", *(f"{name} = {power}" for name, power in constants.reference_power.items())]
    return "\n".join(lines) + "\n"


def residuals_text(found: Sequence[Fitted], columns: dict[str, np.ndarray]) -> str:
    """One row per point: what was published, and by what factor each prediction is off."""
    out = io.StringIO()
    names = "source gpu impl constants direction dtype batch heads_q heads_kv seq_q seq_kv head_dim causal published_ms"
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names.split(), *columns])
    for i, point in enumerate(found):
        shape = point.case.shape
        writer.writerow(
            [
                *(point.source, point.gpu.slug, point.case.impl, point.implementation),
                *(point.case.direction, point.case.dtype, shape.batch, shape.heads_q, shape.heads_kv),
                *(shape.seq_q, shape.seq_kv, shape.head_dim, int(shape.causal), f"{point.ms:.6g}"),
                *(f"{np.exp(values[i]):.4f}" for values in columns.values()),
            ]
        )
    return out.getvalue()


def report(found: Sequence[Fitted], columns: dict[str, np.ndarray]) -> None:
    """Errors by implementation and by GPU."""
    titles = ("MAPE %", "points", *columns)
    print(f"{titles[0]:28}" + "".join(f"{title:>17}" for title in titles[1:]))
    keys: list[Callable[[Fitted], str]] = [lambda p: p.implementation, lambda p: p.gpu.slug, lambda p: "all"]
    for key in keys:
        for name in dict.fromkeys(map(key, found)):
            inside = [i for i, point in enumerate(found) if key(point) == name]
            cells = "".join(f"{100 * mape(values[inside]):17.1f}" for values in columns.values())
            print(f"{name:28}{len(inside):17}{cells}")
        print()


def main(argv: Iterable[str] | None = None) -> int:
    """Fit, print, and write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    parser.add_argument("--quick", action="store_true", help="leave nothing out, write nothing")
    options = parser.parse_args(None if argv is None else list(argv))
    found = fitted_points()
    fit = Fit(found)
    vector = fit.run(found)
    stored = rounded(fit, vector)
    columns = {"fitted": fit.residuals(stored, found)}
    if options.quick:
        report(found, columns)
        return 0
    columns["length_out"] = left_out(fit, found, vector, length, 4)
    columns["curve_out"] = left_out(fit, found, vector, curve)
    columns["publication_out"] = left_out(fit, found, vector, publication)
    columns["gpu_out"] = left_out(fit, found, vector, gpu)
    report(found, columns)
    one = width(found, columns["publication_out"], publication)
    names = dict.fromkeys(point.implementation for point in found)
    errors = {
        name: interval(
            one * spread(found, columns["publication_out"], name, publication),
            sum(point.implementation == name for point in found),
        )
        for name in ("all", *names)
    }
    other = width(found, columns["gpu_out"], gpu) * spread(found, columns["gpu_out"], "all", gpu)
    other_gpu = interval(other, len(found))
    for name, error in (*errors.items(), ("other GPU", other_gpu)):
        print(f"interval of {name}: -{1 - error.low:.0%} +{error.high - 1:.0%}")
    generations, implementations = fit.constants(stored)
    made = Constants(
        generations,
        implementations,
        errors,
        other_gpu,
        tuple(sorted({point.gpu.slug for point in found})),
        REFERENCE,
    )
    texts = {FILE: constants_text(made), RESIDUALS_FILE: residuals_text(found, columns)}
    changed = [name for name, text in texts.items() if not same(DATA / name, text)]
    if options.check:
        print(f"would change: {', '.join(changed)}" if changed else "the files are current")
        return int(bool(changed))
    for name, text in texts.items():
        (DATA / name).write_text(text, encoding="utf-8")
    return 0


def same(path: Path, text: str) -> bool:
    """Whether a file has this text."""
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
