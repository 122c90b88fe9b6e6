"""The truth that every run is held against: seeded inputs, attention in float64, error bounds.

Three things live here and nowhere else: how inputs are drawn, what the right answer is (with `fa_bench.scoring`), and
how far from it a correct kernel may be. The bound is derived from the number format (see `verify`), never fitted to a
kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fa_bench.backends.base import Verification
from fa_bench.cases import AttentionShape, Case
from fa_bench.scoring import PLAIN, Scoring, alibi_slopes, visible_bounds
from fa_bench.storage import decode, encode

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


# ------------------------------------------------------------------------------------------------- inputs


def make_inputs(case: Case) -> dict[str, Array]:
    """Draw Q, K and V of a case, and what its features and a backward pass take: standard normal, then rounded.

    Each tensor has a random stream of its own, so K and V do not depend on the size of Q. Normal values are used
    because zeros or constants draw less power and run faster than real data.

    Returns
    -------
    dict
        ``Q [B, Hq, Sq, D]``, ``K [B, Hkv, Skv, D]``, ``V [B, Hkv, Skv, Dv]``, ``dO [B, Hq, Sq, Dv]`` and
        ``bias [1, Hq, Sq, Skv to the next 8]``, contiguous in that logical order whatever the case's layout; float16,
        float32, or uint16 bit patterns for bf16. ``slopes`` and ``sinks [1, Hq, 1]`` are float32. A packed batch has
        B = 1 and, for Sq and Skv, the rows of all sequences; its bias is for the longest; ``cu_seqlens_q`` and
        ``cu_seqlens_kv [1, 1, batch + 1]`` are int32.
    """
    s = case.shape
    batch, rows_q, rows_kv = s.tensor_sizes
    shapes: dict[str, tuple[int, ...]] = {
        "Q": (batch, s.heads_q, rows_q, s.head_dim),
        "K": (batch, s.heads_kv, rows_kv, s.head_dim),
        "V": (batch, s.heads_kv, rows_kv, s.dim_v),
        "dO": (batch, s.heads_q, rows_q, s.dim_v),
        "bias": (1, s.heads_q, s.seq_q, -(-s.seq_kv // 8) * 8),
        "sinks": (1, s.heads_q, 1),
    }
    asked = {"dO": case.backward, "bias": case.features.bias, "sinks": case.features.sinks}
    streams = np.random.SeedSequence(case.seed).spawn(len(shapes))
    drawn = {
        name: np.random.default_rng(stream).standard_normal(shape, dtype=np.float32)
        for (name, shape), stream in zip(shapes.items(), streams, strict=True)
        if asked.get(name, True)
    }
    inputs: dict[str, Array] = {
        name: values if name == "sinks" else encode(values, case.dtype) for name, values in drawn.items()
    }
    if case.features.alibi:
        inputs["slopes"] = alibi_slopes(s.heads_q).reshape(1, s.heads_q, 1)
    if s.seqlens is not None:
        for name, starts in zip(("cu_seqlens_q", "cu_seqlens_kv"), s.cu_seqlens, strict=True):
            inputs[name] = np.array(starts, np.int32).reshape(1, 1, -1)
    return inputs


# ---------------------------------------------------------------------------------------------- attention


@dataclass(frozen=True, slots=True)
class Softmax:
    """Probabilities of some query rows of one slice, and what the rows' bounds need of them."""

    rows: NDArray[np.intp]
    scores: Float64  # [rows, Skv], -inf where masked
    probabilities: Float64  # [rows, Skv], a row that sees nothing is all zero
    lse: Float64  # [rows], -inf where nothing is visible
    weights: Float64  # [rows, Skv], what V is multiplied by: probabilities, after dropout
    size: Float64  # [rows, Skv], the largest value on the way to a visible score


