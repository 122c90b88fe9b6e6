"""A mutation test of kernels: drop one barrier, wait, mask or predicate at a time, and see whether anything notices.

`operators.py` finds what can be dropped in a kernel's PTX, `bench.py` runs one mutant over the cases, `explain.py` says
of one that nothing noticed why that is, `run.py` goes through them all.
"""
