"""The models' tests share their walks over tiles (``tile_walks``)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
