"""Claims (n) and (o)."""

from __future__ import annotations

import pytest
from judgements import passed, values

from fa_bench.claims import hardware


def test_what_binds_before_and_after() -> None:
    """4·N²·d FLOPs over (4·N² + 4·N·d) · 2 B: 2·d / (4 + 4·d/N) = 128 / 4.0625 = 31.5; over 8·N·d B: N/2 = 2048.

    Ridges: 312 / 1.555 = 200.6, 312 / 2.039 = 153.0, 989.4 / 3.35 = 295.3 FLOP/B.
    """
    judgement = hardware.bound_by()
    found = values(judgement)
    assert found["standard"] == pytest.approx(31.5, rel=0.03)
    assert found["flash2_compulsory"] == 2048
    assert found["flash2"] > 2048  # a part of O stays in L2
    assert [found[f"ridge_{name}"] for name in ("a100_sxm_40", "a100_sxm_80", "h100_sxm")] == pytest.approx(
        [200.6, 153.0, 295.3], abs=0.1
    )
    assert judgement.verdict == "does-not-hold"


def test_five_times_the_flops_would_make_standard_attention_compute_bound() -> None:
    """31.5 · 5 = 158 > 153; and a twentieth of them, 2725 / 20 = 136, would leave memory to bind FlashAttention."""
    assert passed(hardware.bound_by(flops_scale=5)) == {"before"}
    assert passed(hardware.bound_by(flops_scale=1 / 20)) == {"after"}


def test_on_chip_memory_of_one_sm_and_of_all() -> None:
    """128 B · 1410 MHz = 180.48 GB/s; times 108 19.49 TB/s; over 1555 and 2039 GB/s 12.53 and 9.56.

    40 GiB / (108 · 192 KiB) = 41,943,040 / 20,736 = 2022.7; of one SM 218,453; of 80 GiB twice that.
    """
    judgement = hardware.on_chip()
    found = values(judgement)
    assert found["rate_one"] == pytest.approx(180.48e9)
    assert found["rate_all"] == pytest.approx(19.49e12, rel=1e-3)
    assert (found["bandwidth_all_40"], found["bandwidth_all_80"]) == pytest.approx((12.53, 9.56), abs=0.01)
    assert (found["capacity_all_40"], found["capacity_all_80"]) == pytest.approx((2022.7, 4045.4), abs=0.1)
    assert (found["capacity_one_40"], found["capacity_one_80"]) == pytest.approx((218_453, 436_907), abs=1)
    assert passed(judgement) == {"bandwidth_all_40"}


def test_other_factors_turn_the_readings() -> None:
    assert passed(hardware.on_chip(bandwidth=9.5)) == {"bandwidth_all_40", "bandwidth_all_80"}
    assert passed(hardware.on_chip(bandwidth=13, capacity=2000)) == {"capacity_all_40"}
    assert hardware.on_chip(bandwidth=20, capacity=50_000).verdict == "does-not-hold"
