"""A run's files as pandas data frames, for plots and comparisons of one's own.

pandas is imported when a frame is made, not before.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fa_bench.records import RECORDS, TRAFFIC, CsvTable

if TYPE_CHECKING:
    import pandas as pd

#: pandas types that know "not known": an empty cell is neither 0 nor NaN.
_NULLABLE: Final[dict[type, str]] = {int: "Int64", float: "Float64", bool: "boolean", str: "string"}


def records(run: str | os.PathLike[str]) -> pd.DataFrame:
    """``records.csv`` of a run: one row per case.

    Parameters
    ----------
    run : path
        The run's folder, or the file itself.

    Returns
    -------
    DataFrame
        The columns of the schema in order, in nullable types; bytes are bytes and times ms, as their names say.

    Raises
    ------
    UsageError
        If the file cannot be read or has other columns.
    """
    return _frame(RECORDS, _file(run, "records.csv"))


def traffic(run: str | os.PathLike[str]) -> pd.DataFrame:
    """``traffic.csv`` of a run: one row per case, kernel, tensor, direction, level and source. See :func:`records`."""
    return _frame(TRAFFIC, _file(run, "traffic.csv"))


def _file(run: str | os.PathLike[str], name: str) -> Path:
    path = Path(run)
    return path / name if path.is_dir() else path


def _frame(table: CsvTable[Any], path: Path) -> pd.DataFrame:
    import pandas as pd

    rows = table.read(path).rows
    return pd.DataFrame(
        {
            name: pd.array([getattr(row, name) for row in rows], dtype=_NULLABLE[kind])
            for name, kind in table.kinds.items()
        }
    )
