"""The CPU that the code is made for."""

from __future__ import annotations

import functools

import llvmlite.binding as llvm


@functools.cache
def cpu() -> tuple[str, str]:
    """LLVM's name of this CPU and its features, as a target machine takes them."""
    features = llvm.get_host_cpu_features()
    if llvm.get_process_triple().startswith("x86_64"):
        # Vectors of 32 lanes want the widest registers.
        features["prefer-256-bit"] = False
    return llvm.get_host_cpu_name(), features.flatten()


def has(feature: str) -> bool:
    """Whether the CPU has ``feature``, by LLVM's name (``avx512f``)."""
    return f"+{feature}" in cpu()[1].split(",")


def has_half_arithmetic() -> bool:
    """Whether the CPU adds and multiplies f16 vectors itself; all others go through f32."""
    return has("avx512fp16") or has("fullfp16")
