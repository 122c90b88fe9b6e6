"""The truth of the backward pass: gradients in float64, and how far from them a correct kernel may be.

As in :mod:`fa_bench.reference`, of which this is the second half, the bound of each element is derived from the number
format (see `verify_gradients`), never fitted to a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fa_bench.backends.base import Verification
from fa_bench.cases import AttentionShape, Case
from fa_bench.reference import (
    CHUNK_PAIRS,
    FULL_PAIRS,
    HALF_SUBNORMAL,
    LAMBDA,
    UNIT_ROUNDOFF,
    Softmax,
    softmax_chunks,
    sum_error,
)
from fa_bench.scoring import PLAIN, Scoring
from fa_bench.storage import decode

Array = NDArray[Any]
Float64 = NDArray[np.float64]
Rows = NDArray[np.intp]

GRADIENTS: Final = ("dQ", "dK", "dV")

#: Rows of Q, and of K and V, that are compared in a K/V head of a case too large to compare in full.
SAMPLED_ROWS: Final = 128
#: K/V heads of such a case that are looked at: each needs a pass over all of its pairs.
SAMPLED_HEADS: Final = 2


@dataclass(frozen=True, slots=True)
class _Part:
    """Some query rows of one slice, with all that their gradients are made of; shapes in rows and keys."""

    softmax: Softmax
    q: Float64  # [rows, D]
    do: Float64  # [rows, D]
    kept: Float64  # [rows, Skv], what dropout multiplies P by
    dp: Float64  # [rows, Skv], kept ∘ dO Vᵀ
    delta: Float64  # [rows], Σ P dP = Σ O dO
    o: Float64  # [rows, D]

    @property
    def t(self) -> Float64:
        """``dP - delta``."""
        return self.dp - self.delta[:, None]


def _parts(
    q: Float64, k: Float64, v: Float64, do: Float64, shape: AttentionShape, index: int, scoring: Scoring
) -> Iterator[_Part]:
    """Parts of slice ``index``."""
    batch, head = divmod(index, shape.heads_q)
    for softmax in softmax_chunks(q, k, shape, np.arange(shape.seq_q), index, scoring):
        rows, p = softmax.rows, softmax.probabilities
        kept = np.broadcast_to(scoring.kept(batch, head, rows, shape.seq_kv), p.shape)
        dp = kept * (do[rows] @ v.T)
        yield _Part(softmax, q[rows], do[rows], kept, dp, (p * dp).sum(axis=1), softmax.weights @ v)


def gradients_fp64(
    q: Array, k: Array, v: Array, do: Array, shape: AttentionShape, scoring: Scoring = PLAIN
) -> tuple[Float64, Float64, Float64]:
    """Gradients of attention in float64.

    With ``S = Q Kᵀ / sqrt(D)``, ``P = softmax(S)`` and ``dP = dO Vᵀ``: ``dV = Pᵀ dO``,
    ``dS = P ∘ (dP - rowsum(P ∘ dP))``, ``dQ = dS K / sqrt(D)``, ``dK = dSᵀ Q / sqrt(D)`` (FlashAttention, arXiv
    2205.14135, appendix B.2). Query heads that share a K/V head add up in its dK and dV. A query that sees nothing
    has dQ = 0 and adds nothing. With dropout, ``D`` being 1 / (1 - p) where a pair is kept and 0 elsewhere,
    ``dV = (P ∘ D)ᵀ dO`` and ``dP = D ∘ dO Vᵀ``.

    Parameters
    ----------
    q, do : ndarray, ``[B, Hq, Sq, D]``
    k, v : ndarray, ``[B, Hkv, Skv, D]``
        Floats, or uint16 bit patterns of bfloat16.
    shape : AttentionShape
    scoring : Scoring, optional
        Of which dropout is known here.

    Returns
    -------
    dQ : ndarray of float64, ``[B, Hq, Sq, D]``
    dK, dV : ndarray of float64, ``[B, Hkv, Skv, D]``
    """
    scale = 1 / np.sqrt(shape.head_dim)
    dq = np.empty((shape.batch, shape.heads_q, shape.seq_q, shape.head_dim))
    dk = np.zeros((shape.batch, shape.heads_kv, shape.seq_kv, shape.head_dim))
    dv = np.zeros_like(dk)
    for batch in range(shape.batch):
        for head in range(shape.heads_q):
            kv_head = head // shape.group
            k64, v64 = decode(k[batch, kv_head], np.float64), decode(v[batch, kv_head], np.float64)
            q64, do64 = decode(q[batch, head], np.float64), decode(do[batch, head], np.float64)
            for part in _parts(q64, k64, v64, do64, shape, batch * shape.heads_q + head, scoring):
                ds = part.softmax.probabilities * part.t
                dq[batch, head, part.softmax.rows] = scale * (ds @ k64)
                dk[batch, kv_head] += scale * (ds.T @ part.q)
                dv[batch, kv_head] += part.softmax.weights.T @ part.do
    return dq, dk, dv


# ------------------------------------------------------------------------------------------- verification


@dataclass(slots=True)
class _Sum:
    """A gradient's rows as they add up, with the two kinds of error: random (squared) and certain."""

    exact: Float64
    random: Float64 = field(init=False)
    certain: Float64 = field(init=False)

    def __post_init__(self) -> None:
        self.random, self.certain = np.zeros_like(self.exact), np.zeros_like(self.exact)

    def bound(self, scale: float, dtype: str) -> Float64:
        """Largest error of each element once it is multiplied by ``scale`` and stored."""
        u, eta = UNIT_ROUNDOFF[dtype], HALF_SUBNORMAL[dtype]
        inner = LAMBDA * np.sqrt(self.random) + self.certain
        return np.asarray(scale * inner + u * np.abs(scale * self.exact) + eta)


