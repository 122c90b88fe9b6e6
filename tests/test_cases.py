"""Shapes, tiles and cases check themselves, count their visible pairs right and keep their identity."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fa_bench.cases import DIRECTIONS, AttentionShape, Case, Tile
from fa_bench.errors import UsageError

SHAPE = AttentionShape(1, 1, 1, 1024, 1024, 64)
CASE = Case("flash2", SHAPE, tile=Tile(64, 64, 1, 4))


def shape(seq_q: int, seq_kv: int, *, causal: bool = True) -> AttentionShape:
    return AttentionShape(1, 1, 1, seq_q, seq_kv, 64, causal)


def visible(query: int, key: int, seq_q: int, seq_kv: int) -> bool:
    """The mask as FlashAttention 2.1 draws it, with its bottom right corner on the diagonal."""
    return key <= query + seq_kv - seq_q


@pytest.mark.parametrize(
    ("seq_q", "seq_kv", "pairs"),
    [
        (2, 5, 9),  # rows see 4 and 5 of 5 keys
        (5, 2, 3),  # rows 0, 1, 2 see nothing, then 1 and 2 keys
        (4, 4, 10),  # 1 + 2 + 3 + 4
        (1, 7, 7),  # decoding: the last query sees every key
        (7, 1, 1),  # only the last row sees the only key
        (1, 1, 1),
    ],
)
def test_causal_pairs_by_hand(seq_q: int, seq_kv: int, pairs: int) -> None:
    assert shape(seq_q, seq_kv).visible_pairs == pairs


@given(st.integers(1, 40), st.integers(1, 40), st.booleans())
def test_visible_pairs_equal_the_mask_drawn_in_full(seq_q: int, seq_kv: int, causal: bool) -> None:
    per_query = [
        sum(not causal or visible(query, key, seq_q, seq_kv) for key in range(seq_kv)) for query in range(seq_q)
    ]
    s = shape(seq_q, seq_kv, causal=causal)
    assert [s.visible_keys(query) for query in range(seq_q)] == per_query
    assert s.visible_pairs == sum(per_query)


def test_pairs_are_exact_where_floats_are_not() -> None:
    # Rows see 2, 3, ... n keys: n(n + 1)/2 - 1, for n = 2^27 odd and beyond 2^53, so that no float holds it.
    n = 2**27
    assert shape(n - 1, n).visible_pairs == 2**53 + 2**26 - 1


@pytest.mark.parametrize(
    ("seq_q", "seq_kv", "causal", "pairs"),
    [
        (4, 4, False, 16),
        (4, 4, True, 8),  # the papers' half, not the 10 visible ones
        (3, 3, True, 4.5),
        (2, 5, True, 9),  # not square: the exact count
        (2, 5, False, 10),
    ],
)
def test_nominal_pairs(seq_q: int, seq_kv: int, causal: bool, pairs: float) -> None:
    assert shape(seq_q, seq_kv, causal=causal).nominal_pairs == pairs


def test_slices_and_groups() -> None:
    s = AttentionShape(3, 8, 2, 5, 7, 64)
    assert (s.slices, s.group, s.diagonal) == (24, 4, 2)


@pytest.mark.parametrize("field", ["batch", "heads_q", "heads_kv", "seq_q", "seq_kv", "head_dim"])
@pytest.mark.parametrize("value", [0, -1])
def test_sizes_below_one_are_refused_by_name(field: str, value: int) -> None:
    with pytest.raises(UsageError, match=f"^{field} must be at least 1, not {value}"):
        dataclasses.replace(SHAPE, **{field: value})


@pytest.mark.parametrize(("heads_q", "heads_kv"), [(8, 3), (2, 4), (1, 2)])
def test_query_heads_must_share_kv_heads_evenly(heads_q: int, heads_kv: int) -> None:
    with pytest.raises(UsageError, match=f"{heads_q} is not a multiple of {heads_kv}"):
        AttentionShape(1, heads_q, heads_kv, 16, 16, 64)


@pytest.mark.parametrize(("head_dim", "legal"), [(65, 64), (1, 8), (300, 256), (257, 256), (70, 72)])
def test_an_illegal_head_dim_is_told_the_nearest_legal_one(head_dim: int, legal: int) -> None:
    with pytest.raises(UsageError, match="head_dim must be a multiple of 8 up to 256") as caught:
        AttentionShape(1, 1, 1, 16, 16, head_dim)
    assert caught.value.hint == f"The nearest legal head_dim is {legal}."


@pytest.mark.parametrize("head_dim", [8, 40, 96, 256])
def test_legal_head_dims(head_dim: int) -> None:
    assert AttentionShape(1, 1, 1, 16, 16, head_dim).head_dim == head_dim


@pytest.mark.parametrize(
    ("sizes", "fault"),
    [
        ((48, 7), "block_n must be a multiple of 16 from 16 to 256, not 7"),
        ((0, 64), "block_m must be"),
        ((272, 64), "block_m must be"),
        ((64, 64, 3), "stages must be 1 or 2, not 3"),
        ((64, 64, 1, 3), "num_warps must be 1, 2, 4 or 8, not 3"),
    ],
)
def test_illegal_tiles(sizes: tuple[int, ...], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        Tile(*sizes)


def test_a_tile_reads_as_it_is_typed() -> None:
    assert str(Tile(128, 64, 2, 4)) == "128x64"


@pytest.mark.parametrize(("field", "value"), [("dtype", "fp8"), ("layout", "sbhd")])
def test_unknown_words_are_refused(field: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"^{field} must be one of .*, not '{value}'"):
        Case("flash2", SHAPE, **{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("dtype", "itemsize"), [("fp16", 2), ("bf16", 2), ("fp32", 4)])
def test_itemsize(dtype: str, itemsize: int) -> None:
    assert Case("flash2", SHAPE, dtype=dtype).itemsize == itemsize  # type: ignore[arg-type]


def test_the_case_id_stays_what_it_was() -> None:
    # Runs are compared by it, so it may not change between versions. The first 16 digits of the SHA-256 of
    # ["flash2", "fp16", "bhsd", "fwd", 0, 1, 1, 1, 1024, 1024, 64, false, [64, 64, 1, 4]]
    # by sha256sum.
    assert CASE.case_id == "007071bb51121e52"


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(CASE, impl="flash1"),
        dataclasses.replace(CASE, dtype="bf16"),
        dataclasses.replace(CASE, layout="bshd"),
        dataclasses.replace(CASE, seed=1),
        dataclasses.replace(CASE, tile=None),
        dataclasses.replace(CASE, tile=Tile(128, 64, 1, 4)),
        dataclasses.replace(CASE, tile=Tile(64, 128, 1, 4)),
        dataclasses.replace(CASE, tile=Tile(64, 64, 2, 4)),
        dataclasses.replace(CASE, tile=Tile(64, 64, 1, 8)),
        dataclasses.replace(CASE, shape=dataclasses.replace(SHAPE, batch=2)),
        dataclasses.replace(CASE, shape=dataclasses.replace(SHAPE, heads_q=2)),
        dataclasses.replace(CASE, shape=dataclasses.replace(SHAPE, heads_q=2, heads_kv=2)),
        dataclasses.replace(CASE, shape=dataclasses.replace(SHAPE, seq_q=512)),
        dataclasses.replace(CASE, shape=dataclasses.replace(SHAPE, seq_kv=512)),
        dataclasses.replace(CASE, shape=dataclasses.replace(SHAPE, head_dim=128)),
        dataclasses.replace(CASE, shape=dataclasses.replace(SHAPE, causal=True)),
    ],
    ids=repr,
)
def test_every_part_of_a_case_is_in_its_id(other: Case) -> None:
    assert other.case_id != CASE.case_id


def test_the_content_of_a_users_files_is_in_the_id_and_its_absence_is_not() -> None:
    assert dataclasses.replace(CASE, content="").case_id == CASE.case_id
    assert len({dataclasses.replace(CASE, content=content).case_id for content in ("", "a", "b")}) == 3


def test_equal_cases_have_equal_ids() -> None:
    assert dataclasses.replace(CASE).case_id == CASE.case_id


def test_cases_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        CASE.seed = 1  # type: ignore[misc]


def test_sizes_beyond_any_machine_are_refused() -> None:
    # 2^27 is the longest sequence; 2^31 - 1 CTAs fit a grid's x axis.
    assert AttentionShape(1, 1, 1, 2**27, 2**27, 64).seq_q == 2**27
    for shape in ((1, 1, 1, 2**27 + 1, 1, 64), (1, 1, 1, 1, 2**27 + 1, 64)):
        with pytest.raises(UsageError, match=r"at most 134217728, not 134217729"):
            AttentionShape(*shape)
    with pytest.raises(UsageError, match=r"batch · heads_q must be at most 2147483647, not 2147483648"):
        AttentionShape(2**16, 2**15, 1, 1, 1, 64)


def test_directions_are_cases_of_their_own_and_others_are_refused() -> None:
    shape = AttentionShape(1, 1, 1, 16, 16, 8)
    cases = [Case("flash2", shape, direction=direction) for direction in DIRECTIONS]
    assert len({case.case_id for case in cases}) == 3
    assert [(case.forward, case.backward) for case in cases] == [(True, False), (False, True), (True, True)]
    with pytest.raises(UsageError, match=r"direction must be one of fwd, bwd, fwd\+bwd, not 'both'"):
        Case("flash2", shape, direction="both")  # type: ignore[arg-type]


# --- packed batches --------------------------------------------------------------------------------------------------


def test_a_packed_batch_by_hand() -> None:
    batch = AttentionShape.packed([(2, 5), (0, 3), (4, 4), (3, 0)], 4, 2, 64, causal=True)
    assert (batch.batch, batch.seq_q, batch.seq_kv, batch.slices) == (4, 4, 5, 16)
    assert batch.tensor_sizes == (1, 9, 12)
    assert batch.cu_seqlens == ((0, 2, 2, 6, 9), (0, 5, 8, 12, 12))
    assert batch.seqlens_text == "2x5 0x3 4x4 3x0"
    assert batch.named == ("packed batch",)
    # 4 + 5, nothing, 1 + 2 + 3 + 4, nothing; for each of four heads.
    assert batch.total_visible_pairs == 4 * (9 + 10)
    # As the papers count: the square one as half of 4 · 4.
    assert batch.twice_nominal_pairs == 4 * 2 * (9 + 8)
    assert batch.sequence(2).visible_pairs == 10
    assert batch.sequence(3).diagonal == -3


@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 9), st.booleans(), st.none() | st.integers(0, 5))
def test_sequences_of_one_length_count_as_a_batch(
    batch: int, seq_q: int, seq_kv: int, causal: bool, left: int | None
) -> None:
    padded = AttentionShape(batch, 2, 1, seq_q, seq_kv, 8, causal, left)
    packed = AttentionShape.packed([(seq_q, seq_kv)] * batch, 2, 1, 8, causal, left)
    assert padded.total_visible_pairs == packed.total_visible_pairs == padded.slices * padded.visible_pairs
    assert padded.twice_nominal_pairs == packed.twice_nominal_pairs == 2 * padded.slices * padded.nominal_pairs
    assert Case("flash2", padded).case_id != Case("flash2", packed).case_id


def test_lengths_in_another_order_are_another_case() -> None:
    orders = ([(2, 5), (4, 4)], [(4, 4), (2, 5)])
    assert len({Case("flash2", AttentionShape.packed(order, 1, 1, 64)).case_id for order in orders}) == 2


@pytest.mark.parametrize(
    ("lengths", "sentence"),
    [
        ([], "A packed batch needs a sequence with queries."),
        ([(0, 5)], "A packed batch needs a sequence with queries."),
        ([(5, 0), (3, 0)], "A packed batch needs a sequence with keys."),
        ([(5, 5), (-1, 3)], "A sequence has at least 0 queries, not -1."),
        ([(1, 2**26), (1, 2**26), (1, 1)], "A packed batch must have at most 134217728 keys, not 134217729."),
    ],
)
def test_lengths_that_are_no_batch_are_refused(lengths: list[tuple[int, int]], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        AttentionShape.packed(lengths, 1, 1, 64)
    assert caught.value.message == sentence


def test_lengths_and_sizes_must_agree() -> None:
    with pytest.raises(UsageError, match=r"Lengths of 1 sequences, of up to 2 x 5, are no batch of 1 of up to 3 x 5"):
        AttentionShape(1, 1, 1, 3, 5, 64, seqlens=((2, 5),))
