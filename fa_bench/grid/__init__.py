"""Predictions for a grid of cases at a time: what ``io-model --no-measure`` says of a million of them in seconds.

A sweep plans and predicts case by case, some milliseconds each. Here cases that differ in sizes alone (batch,
heads and lengths) are one `Case` whose sizes are int64 arrays with an element for each of them. The formulas are those
of `fa_bench.algorithms` and `fa_bench.model`, called once for all; there are no others (:mod:`fa_bench.sizes`).

The interface:

* :func:`fa_bench.grid.plan.groups` turns a `SweepRequest` into groups of cases that are planned alike. It plans one
  case of each group by :func:`fa_bench.sweep.plan.plan`: what a tile, a refusal and its reason depend on is the same
  for all of them, but for the number of CTAs.
* :func:`fa_bench.grid.predict.blocks` predicts the groups in blocks of at most `BLOCK_CASES` cases: columns named as in
  ``records.csv``, an array where the cases differ and a single value where they are alike. A block is all that is in
  memory at a time.

Results are those of each case alone, to the byte. A case whose counts might not fit 64 bits, or whose launch exceeds a
grid, is predicted alone, in Python's integers, and so are packed batches and kernels of the user's.

The room must not know tables and files (columns are handed to ``report/``), backends, and how formulas are made: a
formula that is no formula of arrays is mended where it stands.
"""
