"""Names in reach of an expression, and what Spark would make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from sqlglot import exp

from deltaic.algebra.nodes import Field


@dataclass(frozen=True)
class SourceInfo:
    """A table the catalog knows: the key that names it in plans, and its columns."""

    key: str
    qualifier: tuple[str, ...]
    columns: tuple[Field, ...]


class Catalog(Protocol):
    """What the lowering asks of the world. Spark answers in a run, recorded replies in a test."""

    def table(self, parts: tuple[str, ...]) -> SourceInfo | None:
        """The table of that name, or None."""

    def types(self, sql: str) -> tuple[Field, ...]:
        """Names and types that Spark's analyzer gives a query."""

    def is_builtin(self, function: str) -> bool:
        """Whether Spark itself defines the function."""


@dataclass(frozen=True)
class Entry:
    """One column in reach: its visible name, what may qualify it, and the algebra's column."""

    name: str
    qualifier: tuple[str, ...]
    column: str
    bare: bool = True
    """False for the side of a USING column that only its qualifier reaches."""


@dataclass(frozen=True)
class Resolved:
    column: str
    used: int
    """How many of the name's parts are the column; the rest are fields of a struct."""
    level: int
    """0 in this query, 1 in the query around it, and so on."""


@dataclass(frozen=True)
class Scope:
    entries: tuple[Entry, ...] = ()
    parent: Scope | None = None

    def resolve(self, parts: Sequence[str]) -> Resolved | None:
        """The column a dotted name means, or None. Qualified readings come first, as in Spark."""
        for length in range(min(len(parts), 4), 0, -1):
            found = self._matching(parts[: length - 1], parts[length - 1])
            if found:
                return Resolved(found[0].column, length, 0)
        if self.parent is None:
            return None
        outer = self.parent.resolve(parts)
        return outer and Resolved(outer.column, outer.used, outer.level + 1)

    @cached_property
    def _named(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        for entry in self.entries:
            found.setdefault(entry.name.lower(), []).append(entry)
        return found

    def _matching(self, qualifier: Sequence[str], name: str) -> list[Entry]:
        named = self._named.get(name.lower(), [])
        return [entry for entry in named if (entry.bare if not qualifier else _ends(entry.qualifier, qualifier))]

    def star(self, qualifier: Sequence[str]) -> list[Entry]:
        if not qualifier:
            return [entry for entry in self.entries if entry.bare]
        return [entry for entry in self.entries if _ends(entry.qualifier, qualifier)]


def same(left: str, right: str) -> bool:
    return left.lower() == right.lower()


def _ends(qualifier: tuple[str, ...], wanted: Sequence[str]) -> bool:
    tail = qualifier[-len(wanted) :]
    return len(tail) == len(wanted) and all(same(a, b) for a, b in zip(tail, wanted, strict=True))


@dataclass(frozen=True)
class Derived:
    """A predicate that a recursive expression defines, as queries see it."""

    number: int
    name: str
    names: tuple[str, ...]
    types: tuple[str, ...]


@dataclass(frozen=True)
class Cte:
    tree: exp.Expr
    columns: tuple[str, ...]
    ctes: Ctes
    derived: Derived | None = None


@dataclass(frozen=True)
class Ctes:
    """The common table expressions in reach; each reference is lowered anew."""

    known: dict[str, Cte] = field(default_factory=dict)

    def get(self, name: str) -> Cte | None:
        return self.known.get(name.lower())

    def having(self, name: str, cte: Cte) -> Ctes:
        return Ctes({**self.known, name.lower(): cte})
