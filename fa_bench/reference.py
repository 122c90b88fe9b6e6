"""The truth that every run is held against: seeded inputs, attention in float64, error bounds.

Three things live here and nowhere else: how inputs are drawn, what the right answer is, and how far from it a
correct kernel may be. The bound is derived from the number format (see `verify`), never fitted to a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fa_bench.backends.base import Verification
from fa_bench.cases import AttentionShape, Case

Array = NDArray[Any]
Float64 = NDArray[np.float64]

#: Cases with at most this many (query, key) pairs over all slices are verified in full.
FULL_PAIRS: Final = 2**23
#: Query rows drawn over all slices of a larger case, beside the first and last tile.
SAMPLED_ROWS: Final = 256
#: Scores held at a time while the reference runs: 2^21 float64 are 16 MiB.
CHUNK_PAIRS: Final = 2**21
#: Confidence factor of the probabilistic terms; see `verify`.
LAMBDA: Final = 6.0

#: Largest relative error of rounding to nearest in each storage type (half a unit in the last place).
UNIT_ROUNDOFF: Final[Mapping[str, float]] = {"fp16": 2.0**-11, "bf16": 2.0**-8, "fp32": 2.0**-24}
#: Largest absolute error of rounding a subnormal (half the smallest subnormal).
HALF_SUBNORMAL: Final[Mapping[str, float]] = {"fp16": 2.0**-25, "bf16": 2.0**-134, "fp32": 2.0**-150}


# ------------------------------------------------------------------------------------------ storage types


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


# ------------------------------------------------------------------------------------------------- inputs


def make_inputs(case: Case) -> dict[str, Array]:
    """Draw Q, K and V of a case: standard normal, then rounded to the case's dtype.

    Each tensor has a random stream of its own, so K and V do not depend on the size of Q. Normal values are used
    because zeros or constants draw less power and run faster than real data.

    Returns
    -------
    dict
        ``Q [B, Hq, Sq, D]``, ``K`` and ``V [B, Hkv, Skv, D]``, contiguous in that logical order whatever the
        case's layout; float16, float32, or uint16 bit patterns for bf16.
    """
    s = case.shape
    q_shape = (s.batch, s.heads_q, s.seq_q, s.head_dim)
    kv_shape = (s.batch, s.heads_kv, s.seq_kv, s.head_dim)
    streams = np.random.SeedSequence(case.seed).spawn(3)
    return {
        name: encode(np.random.default_rng(stream).standard_normal(shape, dtype=np.float32), case.dtype)
        for name, shape, stream in zip("QKV", (q_shape, kv_shape, kv_shape), streams, strict=True)
    }


# ---------------------------------------------------------------------------------------------- attention


@dataclass(frozen=True, slots=True)
class _Softmax:
    """Probabilities of some query rows of one slice, and what the rows' bounds need of them."""

    rows: NDArray[np.intp]
    scores: Float64  # [rows, Skv], -inf where masked
    probabilities: Float64  # [rows, Skv], a row that sees nothing is all zero
    lse: Float64  # [rows], -inf where nothing is visible


