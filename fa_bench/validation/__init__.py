"""What others measured with hardware counters, beside what the emulator counts for the same case.

A source is a module with a function that runs its cases through a backend and returns a `Validation`; `sources.py`
lists them. Published figures come with where they stand; nothing here is fitted to them.
"""
