"""One case step by step, from the emulator's events: ``fa-bench trace``.

The kernels that run are ours with a few lines added (`instrumentation.toml`), so that they leave m, l, the rescale
factor, S, P and O behind; with a bug, one change more (`bugs.toml`).
"""
