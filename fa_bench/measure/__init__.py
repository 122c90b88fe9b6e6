"""Measuring: when to stop, what to report, what the machine was doing meanwhile. Backends use it; it uses none."""