def _softmax_chunks(q: Float64, k: Float64, shape: AttentionShape, rows: NDArray[np.intp]) -> Iterator[_Softmax]:
    """Softmax of the scores of ``rows`` of one slice, few enough rows at a time to bound the memory."""
    step = max(1, CHUNK_PAIRS // shape.seq_kv)
    keys = np.arange(shape.seq_kv)
    for start in range(0, len(rows), step):
        chunk = rows[start : start + step]
        scores = (q[chunk] @ k.T) / np.sqrt(shape.head_dim)
        if shape.causal:
            np.copyto(scores, -np.inf, where=keys > chunk[:, None] + shape.diagonal)
        top = scores.max(axis=1)
        p = np.exp(scores - np.where(np.isneginf(top), 0.0, top)[:, None])
        total = p.sum(axis=1)
        blind = total == 0.0
        p /= np.where(blind, 1.0, total)[:, None]
        with np.errstate(divide="ignore"):
            lse = np.where(blind, -np.inf, top + np.log(total))
        yield _Softmax(chunk, scores, p, lse)


def _slice_inputs(q: Array, k: Array, v: Array, shape: AttentionShape, index: int) -> tuple[Float64, ...]:
    """Q, K and V of slice ``index`` (= batch · heads_q + head) in float64."""
    batch, head = divmod(index, shape.heads_q)
    kv_head = head // shape.group
    return (
        decode(q[batch, head], np.float64),
        decode(k[batch, kv_head], np.float64),
        decode(v[batch, kv_head], np.float64),
    )


def attention_fp64(
    q: Array, k: Array, v: Array, shape: AttentionShape, rows: Sequence[int] | None = None
) -> tuple[Float64, Float64]:
    """Attention in float64: ``O = softmax(Q Kᵀ / sqrt(D)) V`` and its log-sum-exp.

    The causal mask is aligned bottom-right; a query that sees nothing gives O = 0 and LSE = -inf; query head
    ``h`` uses K/V head ``h // (heads_q / heads_kv)``. Works in chunks of rows, so no N×N matrix is ever held.

    Parameters
    ----------
    q : ndarray, ``[B, Hq, Sq, D]``
    k, v : ndarray, ``[B, Hkv, Skv, D]``
        Floats, or uint16 bit patterns of bfloat16.
    shape : AttentionShape
    rows : sequence of int, optional
        Query rows to compute, the same for every slice; all of them by default.

    Returns
    -------
    O : ndarray of float64, ``[B, Hq, rows, D]``
    LSE : ndarray of float64, ``[B, Hq, rows]``
    """
    picked = np.arange(shape.seq_q) if rows is None else np.asarray(rows, dtype=np.intp)
    o = np.empty((shape.slices, len(picked), shape.head_dim))
    lse = np.empty((shape.slices, len(picked)))
    for index in range(shape.slices):
        q_s, k_s, v_s = _slice_inputs(q, k, v, shape, index)
        done = 0
        for part in _softmax_chunks(q_s, k_s, shape, picked):
            here = slice(done, done + len(part.rows))
            o[index, here] = part.probabilities @ v_s
            lse[index, here] = part.lse
            done = here.stop
    lead = (shape.batch, shape.heads_q, len(picked))
    return o.reshape(*lead, shape.head_dim), lse.reshape(lead)


# ------------------------------------------------------------------------------------------- verification


def rows_to_verify(case: Case, slices: Sequence[int] | None = None) -> dict[int, NDArray[np.intp]]:
    """Which query rows of which slices `verify` compares.

    All rows when the slices hold at most ``FULL_PAIRS`` pairs. Otherwise ``SAMPLED_ROWS`` (slice, row) pairs
    drawn by the case's seed, and the first and last tile (``block_m`` rows, 64 without a tile) of the first and
    of the last slice, where masks and strides go wrong first.
    """
    s = case.shape
    indices = list(range(s.slices)) if slices is None else list(slices)
    if len(indices) * s.seq_q * s.seq_kv <= FULL_PAIRS:
        return {index: np.arange(s.seq_q) for index in indices}
    rng = np.random.default_rng([case.seed, s.seq_q, s.seq_kv])
    count = min(SAMPLED_ROWS, len(indices) * s.seq_q)
    drawn = rng.choice(len(indices) * s.seq_q, count, replace=False)
    picked: dict[int, set[int]] = {}
    for place in drawn.tolist():
        picked.setdefault(indices[place // s.seq_q], set()).add(place % s.seq_q)
    tile = min(64 if case.tile is None else case.tile.block_m, s.seq_q)
    for index in (indices[0], indices[-1]):
        picked.setdefault(index, set()).update(range(tile), range(s.seq_q - tile, s.seq_q))
    return {index: np.array(sorted(rows), dtype=np.intp) for index, rows in sorted(picked.items())}


def _sum_error(terms: int, dtype: str) -> float:
    """Relative error, against the sum of magnitudes, of adding ``terms`` products in fp32; see `verify`."""
    random = LAMBDA * np.sqrt(terms) * 2.0**-24
    return float(random if dtype == "fp32" else random + (terms / 8 + 1) * 2.0**-23)


@dataclass(slots=True)
class _Worst:
    """Running maxima over the rows compared so far, and the first complaint."""

    error: float = 0.0
    bound: float = 0.0
    scale: float = 0.0
    complaint: str = ""

    def complain(self, sentence: str) -> None:
        self.complaint = self.complaint or sentence


def _bounds(part: _Softmax, q: Float64, k_norm: float, v: Float64, o: Float64, dtype: str) -> tuple[Float64, Float64]:
    """Largest error that the format explains, of each element of O and of each LSE; derived in `verify`."""
    u, eta = UNIT_ROUNDOFF[dtype], HALF_SUBNORMAL[dtype]
    skv, head_dim = v.shape
    p = part.probabilities
    seen = np.where(p > 0.0, np.abs(part.scores), 0.0)
    weight = p * (1.0 + seen)
    magnitude = p @ np.abs(v)  # Σ P|v|
    spread = np.sqrt(np.square(weight) @ np.square(v))  # sqrt(Σ (P(1+|s|)v)²)
    drift = np.sqrt(np.square(weight).sum(axis=1))  # the same for the normaliser
    top = 1.0 + seen.max(axis=1)
    score = _sum_error(head_dim, dtype) * np.linalg.norm(q[part.rows], axis=1) * k_norm / np.sqrt(head_dim)
    score = score + 4 * 2.0**-24 * top
    storage = np.minimum(LAMBDA * (spread + np.abs(o) * drift[:, None]), top[:, None] * (magnitude + np.abs(o)))
    underflow = LAMBDA * eta * np.sqrt(np.square(v).sum(axis=0))
    arithmetic = (_sum_error(skv, dtype) + 2 * score)[:, None] * magnitude
    bound_o = u * np.abs(o) + eta + u * storage + underflow + arithmetic
    finite_lse = np.where(np.isneginf(part.lse), 0.0, np.abs(part.lse))
    bound_lse = (
        2 * score + u * np.minimum(LAMBDA * drift, top) + _sum_error(skv, dtype) + 4 * 2.0**-23 * (1.0 + finite_lse)
    )
    return bound_o, bound_lse


def verify(
    case: Case,
    o: Array,
    lse: Array | None,
    inputs: Mapping[str, Array],
    slices: Sequence[int] | None = None,
) -> Verification:
    r"""Hold a run's output against float64 and say whether the number format explains the difference.

    Every element of the checked rows has a bound of its own. Let u be the unit roundoff of the storage type, P
    the exact probabilities, s the scaled scores and Σ a sum over visible keys. A correct implementation, with or
    without tiles, may

    * store O: ``u |O|``;
    * store each probability, and (standard attention) each score, in the storage type: a relative error
      ``u (1 + |s_j|)`` of each ``P_j``. It enters O through ``Σ P_j δ_j v_j`` and, where the normaliser saw
      the rounded values, through ``O Σ P_j δ_j``. Roundings to nearest are independent with mean zero, so by
      Hoeffding's inequality the sum stays below ``λ u sqrt(Σ (P_j (1+|s_j|) v_j)²)`` except with probability
      ``2 exp(-λ²/2)`` (N. Higham and T. Mary, 2019); λ = 6 makes that 3e-8, and about ten standard deviations
      of uniform roundings. The certain bound ``u (1 + max|s|) Σ P_j |v_j|`` is taken where it is smaller;
    * lose small fp16 probabilities as subnormals, by at most 2^-25 each: ``λ 2^-25 sqrt(Σ v_j²)``;
    * add N products in fp32: ``ε(N) Σ P_j |v_j|`` with ``ε(N) = λ sqrt(N) 2^-24`` for rounded sums, plus
      ``(N/8 + 1) 2^-23`` on tensor cores, which truncate once per instruction of at least 8 products; truncation
      has a sign, so it adds up;
    * compute each score with an absolute error of ``ε(D) ‖q‖ max‖k‖ / sqrt(D)`` (Cauchy and Schwarz) and the
      exponential within a few units of 2^-24: twice that as a relative error of P, for numerator and normaliser.

    The log-sum-exp is fp32 in every implementation: the scores' error, the drift of the normaliser and a few
    units in its last place. A row that sees nothing must be exactly O = 0 and LSE = -inf, every other LSE finite;
    a NaN anywhere in the slices' O or LSE fails, also outside the compared rows.

    Parameters
    ----------
    case : Case
    o : ndarray, ``[B, Hq, Sq, D]``
        Output in the storage type (uint16 bit patterns for bf16), logical order.
    lse : ndarray, ``[B, Hq, Sq]``, or None
        Log-sum-exp, where the implementation gives it.
    inputs : mapping
        ``Q, K, V`` as `make_inputs` returns them.
    slices : sequence of int, optional
        Slices that were run (batch · heads_q + head); all by default.

    Returns
    -------
    Verification
        ``bound`` is the largest element bound; ``passed`` is decided element by element.
    """
    s = case.shape
    indices = range(s.slices) if slices is None else slices
    flat_o = o.reshape(s.slices, s.seq_q, s.head_dim)
    flat_lse = None if lse is None else lse.reshape(s.slices, s.seq_q)
    worst = _Worst()
    for index in indices:
        _check_finite(case, flat_o[index], None if flat_lse is None else flat_lse[index], index, worst)
    picked = rows_to_verify(case, slices)
    for index, rows in picked.items():
        q_s, k_s, v_s = _slice_inputs(inputs["Q"], inputs["K"], inputs["V"], s, index)
        k_norm = float(np.linalg.norm(k_s, axis=1).max())
        worst.scale = max(worst.scale, float(np.abs(v_s).max()))
        for part in _softmax_chunks(q_s, k_s, s, rows):
            exact = part.probabilities @ v_s
            bound_o, bound_lse = _bounds(part, q_s, k_norm, v_s, exact, case.dtype)
            got = decode(flat_o[index, part.rows], np.float64)
            # A signalling NaN in what a wrong kernel left is no news.
            with np.errstate(invalid="ignore"):
                error_o = got - exact
            _compare(error_o, bound_o, part.rows, index, "O", worst)
            if flat_lse is not None:
                seen = ~np.isneginf(part.lse)
                with np.errstate(invalid="ignore"):
                    error_lse = flat_lse[index, part.rows].astype(np.float64)[seen] - part.lse[seen]
                _compare(error_lse, bound_lse[seen], part.rows[seen], index, "LSE", worst)
    compared = sum(len(rows) for rows in picked.values())
    full = compared == len(indices) * s.seq_q
    return Verification(
        max_abs_err=worst.error,
        rel_err=worst.error / worst.scale if worst.scale else worst.error,
        bound=worst.bound,
        reference="fp64" if full else f"fp64, {compared} rows",
        passed=not worst.complaint,
        detail=worst.complaint,
    )


def _check_finite(case: Case, o: Array, lse: Array | None, index: int, worst: _Worst) -> None:
    """Whole-slice checks that need no reference: NaN, rows that see nothing, infinities of the LSE."""
    s = case.shape
    finite = np.isfinite(decode(o)).all(axis=1)
    if not finite.all():
        worst.error = float("nan")
        worst.complain(f"O is not finite in row {int(np.argmin(finite))} of slice {index}.")
    blind = np.arange(s.seq_q) + s.diagonal < 0 if s.causal else np.zeros(s.seq_q, dtype=bool)
    if np.any(decode(o[blind])):
        worst.complain(f"O is not 0 in a row of slice {index} that sees no key.")
    if lse is not None:
        right = np.where(blind, np.isneginf(lse), np.isfinite(lse))
        if not right.all():
            row = int(np.argmin(right))
            expected = "-inf" if blind[row] else "finite"
            worst.complain(f"LSE is {lse[row]} in row {row} of slice {index}; it must be {expected}.")


def _compare(
    difference: Float64, bound: Float64, rows: NDArray[np.intp], index: int, tensor: str, worst: _Worst
) -> None:
    """Fold one chunk's errors into ``worst``; written so that a NaN fails."""
    error = np.abs(difference)
    if tensor == "O" and error.size:
        worst.error = float(np.maximum(worst.error, error.max()))  # np.maximum hands a NaN on
        worst.bound = max(worst.bound, float(bound.max()))
    inside = error <= bound
    if not inside.all():
        at = np.unravel_index(int(np.argmin(inside)), inside.shape)
        worst.complain(
            f"{tensor} is off by {error[at]:.3g} in row {int(rows[at[0]])} of slice {index}; "
            f"the number format explains {bound[at]:.3g}."
        )


def verification_bytes(case: Case) -> int:
    """Host memory that `make_inputs` and `verify` hold at their peak, in bytes: inputs, outputs and chunks.

    Inputs and O in the storage type, the float32 draw of the largest tensor, one slice of Q, K and V in float64,
    and ten arrays of a chunk of scores (at least one row) in float64.
    """
    s = case.shape
    q_elements = s.slices * s.seq_q * s.head_dim
    kv_elements = s.batch * s.heads_kv * s.seq_kv * s.head_dim
    stored = (2 * q_elements + 2 * kv_elements) * case.itemsize + s.slices * s.seq_q * 4
    drawing = 4 * max(q_elements, kv_elements)
    one_slice = 8 * s.head_dim * (s.seq_q + 3 * s.seq_kv)
    chunk = 10 * 8 * max(min(CHUNK_PAIRS, s.seq_q * s.seq_kv), s.seq_kv)
    return stored + max(drawing, one_slice + chunk)
