"""Fixtures of the backends' tests."""

from __future__ import annotations

import pytest

from fa_bench.model import gpus
from fa_bench.model.gpu import Gpu


@pytest.fixture
def any_gpu() -> Gpu:
    """A target; what these tests say does not depend on which."""
    return gpus.get("a100-sxm-80")
