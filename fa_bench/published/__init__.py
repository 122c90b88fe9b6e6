"""Times and rates that others published, as cases of ours: what ran, on which GPU, and how long it took.

The figures are CSV files in ``fa_bench/data``, each row with where it stands. Nothing here predicts or compares, and no
row is judged by what a model says of it: why one can't be used stands in its ``left_out`` column and follows from the
source alone.
"""

from fa_bench.published.points import Incomplete, Point, held_out, incomplete, points

__all__ = ["Incomplete", "Point", "held_out", "incomplete", "points"]
