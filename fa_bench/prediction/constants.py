"""The constants of the time model: fitted by ``scripts/fit_prediction.py``, kept in ``data/prediction_constants.toml``.

Three for each generation of GPUs, two for each implementation, and how far predictions were off. Nothing else of the
model is fitted; what is chosen once for all stands with its reason in `fa_bench.prediction.timing`.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fa_bench import datafiles
from fa_bench.errors import Unsupported
from fa_bench.model.gpu import Gpu

FILE: Final = "prediction_constants.toml"

#: Compute capability -> generation. Turing and Volta have no published time here.
GENERATIONS: Final[Mapping[tuple[int, int], str]] = {
    (7, 0): "volta",
    (7, 5): "turing",
    (8, 0): "ampere",
    (8, 6): "ampere-ga10x",
    (8, 9): "ada",
    (9, 0): "hopper",
    (10, 0): "blackwell",
    (12, 0): "blackwell-gb20x",
    (12, 1): "blackwell-gb20x",
}
#: Whose constants stand in for those of a generation that nothing was fitted on, nearest first.
NEAREST: Final[Mapping[str, tuple[str, ...]]] = {
    "volta": ("turing", "ampere"),
    "turing": ("volta", "ampere-ga10x", "ampere"),
    "ampere": ("ampere-ga10x", "hopper"),
    "ampere-ga10x": ("ada", "ampere"),
    "ada": ("ampere-ga10x", "blackwell-gb20x", "ampere"),
    "hopper": ("ampere", "blackwell"),
    "blackwell": ("hopper", "ampere"),
    "blackwell-gb20x": ("ada", "ampere-ga10x", "ampere"),
}


@dataclass(frozen=True, slots=True)
class Generation:
    """What is fitted for a generation of GPUs.

    Parameters
    ----------
    clock_share : float
        Sustained SM clock over the registry's boost clock, of the board with the most power per SM.
    dram_share : float
        Achieved over peak DRAM bandwidth.
    launch_us : float
        From one kernel's end to the next one's start, and what the first is late.
    """

    clock_share: float
    dram_share: float
    launch_us: float


@dataclass(frozen=True, slots=True)
class Implementation:
    """What is fitted for an implementation.

    Parameters
    ----------
    tile_factor : float
        Time of a tile over the model's. For ``pytorch-eager``: time of a product on the tensor cores over that at
        their peak.
    overhead : float
        Cycles that a CTA takes beside its tiles. For ``pytorch-eager``: time of a pass that broadcasts over another's.
    """

    tile_factor: float
    overhead: float


@dataclass(frozen=True, slots=True)
class Errors:
    """Ratios of published over predicted times, of points whose publication was left out of the fit.

    Parameters
    ----------
    low, high : float
        Of a publication that was left out, nine in ten times lie between these multiples of the prediction.
    points : int
    """

    low: float
    high: float
    points: int


@dataclass(frozen=True, slots=True)
class Constants:
    """All of them.

    Parameters
    ----------
    generations : mapping of str to Generation
    implementations : mapping of str to Implementation
    errors : mapping of str to Errors
        By implementation; ``all`` for one without points.
    other_gpu : Errors
        Of points of a GPU that was left out, all implementations.
    fitted_gpus : tuple of str
    reference_power : mapping of str to float
        Generation -> watts per SM and GHz of the board with the most of those that were fitted.
    """

    generations: Mapping[str, Generation]
    implementations: Mapping[str, Implementation]
    errors: Mapping[str, Errors]
    other_gpu: Errors
    fitted_gpus: tuple[str, ...]
    reference_power: Mapping[str, float]

    def clock_mhz(self, gpu: Gpu) -> float:
        """The SM clock that a GPU sustains.

        That a board which was fitted goes beyond its data sheet's boost says nothing of others.
        """
        generation, name = self.generation(gpu)
        share = generation.clock_share if gpu.slug in self.fitted_gpus else min(1.0, generation.clock_share)
        return share * gpu.boost_mhz * power_factor(gpu, self.reference_power.get(name))

    def generation(self, gpu: Gpu) -> tuple[Generation, str]:
        """The constants for a GPU, and the generation that they are of.

        Raises
        ------
        Unsupported
            If neither its generation nor a near one was fitted.
        """
        name = generation_name(gpu)
        for candidate in (name, *NEAREST[name]):
            if candidate in self.generations:
                return self.generations[candidate], candidate
        raise Unsupported(f"No published time is of a GPU like {gpu.slug}.")


def power_per_sm(gpu: Gpu) -> float | None:
    """Watts of the board per SM and GHz at boost; None where its power isn't known."""
    return None if gpu.board_power_w is None else gpu.board_power_w / (gpu.sm_count * gpu.boost_mhz * 1e-3)


def power_factor(gpu: Gpu, reference: float | None) -> float:
    """The clock of a board that has less power per SM than the reference, over that of one that has as much.

    Power goes with the clock and the square of the voltage, which goes with the clock: so the clock that a power limit
    allows goes with its cube root.

    Examples
    --------
    An A30 has 165 W for 56 SMs at 1440 MHz, 2.05 W per SM and GHz; an A100 has 2.63.

    >>> from fa_bench.model import gpus
    >>> round(power_factor(gpus.get("a30"), power_per_sm(gpus.get("a100-sxm-80"))), 3)
    0.92
    """
    power = power_per_sm(gpu)
    return 1.0 if power is None or reference is None else min(1.0, (power / reference) ** (1 / 3))


def generation_name(gpu: Gpu) -> str:
    """The generation of a GPU.

    Raises
    ------
    Unsupported
        If it is none of those known.
    """
    try:
        return GENERATIONS[gpu.compute_capability]
    except KeyError:
        raise Unsupported(f"There is no time model for {gpu.slug}: its generation is not known.") from None


@functools.cache
def shipped() -> Constants:
    """The constants that come with fa-bench."""
    return parse(datafiles.text(FILE))


def parse(text: str) -> Constants:
    """Constants from the text of their file."""
    data: dict[str, Any] = tomllib.loads(text)
    return Constants(
        {name: Generation(**fields) for name, fields in data["generation"].items()},
        {name: Implementation(**fields) for name, fields in data["implementation"].items()},
        {name: Errors(**fields) for name, fields in data["errors"].items()},
        Errors(**data["other_gpu"]),
        tuple(data["fitted_gpus"]),
        data["reference_power"],
    )
