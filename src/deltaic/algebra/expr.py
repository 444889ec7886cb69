"""Scalar expressions: the user's own text with holes where columns stand.

Deltaic never rewrites a scalar expression. What Spark's parser accepts between two column
references is kept to the letter, so no function can change its meaning on the way through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from deltaic.algebra.quoting import quote
from deltaic.algebra.reasons import NotLowered, too_large

LONGEST = 100_000
"""Parts that an expression may have: a name that stands for another twice, and that for a third, doubles them."""


@dataclass(frozen=True)
class Col:
    """A reference to a column of the node below, by its unique name."""

    name: str


@dataclass(frozen=True)
class Expr:
    """Text and column references in the order they are written.

    `unstable` says that the text itself may give another value when it is evaluated again over
    the same rows (a float sum, a tie of row_number); what it inherits from columns is derived.
    """

    parts: tuple[str | Col, ...]
    unstable: bool = False

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("an expression cannot be empty")

    @cached_property
    def columns(self) -> frozenset[str]:
        return frozenset(part.name for part in self.parts if isinstance(part, Col))

    @property
    def column(self) -> str | None:
        """The name of the column if the expression is just that."""
        match self.parts:
            case (Col(name),):
                return name
        return None

    @cached_property
    def sql(self) -> str:
        return "".join(quote(part.name) if isinstance(part, Col) else part for part in self.parts)

    def substitute(self, by: Mapping[str, Expr]) -> Expr:
        """The same expression over the inputs of the columns in `by`."""
        if self.column is not None:
            return by.get(self.column, self)
        parts: list[str | Col] = []
        unstable = self.unstable
        for part in self.parts:
            replacement = by.get(part.name) if isinstance(part, Col) else None
            if replacement is None:
                parts.append(part)
            elif replacement.column is not None:
                parts.extend(replacement.parts)
            else:
                unstable = unstable or replacement.unstable
                parts.extend(("(", *replacement.parts, ")"))
        return _of_parts(parts, unstable)

    def __str__(self) -> str:
        return "".join(part.name if isinstance(part, Col) else part for part in self.parts)


@lru_cache(maxsize=100_000)
def col(name: str) -> Expr:
    return Expr((Col(name),))


def text(sql: str) -> Expr:
    return Expr((sql,))


def join_parts(*pieces: str | Expr) -> Expr:
    """An expression out of literal text and smaller expressions."""
    parts: list[str | Col] = []
    unstable = False
    for piece in pieces:
        if isinstance(piece, Expr):
            parts.extend(piece.parts)
            unstable = unstable or piece.unstable
        else:
            parts.append(piece)
    return _of_parts(parts, unstable)


def _of_parts(parts: list[str | Col], unstable: bool) -> Expr:
    if len(parts) > LONGEST:
        what = f"an expression of it has more than {LONGEST:,} parts, if the names in it are written out"
        raise NotLowered(too_large(what))
    return Expr(tuple(parts), unstable)


def conjunction(*terms: Expr) -> Expr | None:
    """All of the terms; None, which means TRUE, if there are none."""
    if not terms:
        return None
    if len(terms) == 1:
        return terms[0]
    pieces: list[str | Expr] = []
    for number, term in enumerate(terms):
        pieces.extend((" AND (" if number else "(", term, ")"))
    return join_parts(*pieces)


def null_safe_equal(left: Expr, right: Expr) -> Expr:
    return join_parts("(", left, ") <=> (", right, ")")
