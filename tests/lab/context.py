"""What the parts of the generator share while they write one view: decisions, names, relations in reach."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tests.lab.case import Column, Grade, Type, identifier
from tests.lab.choice import Choice


@dataclass(frozen=True)
class Query:
    """A query's text, the columns it gives, and a guess at its number of rows."""

    sql: str
    columns: tuple[Column, ...]
    size: float


@dataclass(frozen=True)
class Relation:
    """A name that FROM can read: a table, an earlier view or a CTE."""

    name: str
    columns: tuple[Column, ...]
    size: float


@dataclass(frozen=True)
class Ref:
    """A column in reach: `sql` where it is in scope, `outer` in a subquery (None: it has no name there)."""

    sql: str
    outer: str | None
    name: str
    type: Type
    grade: Grade


@dataclass(frozen=True)
class Expr:
    sql: str
    type: Type
    grade: Grade = Grade.EXACT


@dataclass
class Context:
    choice: Choice
    relations: list[Relation]
    write_query: Callable[["Context", int], Query]
    features: Counter[str] = field(default_factory=Counter)
    ctes: list[Relation] = field(default_factory=list)
    reads: Counter[str] = field(default_factory=Counter)
    budget: int = 7  # relations this view may still read before only base tables without joins are left
    first_number: int = 1  # of fresh names: a view's must not meet those of the view below it
    _numbers: Counter[str] = field(default_factory=Counter)

    def note(self, feature: str) -> None:
        self.features[feature] += 1

    def fresh(self, prefix: str) -> str:
        self._numbers[prefix] += 1
        return f"{prefix}{self._numbers[prefix] + self.first_number - 1}"

    def query(self, depth: int) -> Query:
        return self.write_query(self, depth)


def of_type(scope: Iterable[Ref], type_: Type, worst: Grade = Grade.ROUNDED) -> list[Ref]:
    return [ref for ref in scope if ref.type is type_ and ref.grade <= worst]


def keyable(scope: Iterable[Ref]) -> list[Ref]:
    """The columns that may be keys: whose values come out the same however they are computed."""
    return [ref for ref in scope if ref.grade <= Grade.STABLE]


def unique_names(columns: Sequence[Column] | Sequence[Ref]) -> bool:
    return len({c.name.lower() for c in columns}) == len(columns)


def select_item(sql: str, name: str) -> str:
    return f"{sql} AS {identifier(name)}"
