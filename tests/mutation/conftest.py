"""The small kernel of ``only_key.py`` as an implementation."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from only_key import PTX, TOML


@pytest.fixture
def own_kernel(tmp_path: Path) -> Path:
    """The kernel as a user's implementation, its TOML file."""
    (tmp_path / "only_key.ptx").write_text(PTX)
    path = tmp_path / "only_key.toml"
    path.write_text(TOML)
    return path
