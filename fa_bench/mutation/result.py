"""What a mutation test found: mutants, and what caught each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["barrier", "wait", "mask", "predicate"]
KINDS: Final[tuple[Kind, ...]] = ("barrier", "wait", "mask", "predicate")

#: What caught a mutant: a finding of the checks; a fault that ends any launch, such as an access out of bounds or a
#: deadlock; the output against fp64; the bytes against the model. Or nothing did: ``missed``. Not every change has an
#: effect: where the output is the same to the bit, and the traffic to the request, more instructions may be all that a
#: mutant costs (``work``), or nothing (``none``).
Verdict = Literal["checks", "fault", "result", "bytes", "missed", "work", "none"]
CAUGHT: Final[tuple[Verdict, ...]] = ("checks", "fault", "result", "bytes")
VERDICTS: Final[tuple[Verdict, ...]] = (*CAUGHT, "missed", "work", "none")


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the characters from ``start`` to ``end`` of a PTX text."""

    start: int
    end: int
    text: str

    def applied(self, ptx: str) -> str:
        """The text with the replacement."""
        return ptx[: self.start] + self.text + ptx[self.end :]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change to one instruction of a kernel.

    Parameters
    ----------
    kind : Kind
    action : str
        What is done: ``dropped``, ``always``, ``never taken``, ``min without its second operand`` …
    instruction : str
        As it stands in the PTX.
    line : int
        Its line there.
    source : str
        Where that is from, with where it was inlined; empty if the PTX does not say.
    edit : Edit
    probe : Edit or None
        Makes a kernel that traps where this mutant would do something else; None where no single value decides that.
    copies : int
        Instructions that the compiler made of the same statement, this one included.
    """

    kind: Kind
    action: str
    instruction: str
    line: int
    source: str
    edit: Edit
    probe: Edit | None = None
    copies: int = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant.

    Parameters
    ----------
    kernel : str
        Its entry.
    build : str
        What tells this compilation of the kernel from the others that were mutated, such as ``CAUSAL=1 STAGES=2``.
    mutant : Mutant
    verdict : Verdict
    finding : str
        In one or two words: ``race``, ``never written``, ``out of bounds``, ``wrong O``; empty if nothing caught it.
    sentence : str
        What caught it in full, or why nothing did.
    case : str
        The first case that caught it; empty if none did.
    """

    kernel: str
    build: str
    mutant: Mutant
    verdict: Verdict
    finding: str
    sentence: str
    case: str = ""

    @property
    def caught(self) -> bool:
        """Whether something noticed."""
        return self.verdict in CAUGHT


@dataclass(frozen=True, slots=True)
class MutationTest:
    """Mutants of the kernels of some implementations, and the cases that they ran on.

    Parameters
    ----------
    cases : tuple of str
    outcomes : tuple of Outcome
    checks : bool
        Whether the emulator's checks looked.
    total : int
        Mutants that there are; more than outcomes where a limit was given, or the test was interrupted.
    interrupted : bool
    """

    cases: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    checks: bool
    total: int
    interrupted: bool = False

    @property
    def missed(self) -> Sequence[Outcome]:
        """Mutants that changed something and were not caught."""
        return [outcome for outcome in self.outcomes if outcome.verdict == "missed"]
