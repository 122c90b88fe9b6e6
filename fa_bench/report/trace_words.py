"""What the table and the page of a trace say in the same words."""

from __future__ import annotations

from typing import Final

from fa_bench.tracing.result import Comparison, Product, Step

#: In the order in which an algorithm meets them.
TENSORS: Final[tuple[str, ...]] = ("Q", "K", "V", "S", "P", "m", "l", "O_acc", "O", "LSE")

_DOING: Final[dict[tuple[Product, ...], str]] = {
    ("S",): "S = Q·Kᵀ",
    ("state", "P"): "P = softmax(S)",
    ("O",): "O += P·V",
    ("state", "P", "O"): "online softmax, O += P·V",
    ("S", "state", "P", "O"): "S = Q·Kᵀ, online softmax, O += P·V",
}


def doing(step: Step) -> str:
    """What a step does, in a few words."""
    if step.computed:
        return _DOING.get(step.computed, ", ".join(step.computed))
    if step.kernel == "flash1_init":
        return "O = 0, l = 0, m = −∞"
    return "load" if any(touch.op == "read" for touch in step.touches) else "store"


def title(comparison: Comparison) -> str:
    """The case in one line: length, facts, tile, and the bug."""
    case = comparison.right[0].case
    bug = f", {comparison.mistake.name}" if comparison.mistake is not None else ""
    shape, mask = case.shape, "causal" if case.shape.causal else "no mask"
    return f"{shape.seq_q} queries and keys, D={shape.head_dim}, {case.dtype}, {mask}, tiles {case.tile}{bug}"


def dedented(diff: str) -> list[str]:
    """Lines of a unified diff without the indentation that all lines of code share."""
    lines = diff.splitlines()
    code = [line for line in lines if line[:1] in " +-" and line[:3] not in ("---", "+++") and line[1:].strip()]
    code = [line for line in code if not line[1:].startswith("#")]
    shared = min((len(line[1:]) - len(line[1:].lstrip()) for line in code), default=0)
    return [line[:1] + line[1:].removeprefix(" " * shared) if line[:1] in " +-" else line for line in lines]
