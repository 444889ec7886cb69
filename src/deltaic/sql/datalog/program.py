"""Datalog programs as values: declarations, and clauses of atoms, comparisons and aggregates, each with its place.

What is short for something else is written out here: a clause has one head and no alternatives, and an aggregate stands
by itself and is given to a variable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from deltaic.errors import Position


@dataclass(frozen=True)
class Variable:
    name: str
    at: Position

    @property
    def is_own(self) -> bool:
        """Whether the program itself names it: no name that can be written has such a sign."""
        return not self.name.startswith("@")


@dataclass(frozen=True)
class Anonymous:
    """`_`: some value."""

    at: Position


@dataclass(frozen=True)
class Constant:
    """`sql` is how Spark writes it."""

    sql: str
    at: Position

    @property
    def is_null(self) -> bool:
        return self.sql == "NULL"


@dataclass(frozen=True)
class Call:
    name: str
    arguments: tuple[Expr, ...]
    at: Position


@dataclass(frozen=True)
class Operation:
    """Arithmetic, from left to right: operators that bind alike, between their operands; or signs before one."""

    operators: tuple[str, ...]
    operands: tuple[Expr, ...]
    at: Position


Expr: TypeAlias = Variable | Anonymous | Constant | Call | Operation


@dataclass(frozen=True)
class Atom:
    name: str
    arguments: tuple[Expr, ...]
    at: Position

    @property
    def key(self) -> str:
        """Names of tables ignore case in Spark, and so do predicates."""
        return self.name.lower()


@dataclass(frozen=True)
class Not:
    atom: Atom
    at: Position


@dataclass(frozen=True)
class Comparison:
    operator: str
    left: Expr
    right: Expr
    at: Position


@dataclass(frozen=True)
class Aggregate:
    """`result` = `function` of `value` over what `bodies` find, for each value of `groups`; None: those variables of
    the bodies that also occur outside of them.

    Several bodies find the different values of those variables that all of them bind."""

    result: Expr
    function: str
    value: Expr | None
    bodies: tuple[Body, ...]
    groups: tuple[Variable, ...] | None
    at: Position


Literal: TypeAlias = Atom | Not | Comparison | Aggregate
Body: TypeAlias = tuple[Literal, ...]


@dataclass(frozen=True)
class Clause:
    """A fact, if it has no body. `alternative`: which one of a rule that has several it is, counted from 1."""

    head: Atom
    body: Body
    text: str
    alternative: int | None = None

    @property
    def at(self) -> Position:
        return self.head.at

    @property
    def told(self) -> str:
        return f"{f'alternative {self.alternative} of ' if self.alternative else ''}the rule {self.text}"


@dataclass(frozen=True)
class Declaration:
    """Columns with their types, as Spark names them."""

    name: str
    columns: tuple[tuple[str, str], ...]
    at: Position


@dataclass(frozen=True)
class Named:
    """What a directive names."""

    name: str
    at: Position


@dataclass(frozen=True)
class Program:
    clauses: tuple[Clause, ...]
    declarations: tuple[Declaration, ...]
    inputs: tuple[Named, ...]
    outputs: tuple[Named, ...]


def variables(*expressions: Expr | None) -> Iterator[Variable]:
    for expression in expressions:
        match expression:
            case Variable():
                yield expression
            case Call():
                yield from variables(*expression.arguments)
            case Operation():
                yield from variables(*expression.operands)
