"""Arithmetic in a kernel's TOML file: read once, checked against the names it may use, evaluated over a case.

The grammar is a part of Python's: numbers, names, ``+ - * / // %``, comparisons, ``and or not``, ``a if c else b``,
``min``, ``max`` and ``ceil_div``. The tree is walked here, never handed to Python's own ``eval``, so an expression can
reach nothing but the numbers that it is given.
"""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from fa_bench.errors import nearest

Number: TypeAlias = int | float

#: Longer text is no formula of a launch, and deep nesting would exhaust the parser's stack.
MAX_LENGTH: Final = 500
#: Whole numbers stay inside 64 bits, as in the kernel that they are for.
_LIMIT: Final = 2**63

_GRAMMAR: Final = (
    "An expression has numbers, fields, + - * / // %, comparisons, and, or, not, 'a if c else b', min, max, ceil_div."
)


class ExpressionError(ValueError):
    """What is wrong with an expression: a clause, and a next step where there is one."""

    def __init__(self, clause: str, hint: str = "") -> None:
        super().__init__(clause)
        self.clause = clause
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression.

    Parameters
    ----------
    text : str
        As it was written.
    tree : ast.expr
    """

    text: str
    tree: ast.expr

    def __call__(self, fields: Mapping[str, Number]) -> Number:
        """The value over ``fields``; comparisons give 1 or 0.

        Raises
        ------
        ExpressionError
            For a division by zero, and where a number leaves 64 bits.
        """
        try:
            return _value(self.tree, fields)
        except ZeroDivisionError:
            raise ExpressionError(f"divides by zero in {self.text!r}") from None
        except OverflowError:
            raise ExpressionError(f"leaves 64 bits in {self.text!r}") from None


def parse(text: str | Number, names: Collection[str]) -> Expression:
    """Read an expression that may use ``names``.

    Raises
    ------
    ExpressionError
        If it is no expression, uses anything beyond the grammar, or a name that is not among ``names``.

    Examples
    --------
    >>> parse("ceil_div(seq_q, 64)", {"seq_q"})({"seq_q": 100})
    2
    """
    written = str(int(text)) if isinstance(text, bool) else str(text)
    if len(written) > MAX_LENGTH:
        raise ExpressionError(f"is longer than {MAX_LENGTH} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python warns of what it will refuse one day: 1if x else 2
            tree = ast.parse(written.strip(), mode="eval").body
        _check(tree, names)
    except ExpressionError:
        raise
    except OverflowError:
        raise ExpressionError(f"holds a number that leaves 64 bits in {written!r}") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"is no expression: {written!r}", _GRAMMAR) from None
    return Expression(written, tree)


def _ceil_div(numerator: Number, denominator: Number) -> Number:
    return -(-numerator // denominator)


_BINARY: Final[Mapping[type[ast.operator], Callable[[Number, Number], Number]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Number, Number], bool]]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_UNARY: Final[Mapping[type[ast.unaryop], Callable[[Number], Number]]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Not: lambda value: int(not value),
}
#: name -> (function, least and most arguments)
_FUNCTIONS: Final[Mapping[str, tuple[Callable[..., Number], int, int]]] = {
    "min": (min, 2, 16),
    "max": (max, 2, 16),
    "ceil_div": (_ceil_div, 2, 2),
}


def _check(node: ast.expr, names: Collection[str]) -> None:
    """Raise unless ``node`` and all below it belong to the grammar."""
    match node:
        case ast.Constant(value=int() | float() as value):
            _bounded(value)
        case ast.Name(id=name):
            if name not in names:
                raise ExpressionError(f"uses {name!r}, which is no field", nearest(name, sorted(names)))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            _check(operand, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            _check(left, names)
            _check(right, names)
        case ast.BoolOp(values=values):
            for part in values:
                _check(part, names)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARISONS for op in ops):
            for part in (left, *others):
                _check(part, names)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            for part in (test, body, orelse):
                _check(part, names)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            _, least, most = _FUNCTIONS[name]
            if not least <= len(args) <= most:
                count = str(least) if least == most else f"{least} to {most}"
                raise ExpressionError(f"gives {name} {len(args)} arguments, and it takes {count}")
            for part in args:
                _check(part, names)
        case _:
            raise ExpressionError(f"holds {ast.unparse(node)!r}, which is no arithmetic", _GRAMMAR)


def _value(node: ast.expr, fields: Mapping[str, Number]) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value):
            return int(value) if isinstance(value, bool) else value
        case ast.Name(id=name):
            return fields[name]
        case ast.UnaryOp(op=op, operand=operand):
            return _UNARY[type(op)](_value(operand, fields))
        case ast.BinOp(left=left, op=op, right=right):
            return _bounded(_BINARY[type(op)](_value(left, fields), _value(right, fields)))
        case ast.BoolOp(op=op, values=values):
            wanted = isinstance(op, ast.Or)
            return int(wanted if any(bool(_value(value, fields)) is wanted for value in values) else not wanted)
        case ast.Compare(left=left, ops=ops, comparators=others):
            return _compare(_value(left, fields), ops, others, fields)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, fields) else orelse, fields)
        case ast.Call(func=ast.Name(id=name), args=args):
            return _bounded(_FUNCTIONS[name][0](*(_value(value, fields) for value in args)))
    raise AssertionError(f"{ast.dump(node)} was not checked")


def _compare(left: Number, ops: list[ast.cmpop], others: list[ast.expr], fields: Mapping[str, Number]) -> Number:
    for op, other in zip(ops, others, strict=True):
        right = _value(other, fields)
        if not _COMPARISONS[type(op)](left, right):
            return 0
        left = right
    return 1


def _bounded(value: Number) -> Number:
    """``value``, or an OverflowError where it is no number that a kernel could be given."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise OverflowError
    elif not -_LIMIT <= value < _LIMIT:
        raise OverflowError
    return value
