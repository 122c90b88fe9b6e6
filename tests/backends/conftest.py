"""Fixtures of the backends' tests, and their fake backend for a child, which the child imports too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fa_bench.model import gpus
from fa_bench.model.gpu import Gpu

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def any_gpu() -> Gpu:
    """A target; what these tests say does not depend on which."""
    return gpus.get("a100-sxm-80")