@dataclass(slots=True)
class _Worst:
    """Running maxima over what was compared, and the first complaint."""

    error: float = 0.0
    bound: float = 0.0
    scale: float = 0.0
    compared: int = 0
    complaint: str = ""

    def compare(self, name: str, got: Float64, exact: Float64, bound: Float64, rows: Rows, where: str) -> None:
        # A signalling NaN in what a wrong kernel left is no news.
        with np.errstate(invalid="ignore"):
            error = np.abs(got - exact)
        self.error = float(np.maximum(self.error, error.max()))  # np.maximum hands a NaN on
        self.bound = max(self.bound, float(bound.max()))
        self.scale = max(self.scale, float(np.abs(exact).max()))
        self.compared += len(rows)
        inside = error <= bound
        if not inside.all() and not self.complaint:
            at = np.unravel_index(int(np.argmin(inside)), inside.shape)
            self.complaint = (
                f"{name} is off by {error[at]:.3g} in row {int(rows[at[0]])} of {where}; "
                f"the number format explains {bound[at]:.3g}."
            )


def verify_gradients(
    case: Case,
    gradients: Mapping[str, Array],
    inputs: Mapping[str, Array],
    slices: Sequence[int] | None = None,
) -> Verification:
    r"""Hold a run's dQ, dK and dV against float64 and say whether the number format explains the differences.

    Beside what :func:`fa_bench.reference.verify` allows for P (with u, λ, η, ε and the score's error as there), a
    correct backward pass, with or without tiles, may

    * store P, S, dP and dS in the storage type: independent relative errors of P t, with t = dP - delta, of
      ``u (1+|s|)``, ``u |dP| / |t|`` and ``u``; in a sum over pairs they add up as
      ``λ u sqrt(Σ ((P(1+|s|)t)² + dS² + (P dP)²) x²)``, x being K for dQ and Q for dK, and for dV as
      ``λ u sqrt(Σ (P(1+|s|) dO)²)``;
    * take delta from the stored O: its error is one of the row,
      ``σ = u sqrt(Σ_d (O dO)² + Σ_j (P(1+|s|) dP)²)``, and meets all of the row's P: ``λ σ |Σ_j P k_j|`` in dQ,
      ``λ sqrt(Σ_i (σ_i P q_i)²)`` in dK;
    * take the normaliser from a stored LSE or from rounded scores: a relative error of all of the row's P, with the
      random part ``u sqrt(Σ_j (P(1+|s|))²)``;
    * compute scores, dP (``ε(D) ‖dO‖ max‖v‖``), delta and sums in fp32, whose certain bounds add up;
    * with dropout (D as in `gradients_fp64`), do all of this to P ∘ D in dV and to dP = D ∘ dO Vᵀ: D is exact but for
      one rounding in fp32, and multiplies the errors of what it multiplies;
    * lose small P and dS as subnormals: η each, ``λ η sqrt(Σ x² (1 + t²))``.

    Where a row of dQ, dK or dV is a sum over nothing it must be exactly 0.

    Parameters
    ----------
    case : Case
    gradients : mapping
        ``dQ, dK, dV`` in the storage type (uint16 bit patterns for bf16), logical order.
    inputs : mapping
        ``Q, K, V, dO`` as `fa_bench.reference.make_inputs` returns them.
    slices : sequence of int, optional
        Slices that were run (batch · heads_q + head) of a case without shared K/V heads; all by default.

    Returns
    -------
    Verification
        ``rel_err`` is relative to the largest exact gradient among those compared.
    """
    s = case.shape
    heads = sorted({index // s.group for index in (range(s.slices) if slices is None else slices)})
    full = len(heads) * s.group * s.seq_q * s.seq_kv <= FULL_PAIRS
    rng = np.random.default_rng([case.seed, s.seq_q, s.seq_kv, 1])
    worst = _Worst()
    _check_finite(case, gradients, heads, worst)
    looked_at = heads
    if not full and len(heads) > SAMPLED_HEADS:
        looked_at = sorted(rng.choice(heads, SAMPLED_HEADS, replace=False).tolist())
    for head in looked_at:
        _compare_head(case, gradients, inputs, head, full, rng, worst)
    return Verification(
        max_abs_err=worst.error,
        rel_err=worst.error / worst.scale if worst.scale else worst.error,
        bound=worst.bound,
        reference="fp64 gradients" if full else f"fp64 gradients, {worst.compared} rows",
        passed=not worst.complaint,
        detail=worst.complaint,
    )


def _check_finite(case: Case, gradients: Mapping[str, Array], heads: Sequence[int], worst: _Worst) -> None:
    """NaN and infinities anywhere in what was run."""
    s = case.shape
    for name in GRADIENTS:
        per_head = s.group if name == "dQ" else 1
        rows = s.seq_q if name == "dQ" else s.seq_kv
        flat = gradients[name].reshape(-1, rows, s.head_dim)
        for index in (head * per_head + member for head in heads for member in range(per_head)):
            finite = np.isfinite(decode(flat[index])).all(axis=1)
            if not finite.all():
                worst.error = float("nan")
                sentence = f"{name} is not finite in row {int(np.argmin(finite))} of slice {index}."
                worst.complaint = worst.complaint or sentence


def _picked(rows: int, tile: int, full: bool, rng: np.random.Generator) -> Rows:
    """All rows, or some by seed with the first and last tile, where masks and strides go wrong first."""
    if full or rows <= SAMPLED_ROWS + 2 * tile:
        return np.arange(rows)
    drawn = rng.choice(rows, SAMPLED_ROWS, replace=False)
    return np.unique(np.concatenate([drawn, np.arange(tile), np.arange(rows - tile, rows)])).astype(np.intp)


def _compare_head(
    case: Case,
    gradients: Mapping[str, Array],
    inputs: Mapping[str, Array],
    kv_index: int,
    full: bool,
    rng: np.random.Generator,
    worst: _Worst,
) -> None:
    """Compare what belongs to one K/V head: its dK and dV, and dQ of the query heads that share it."""
    s, dtype, scoring = case.shape, case.dtype, Scoring.of(case, inputs)
    scale = 1 / float(np.sqrt(s.head_dim))
    k, v = (_head(inputs[name], kv_index, s.seq_kv, s.head_dim) for name in "KV")
    tile = (64, 64) if case.tile is None else (case.tile.block_m, case.tile.block_n)
    columns = _picked(s.seq_kv, tile[1], full, rng)
    dk, dv = (_Sum(np.zeros((len(columns), s.head_dim))) for _ in range(2))
    norms = float(np.linalg.norm(k, axis=1).max()), float(np.linalg.norm(v, axis=1).max())
    for slice_index in range(kv_index * s.group, (kv_index + 1) * s.group):
        q, do = (_head(inputs[name], slice_index, s.seq_q, s.head_dim) for name in ("Q", "dO"))
        rows = _picked(s.seq_q, tile[0], full, rng)
        got = _head(gradients["dQ"], slice_index, s.seq_q, s.head_dim)
        for part in _parts(q, k, v, do, s, slice_index, scoring):
            errors = _RowErrors.of(part, norms, k, v, dtype)
            _add_columns(dk, dv, part, errors, columns, s.seq_q * s.group, dtype)
            here = np.flatnonzero(np.isin(part.softmax.rows, rows))
            if len(here):
                exact, bound = _query_gradient(part, errors, here, k, scale, dtype)
                at = part.softmax.rows[here]
                worst.compare("dQ", got[at], exact, bound, at, f"slice {slice_index}")
    where = f"K/V slice {kv_index}"
    for name, total, factor in (("dK", dk, scale), ("dV", dv, 1.0)):
        got = _head(gradients[name], kv_index, s.seq_kv, s.head_dim)[columns]
        worst.compare(name, got, factor * total.exact, total.bound(factor, dtype), columns, where)


def _head(tensor: Array, index: int, rows: int, head_dim: int) -> Float64:
    return decode(tensor.reshape(-1, rows, head_dim)[index], np.float64)


@dataclass(frozen=True, slots=True)
class _RowErrors:
    """Errors that the elements of a row share, derived in `verify_gradients`."""

    weight: Float64  # [rows, Skv], P (1 + |s|)
    drift: Float64  # [rows], u sqrt(Σ weight²): random relative error of the row's P
    relative: Float64  # [rows], certain relative error of the row's P
    delta_random: Float64  # [rows]
    delta_certain: Float64  # [rows], with that of dP

    @classmethod
    def of(cls, part: _Part, norms: tuple[float, float], k: Float64, v: Float64, dtype: str) -> _RowErrors:
        """Those of ``part``; ``norms`` are the largest of a row of K and of V."""
        u, (keys, head_dim) = UNIT_ROUNDOFF[dtype], k.shape
        p = part.softmax.probabilities
        seen = np.where(p > 0.0, np.abs(part.softmax.scores), 0.0)
        weight = p * (1.0 + seen)
        top = 1.0 + seen.max(axis=1)
        score = sum_error(head_dim, dtype) * np.linalg.norm(part.q, axis=1) * norms[0] / np.sqrt(head_dim)
        score = score + 4 * 2.0**-24 * top
        lse = np.where(np.isneginf(part.softmax.lse), 0.0, np.abs(part.softmax.lse))
        relative = 2 * score + sum_error(keys, dtype) + 4 * 2.0**-23 * (1.0 + lse)
        o_do = np.square(part.o * part.do).sum(axis=1)
        magnitude = (np.abs(part.do) * (part.softmax.weights @ np.abs(v))).sum(axis=1)
        products = sum_error(head_dim, dtype) * np.linalg.norm(part.do, axis=1) * norms[1] * part.kept.max()
        return cls(
            weight,
            u * np.sqrt(np.square(weight).sum(axis=1)),
            relative,
            u * np.sqrt(o_do + np.square(weight * part.dp).sum(axis=1)),
            products + (relative + sum_error(head_dim, dtype)) * magnitude,
        )


def _pair_variance(part: _Part, errors: _RowErrors, dtype: str) -> Float64:
    """Squared random error of each dS."""
    u, eta = UNIT_ROUNDOFF[dtype], HALF_SUBNORMAL[dtype]
    p, t = part.softmax.probabilities, part.t
    rounding = np.square(errors.weight * t) + np.square(p * t) + np.square(p * part.dp)
    # Where nothing is visible nothing is computed, so nothing is lost. A kernel may round dS with the scale 1/sqrt(D)
    # in it, so that what is lost is not made smaller by it afterwards.
    head_dim = part.q.shape[1]
    lost = np.where(p > 0.0, np.square(eta) * (head_dim + np.square(t)), 0.0)
    return np.asarray(np.square(u) * rounding + lost)


def _query_gradient(
    part: _Part, errors: _RowErrors, here: Rows, k: Float64, scale: float, dtype: str
) -> tuple[Float64, Float64]:
    """dQ of some of a part's rows, and its bound."""
    p, t = part.softmax.probabilities[here], part.t[here]
    ds = p * t
    total = _Sum(ds @ k)
    total.random = _pair_variance(part, errors, dtype)[here] @ np.square(k)
    total.random += np.square(errors.delta_random[here, None] * (p @ k))
    total.random += np.square(errors.drift[here, None] * total.exact)
    size = np.abs(k)
    certain = errors.relative[here, None] * ((p * np.abs(t)) @ size) + errors.delta_certain[here, None] * (p @ size)
    total.certain = certain + sum_error(k.shape[0], dtype) * (np.abs(ds) @ size)
    return scale * total.exact, total.bound(scale, dtype)


def _add_columns(dk: _Sum, dv: _Sum, part: _Part, errors: _RowErrors, columns: Rows, terms: int, dtype: str) -> None:
    """Add a part's share of some rows of dK and dV, and its errors. ``terms`` rows add up in all."""
    u, eta = UNIT_ROUNDOFF[dtype], HALF_SUBNORMAL[dtype]
    p, t = part.softmax.probabilities[:, columns], part.t[:, columns]
    ds = p * t
    q, do = part.q, part.do
    dk.exact += ds.T @ q
    dk.random += _pair_variance(part, errors, dtype)[:, columns].T @ np.square(q)
    dk.random += np.square(errors.delta_random[:, None] * p).T @ np.square(q)
    dk.random += np.square(errors.drift[:, None] * ds).T @ np.square(q)
    certain = errors.relative[:, None] * p * np.abs(t) + errors.delta_certain[:, None] * p
    dk.certain += (certain + sum_error(terms, dtype) * np.abs(ds)).T @ np.abs(q)
    # P is stored before or after it is scaled for what dropout took away.
    w, kept = part.softmax.weights[:, columns], part.kept[:, columns]
    dv.exact += w.T @ do
    lost = np.where(p > 0.0, np.square(eta * kept), 0.0)
    weight = errors.weight[:, columns] * kept
    dv.random += (np.square(u * weight) + np.square(errors.drift[:, None] * w) + lost).T @ np.square(do)
    dv.certain += ((errors.relative[:, None] + sum_error(terms, dtype)) * w).T @ np.abs(do)


def verification_bytes(case: Case) -> int:
    """Host memory of `verify_gradients` beside that of the forward pass, in bytes.

    dO, the gradients, one head of each in float64, six such arrays of sums for dK and dV, and twenty-two arrays of a
    chunk of pairs in float64.
    """
    s = case.shape
    q_elements = s.slices * s.seq_q * s.head_dim
    kv_elements = s.batch * s.heads_kv * s.seq_kv * s.head_dim
    chunk = max(min(CHUNK_PAIRS, s.seq_q * s.seq_kv), s.seq_kv)
    head = s.head_dim * (4 * s.seq_q + 10 * s.seq_kv)
    return 2 * (q_elements + kv_elements) * case.itemsize + 8 * (head + 22 * chunk)