def softmax_chunks(
    q: Float64, k: Float64, shape: AttentionShape, rows: NDArray[np.intp], index: int = 0, scoring: Scoring = PLAIN
) -> Iterator[Softmax]:
    """Softmax of the scores of ``rows`` of slice ``index``, few enough rows at a time to bound the memory."""
    step = max(1, CHUNK_PAIRS // max(1, shape.seq_kv))
    keys = np.arange(shape.seq_kv)
    batch, head = divmod(index, shape.heads_q)
    for start in range(0, len(rows), step):
        chunk = rows[start : start + step]
        scores, size = scoring.scores((q[chunk] @ k.T) / np.sqrt(shape.head_dim), head, chunk, shape.diagonal)
        first, end = visible_bounds(shape, chunk)
        hidden = (keys < first[:, None]) | (keys >= end[:, None])
        scores = np.where(hidden, -np.inf, scores)
        sink = scoring.sink(head)
        top = np.maximum(scores.max(axis=1, initial=-np.inf), sink)
        shift = np.where(np.isneginf(top), 0.0, top)
        p = np.exp(scores - shift[:, None])
        total = p.sum(axis=1) + np.exp(sink - shift)
        blind = total == 0.0
        p /= np.where(blind, 1.0, total)[:, None]
        with np.errstate(divide="ignore"):
            lse = np.where(blind, -np.inf, top + np.log(total))
        weights = p * scoring.kept(batch, head, chunk, shape.seq_kv)
        yield Softmax(chunk, scores, p, lse, weights, np.where(hidden, 0.0, size))


@dataclass(frozen=True, slots=True)
class _Sequence:
    """One sequence of a batch: its shape, and where it lies in tensors ``[batch, heads, rows, ...]``."""

    shape: AttentionShape
    batch: int
    queries: slice
    keys: slice


def _sequence_of(shape: AttentionShape, index: int) -> _Sequence:
    """The sequence that slice ``index`` (= batch · heads_q + head) belongs to."""
    batch = index // shape.heads_q
    if shape.seqlens is None:
        return _Sequence(shape, batch, slice(0, shape.seq_q), slice(0, shape.seq_kv))
    queries, keys = (slice(*starts[batch : batch + 2]) for starts in shape.cu_seqlens)
    return _Sequence(shape.sequence(batch), 0, queries, keys)


def _slice_inputs(q: Array, k: Array, v: Array, shape: AttentionShape, index: int) -> tuple[Float64, ...]:
    """Q, K and V of slice ``index`` in float64."""
    sequence, head = _sequence_of(shape, index), index % shape.heads_q
    kv_head = head // shape.group
    return (
        decode(q[sequence.batch, head, sequence.queries], np.float64),
        decode(k[sequence.batch, kv_head, sequence.keys], np.float64),
        decode(v[sequence.batch, kv_head, sequence.keys], np.float64),
    )


def attention_fp64(
    q: Array,
    k: Array,
    v: Array,
    shape: AttentionShape,
    rows: Sequence[int] | None = None,
    scoring: Scoring = PLAIN,
) -> tuple[Float64, Float64]:
    """Attention in float64: ``O = softmax(Q Kᵀ / sqrt(D)) V`` and its log-sum-exp.

    Causal mask and windows are aligned bottom-right; a query that sees nothing gives O = 0 and LSE = -inf; query head
    ``h`` uses K/V head ``h // (heads_q / heads_kv)``. Works in chunks of rows, so no N×N matrix is ever held.

    Parameters
    ----------
    q : ndarray, ``[B, Hq, Sq, D]``
    k, v : ndarray, ``[B, Hkv, Skv, D]``
        Floats, or uint16 bit patterns of bfloat16.
    shape : AttentionShape
    rows : sequence of int, optional
        Query rows to compute, the same for every slice; all of them by default, and always of a packed batch.
    scoring : Scoring, optional

    Returns
    -------
    O : ndarray of float64, ``[B, Hq, rows, Dv]``
    LSE : ndarray of float64, ``[B, Hq, rows]``
    """
    batch, rows_q, _ = shape.tensor_sizes
    lead = (batch, shape.heads_q, rows_q if rows is None else len(rows))
    o, lse = np.empty((*lead, shape.dim_v)), np.empty(lead)
    for index in range(shape.slices):
        sequence, head = _sequence_of(shape, index), index % shape.heads_q
        q_s, k_s, v_s = _slice_inputs(q, k, v, shape, index)
        picked = np.arange(len(q_s)) if rows is None else np.asarray(rows, dtype=np.intp)
        done = sequence.queries.start
        for part in softmax_chunks(q_s, k_s, sequence.shape, picked, index, scoring):
            here = slice(done, done + len(part.rows))
            o[sequence.batch, head, here] = part.weights @ v_s
            lse[sequence.batch, head, here] = part.lse
            done = here.stop
    return o, lse


# ------------------------------------------------------------------------------------------- verification


def rows_to_verify(case: Case, slices: Sequence[int] | None = None) -> dict[int, NDArray[np.intp]]:
    """Which query rows of which slices `verify` compares.

    All rows when the slices hold at most ``FULL_PAIRS`` pairs. Otherwise ``SAMPLED_ROWS`` (slice, row) pairs
    drawn by the case's seed, and the first and last tile (``block_m`` rows, 64 without a tile) of the first and
    of the last slice, where masks and strides go wrong first.
    """
    s = case.shape
    indices = list(range(s.slices)) if slices is None else list(slices)
    sequences = [_sequence_of(s, index).shape for index in indices]
    if sum(sequence.seq_q * sequence.seq_kv for sequence in sequences) <= FULL_PAIRS:
        return {index: np.arange(sequence.seq_q) for index, sequence in zip(indices, sequences, strict=True)}
    rng = np.random.default_rng([case.seed, s.seq_q, s.seq_kv])
    ends = np.cumsum([sequence.seq_q for sequence in sequences])
    drawn = rng.choice(int(ends[-1]), min(SAMPLED_ROWS, int(ends[-1])), replace=False)
    picked: dict[int, set[int]] = {}
    for row, place in zip(drawn.tolist(), np.searchsorted(ends, drawn, side="right").tolist(), strict=True):
        picked.setdefault(indices[place], set()).add(row - int(ends[place]) + sequences[place].seq_q)
    for place in (0, -1):
        rows = sequences[place].seq_q
        tile = min(64 if case.tile is None else case.tile.block_m, rows)
        picked.setdefault(indices[place], set()).update(range(tile), range(rows - tile, rows))
    return {index: np.array(sorted(rows), dtype=np.intp) for index, rows in sorted(picked.items())}


def sum_error(terms: int, dtype: str) -> float:
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


def score_error(part: Softmax, q: Float64, k_norm: float, dtype: str, softcap: float) -> Float64:
    """Largest absolute error of a row's scores; ``q`` are all rows of the slice."""
    head_dim = q.shape[1]
    products = sum_error(head_dim, dtype) * np.linalg.norm(q[part.rows], axis=1) * k_norm / np.sqrt(head_dim)
    # tanh from an exponential and a reciprocal: a few units of 2^-24 of 1, which softcap multiplies.
    return np.asarray(products + 4 * 2.0**-24 * (1.0 + part.size.max(axis=1, initial=0.0)) + softcap * 2.0**-21)


def _bounds(
    part: Softmax, q: Float64, k_norm: float, v: Float64, o: Float64, dtype: str, softcap: float
) -> tuple[Float64, Float64]:
    """Largest error that the format explains, of each element of O and of each LSE; derived in `verify`."""
    u, eta = UNIT_ROUNDOFF[dtype], HALF_SUBNORMAL[dtype]
    skv = len(v)
    p, w = part.probabilities, part.weights
    seen = np.where(p > 0.0, np.maximum(np.abs(part.scores), part.size), 0.0)
    weight = p * (1.0 + seen)
    magnitude = w @ np.abs(v)  # Σ P|v|
    spread = np.sqrt(np.square(w * (1.0 + seen)) @ np.square(v))  # sqrt(Σ (P(1+|s|)v)²)
    drift = np.sqrt(np.square(weight).sum(axis=1))  # the same for the normaliser
    top = 1.0 + seen.max(axis=1, initial=0.0)
    score = score_error(part, q, k_norm, dtype, softcap)
    storage = np.minimum(LAMBDA * (spread + np.abs(o) * drift[:, None]), top[:, None] * (magnitude + np.abs(o)))
    underflow = LAMBDA * eta * np.sqrt(np.square(v).sum(axis=0))
    arithmetic = (sum_error(skv, dtype) + 2 * score)[:, None] * magnitude
    bound_o = u * np.abs(o) + eta + u * storage + underflow + arithmetic
    finite_lse = np.where(np.isneginf(part.lse), 0.0, np.abs(part.lse))
    bound_lse = (
        2 * score + u * np.minimum(LAMBDA * drift, top) + sum_error(skv, dtype) + 4 * 2.0**-23 * (1.0 + finite_lse)
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
      ``u (1 + |s_j|)`` of each ``P_j``; the score is stored before or after softcap, bias and ALiBi, so ``|s_j|`` is
      the largest of its values on the way. It enters O through ``Σ P_j δ_j v_j`` and, where the normaliser saw
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
      What is done to scores (softcap, bias, ALiBi) is fp32: a few units of 2^-24 of the largest value on the way.
      Dropout multiplies both P and its errors.

    The log-sum-exp is fp32 in every implementation: the scores' error, the drift of the normaliser and a few
    units in its last place. A row that sees nothing must be exactly O = 0 and LSE = -inf, every other LSE finite;
    a NaN anywhere in the slices' O or LSE fails, also outside the compared rows.

    Parameters
    ----------
    case : Case
    o : ndarray, ``[B, Hq, Sq, D]``
        Output in the storage type (uint16 bit patterns for bf16), logical order; of a packed batch with B = 1 and
        the rows of all sequences.
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

    def of(output: Array, index: int) -> Array:
        sequence = _sequence_of(s, index)
        rows: Array = output[sequence.batch, index % s.heads_q, sequence.queries]
        return rows

    worst = _Worst()
    for index in indices:
        _check_finite(case, of(o, index), None if lse is None else of(lse, index), index, worst)
    picked, scoring = rows_to_verify(case, slices), Scoring.of(case, inputs)
    for index, rows in picked.items():
        q_s, k_s, v_s = _slice_inputs(inputs["Q"], inputs["K"], inputs["V"], s, index)
        k_norm = float(np.linalg.norm(k_s, axis=1).max(initial=0.0))
        worst.scale = max(worst.scale, float(np.abs(v_s).max(initial=0.0)))
        for part in softmax_chunks(q_s, k_s, _sequence_of(s, index).shape, rows, index, scoring):
            exact = part.weights @ v_s
            bound_o, bound_lse = _bounds(part, q_s, k_norm, v_s, exact, case.dtype, case.features.softcap)
            got = decode(of(o, index)[part.rows], np.float64)
            # A signalling NaN in what a wrong kernel left is no news.
            with np.errstate(invalid="ignore"):
                error_o = got - exact
            _compare(error_o, bound_o, part.rows, index, "O", worst)
            if lse is not None:
                seen = ~np.isneginf(part.lse)
                with np.errstate(invalid="ignore"):
                    error_lse = of(lse, index)[part.rows].astype(np.float64)[seen] - part.lse[seen]
                _compare(error_lse, bound_lse[seen], part.rows[seen], index, "LSE", worst)
    compared = sum(len(rows) for rows in picked.values())
    full = compared == sum(_sequence_of(s, index).shape.seq_q for index in indices)
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
    s = _sequence_of(case.shape, index).shape
    finite = np.isfinite(decode(o)).all(axis=1)
    if not finite.all():
        worst.error = float("nan")
        worst.complain(f"O is not finite in row {int(np.argmin(finite))} of slice {index}.")
    first, end = visible_bounds(s, np.arange(s.seq_q))
    blind = np.minimum(end, s.seq_kv) <= np.maximum(first, 0)
    if np.any(decode(o[blind])):
        worst.complain(f"O is not 0 in a row of slice {index} that sees no key.")
    if lse is not None:
        # A sink is a finite normaliser where nothing else is seen.
        right = np.where(blind & (not case.features.sinks), np.isneginf(lse), np.isfinite(lse))
        if not right.all():
            row = int(np.argmin(right))
            expected = "-inf" if blind[row] and not case.features.sinks else "finite"
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
    and fourteen arrays of a chunk of scores (at least one row) in float64.
    """
    s = case.shape
    batch, rows_q, rows_kv = s.tensor_sizes
    dim = max(s.head_dim, s.dim_v)
    q_elements = batch * s.heads_q * rows_q * dim
    kv_elements = batch * s.heads_kv * rows_kv * dim
    bias_elements = s.heads_q * s.seq_q * s.seq_kv if case.features.bias else 0
    stored = (2 * q_elements + 2 * kv_elements + bias_elements) * case.itemsize + batch * s.heads_q * rows_q * 4
    drawing = 4 * max(q_elements, kv_elements, bias_elements)
    one_slice = 8 * dim * (s.seq_q + 3 * s.seq_kv)
    chunk = 14 * 8 * max(min(CHUNK_PAIRS, s.seq_q * s.seq_kv), s.seq_kv)
    return stored + max(drawing, one_slice + chunk)
