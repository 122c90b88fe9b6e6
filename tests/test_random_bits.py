"""Philox against its authors' known answers; the mask against one pair at a time."""

from __future__ import annotations

import numpy as np
import pytest

from fa_bench.random_bits import drop_threshold, keep_mask, philox_4x32


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        # The known-answer vectors of Random123 (kat_vectors, philox4x32 with 10 rounds).
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_known_answers(
    counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]
) -> None:
    assert tuple(int(word) for word in philox_4x32(counter, key)) == expected  # type: ignore[arg-type]


def test_a_pair_has_its_word_wherever_the_rows_begin() -> None:
    seed, batch, head = (3 << 32) + 7, 2, 5
    mask = keep_mask(seed, batch, head, [10, 11, 300], 37, 0.3)
    for at, row in enumerate([10, 11, 300]):
        for column in range(37):
            # Column 16 a + 8 h + 2 t + b is word 2 h + b of group 4 a + t.
            a, rest = divmod(column, 16)
            h, rest = divmod(rest, 8)
            t, b = divmod(rest, 2)
            word = philox_4x32((4 * a + t, row, head, batch), (7, 3))[2 * h + b]
            assert mask[at, column] == (int(word) >= drop_threshold(0.3))


@pytest.mark.parametrize("dropout_p", [0.1, 0.5, 0.9])
def test_the_keep_rate_is_within_four_sigma_over_a_million_pairs(dropout_p: float) -> None:
    kept = int(keep_mask(0, 0, 0, np.arange(1000), 1000, dropout_p).sum())
    sigma = (1e6 * dropout_p * (1 - dropout_p)) ** 0.5
    assert abs(kept - 1e6 * (1 - dropout_p)) < 4 * sigma


def test_another_seed_head_batch_is_another_mask() -> None:
    masks = [keep_mask(seed, b, h, range(64), 64, 0.5) for seed, b, h in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]]
    assert all((one != other).mean() > 0.4 for k, one in enumerate(masks) for other in masks[:k])
    # A probability of 0 drops nothing.
    assert keep_mask(0, 0, 0, range(64), 64, 0.0).all()
