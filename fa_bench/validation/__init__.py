"""What others published, beside what is predicted and counted here for the same case.

A source is a module with a function that returns a `Validation`; `sources.py` lists them. What it needs is handed to
it: a backend that counts, or what predicts a time. Published figures come with where they stand. Nothing here is fitted
to them; the constants of predicted times are, by ``scripts/fit_prediction.py``.
"""
