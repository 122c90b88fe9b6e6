"""Statements about FlashAttention that are often made, each tested by numbers that are computed when it is asked for.

A claim is a statement in our own words (``texts.toml``, in English and Chinese) and a function that computes figures
and says which bounds the statement puts on them (:mod:`fa_bench.claims.result`). The verdict follows from whether the
figures keep them. Formulas that a statement contains are parameters of its function: hand in the right one, and the
verdict turns. :mod:`fa_bench.claims.registry` lists all claims.
"""
