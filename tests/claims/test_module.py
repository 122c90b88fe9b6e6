"""Claim (j): each defect alone; the parts that need PyTorch in tests of their own."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from judgements import passed, values

from fa_bench.claims import module, module_torch

#: What the module would have to be.
MENDED: dict[str, Any] = {
    "product": module.matrix_product,
    "hidden": module.offset_mask,
    "skip": module.row_skip,
    "accumulator": np.float32,
    "guarded": True,
    "in_place": False,
}


@pytest.fixture(autouse=True, scope="module")
def once() -> Iterator[None]:
    """What autograd saves and computes depends on ``in_place`` alone: made once for all corrections."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "overflowing", functools.cache(module.overflowing))
        for name in ("autograd_figures", "blocked_error"):
            patch.setattr(module_torch, name, functools.cache(getattr(module_torch, name)))
        yield


def test_the_shapes_of_the_printed_product() -> None:
    """P [G, R, C, 1] · V [G, 1, C, d] is [G, R, C, d], which O [G, R, d] has no place for."""
    assert not module.runs(module.printed_product, 16, 128, 64, 64)
    assert not module.runs(module.printed_product, 64, 128, 64, 64)  # it can be added, and has four axes
    assert module.runs(module.printed_product, 1, 128, 64, 1)  # blocks of one row of one slice, which nobody has
    assert module.runs(module.matrix_product, 16, 128, 64, 64)
    p, v = np.ones((2, 3, 5)), np.ones((2, 5, 7))
    assert module.printed_product(p, v).shape == (2, 3, 5, 7)
    assert module.matrix_product(p, v).shape == (2, 3, 7)


def test_the_printed_mask_ignores_where_the_block_stands() -> None:
    """Queries 4 … 7 see keys 0 … 3 whole, and 2 … 5 up to their own."""
    assert module.printed_mask(4, 0, 4, 4).sum() == 6  # 3 + 2 + 1 above the diagonal, all of which are visible
    assert module.offset_mask(4, 0, 4, 4).sum() == 0
    # Query 4 is hidden from key 5 of 2 … 5 alone.
    assert module.offset_mask(4, 2, 4, 4).tolist()[0] == [False, False, False, True]
    assert module.offset_mask(4, 2, 4, 4).sum() == 1


def test_the_skip_by_index_drops_visible_blocks_of_other_sizes() -> None:
    """64 queries by 32 keys: block (0, 1) has keys 32 … 63, which queries 32 … 63 see."""
    assert module.printed_skip(0, 1, 0, 32, 64)
    assert not module.row_skip(0, 1, 0, 32, 64)
    assert module.row_skip(0, 2, 0, 64, 64)


def test_the_module_does_not_hold_in_any_respect() -> None:
    pytest.importorskip("torch")
    judgement = module.printed_module()
    assert judgement.verdict == "does-not-hold"
    found = values(judgement)
    assert found["mask"] > 0.1
    assert found["skip_unequal"] > 0.1
    assert found["skip_equal"] < 1e-13  # equal blocks are skipped rightly
    assert found["overflow"] == 1
    assert found["lost"] == 0.5
    assert found["overflow_fp32"] == found["lost_guarded"] == 0


@pytest.mark.parametrize(
    ("name", "reading"),
    [
        ("product", "product"),
        ("hidden", "mask"),
        ("skip", "skip"),
        ("accumulator", "overflow"),
        ("guarded", "lost"),
        ("in_place", "gradient"),
    ],
)
def test_each_correction_turns_its_reading(name: str, reading: str) -> None:
    pytest.importorskip("torch")
    assert passed(module.printed_module(**{name: MENDED[name]})) == {reading}


def test_with_all_corrections_it_holds() -> None:
    pytest.importorskip("torch")
    assert module.printed_module(**MENDED).verdict == "holds"


def test_out_of_place_keeps_the_matrix_and_ours_does_not() -> None:
    """Out of place, autograd keeps S and P of every block: N² · 4 B each. torch-flash-blocked keeps Q, K, V, O, LSE."""
    pytest.importorskip("torch")
    seq, d = 256, module_torch.HEAD_DIM
    assert module_torch.saved_bytes(seq, blocked=False) > seq**2 * 4
    assert module_torch.saved_bytes(seq, blocked=True) == 4 * seq * d * 4 + seq * 4
    found = values(module.printed_module())
    assert found["saved"] > 1.8
    assert found["saved_blocked"] == pytest.approx(1, abs=0.01)
    assert max(found["blocked_o"], found["blocked_gradients"]) < 1e-5


def test_without_torch_the_rest_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "torch":
            raise ImportError(name)
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    for name in ("autograd_figures", "blocked_error"):  # anew, not what was made with it
        monkeypatch.setattr(module_torch, name, getattr(module_torch, name).__wrapped__)
    judgement = module.printed_module()
    assert judgement.lacking == ("torch",)
    assert judgement.verdict == "does-not-hold"
    assert {check.name for check in judgement.checks} == {"product", "mask", "skip", "overflow", "lost"}
