"""Relational nodes: frozen, and impossible to build wrong.

Every column in a tree has a name of its own, so an expression never needs a qualifier and two
subtrees can be joined in any order. A node's schema is derived from its inputs, never passed in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import ClassVar, Union

from deltaic.algebra.expr import Expr

RESERVED = "__deltaic_"
"""Names that begin with it are Deltaic's own."""

WEIGHT = "__deltaic_d"
"""The signed count that every row of a delta carries."""

SHOWN = "__deltaic_shown"
"""In the table of a view that stores more than it shows (groups that HAVING hides, sets and bags inside of it,
predicates): whether a reader sees the row."""


@dataclass(frozen=True)
class Field:
    name: str
    type: str
    nullable: bool = True


WEIGHT_FIELD = Field(WEIGHT, "bigint", False)


class State(Enum):
    """Which of a source's states a scan reads."""

    NEW = "new"
    OLD = "old"
    CHANGE = "change"


class JoinKind(Enum):
    INNER = "INNER"
    LEFT = "LEFT OUTER"
    FULL = "FULL OUTER"
    SEMI = "LEFT SEMI"
    ANTI = "LEFT ANTI"


@dataclass(frozen=True)
class Call:
    """An aggregate call taken apart: `function([DISTINCT] arguments) FILTER (WHERE where)`, over its input."""

    function: str
    arguments: tuple[Expr, ...]
    types: tuple[str, ...]
    """Of the arguments, as Spark gives them."""
    where: Expr | None = None
    distinct: bool = False
    """Whether equal values count once."""


@dataclass(frozen=True)
class Item:
    """An output column: its name, how it is computed, and the type Spark gave it.

    An aggregate also has its `call`, unless it is of a form that is not taken apart."""

    name: str
    expr: Expr
    type: str
    nullable: bool = True
    call: Call | None = None

    @cached_property
    def field(self) -> Field:
        return Field(self.name, self.type, self.nullable)


class Operator(ABC):
    """What all nodes share: derived columns, a check at construction, and a hash that is computed once.

    Rules remember what they made of a node by the node itself, at every level of a tree: without the hashes of what is
    below it, each time one is looked up would be a walk through all of its tree."""

    __match_args__: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls) -> None:
        type.__setattr__(cls, "__hash__", Operator.__hash__)  # a dataclass leaves a class that it has

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in self.__match_args__)))

    @property
    @abstractmethod
    def schema(self) -> tuple[Field, ...]: ...

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.schema)

    @cached_property
    def column_set(self) -> frozenset[str]:
        return frozenset(self.columns)

    @cached_property
    def fields(self) -> dict[str, Field]:
        return {field.name: field for field in self.schema}

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    def _check_unique(self) -> None:
        if len(self.column_set) != len(self.columns):
            raise ValueError(f"{type(self).__name__} has a column twice: {', '.join(self.columns)}")


def _check_refs(node: Operator, expr: Expr | None, *sources: Operator) -> None:
    if expr is None:
        return
    missing = expr.columns.difference(*(source.column_set for source in sources))
    if missing:
        raise ValueError(f"{type(node).__name__} refers to {sorted(missing)}, which its input does not have")


@dataclass(frozen=True)
class ScanColumn:
    field: Field
    origin: str
    """The column's name in the source."""


@dataclass(frozen=True)
class Near:
    """Only rows are wanted whose `column`, of the source, is among the values of a column of an earlier binding."""

    column: str
    binding: str
    value: str
    nulls: bool = False
    """Whether rows are wanted, too, whose column is NULL."""


@dataclass(frozen=True)
class Scan(Operator):
    """The used columns of one source in one state; a change also has its weight.

    A scan may give all rows where it is `near` some: it stands where a join drops the others."""

    source: str
    scanned: tuple[ScanColumn, ...]
    state: State = State.NEW
    near: Near | None = None

    def __post_init__(self) -> None:
        self._check_unique()

    @cached_property
    def schema(self) -> tuple[Field, ...]:
        own = tuple(column.field for column in self.scanned)
        return (*own, WEIGHT_FIELD) if self.state is State.CHANGE else own


@dataclass(frozen=True)
class Ref(Operator):
    """The result of an earlier binding of the same program."""

    name: str
    schema_: tuple[Field, ...]

    @property
    def schema(self) -> tuple[Field, ...]:
        return self.schema_


@dataclass(frozen=True)
class Values(Operator):
    """Rows written out in the query. One row without columns is `SELECT` without `FROM`."""

    rows: tuple[tuple[Expr, ...], ...]
    schema_: tuple[Field, ...]

    def __post_init__(self) -> None:
        if any(len(row) != len(self.schema_) for row in self.rows):
            raise ValueError("a VALUES row is not as wide as its schema")

    @property
    def schema(self) -> tuple[Field, ...]:
        return self.schema_


@dataclass(frozen=True)
class Project(Operator):
    input: Node
    items: tuple[Item, ...]

    def __post_init__(self) -> None:
        self._check_unique()
        for item in self.items:
            _check_refs(self, item.expr, self.input)

    @cached_property
    def schema(self) -> tuple[Field, ...]:
        return tuple(item.field for item in self.items)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @cached_property
    def by_name(self) -> dict[str, Expr]:
        return {item.name: item.expr for item in self.items}


@dataclass(frozen=True)
class Filter(Operator):
    """`common`: over counts of two sides, which only it reads, it makes INTERSECT (True) or EXCEPT (False)."""

    input: Node
    predicate: Expr
    common: bool | None = None

    def __post_init__(self) -> None:
        _check_refs(self, self.predicate, self.input)

    @cached_property
    def schema(self) -> tuple[Field, ...]:
        return self.input.schema

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Join(Operator):
    """`on` None means TRUE."""

    left: Node
    right: Node
    kind: JoinKind
    on: Expr | None

    def __post_init__(self) -> None:
        _check_refs(self, self.on, self.left, self.right)
        if not self.left.column_set.isdisjoint(self.right.column_set):
            raise ValueError("both sides of a join have a column of the same name")

    @cached_property
    def schema(self) -> tuple[Field, ...]:
        left, right = self.left.schema, self.right.schema
        if self.kind in (JoinKind.SEMI, JoinKind.ANTI):
            return left
        if self.kind is JoinKind.FULL:
            left = _padded(left)
        if self.kind is not JoinKind.INNER:
            right = _padded(right)
        return left + right

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)


def _padded(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    return tuple(Field(field.name, field.type, True) for field in fields)


class ApplyKind(Enum):
    SCALAR = "scalar"
    EXISTS = "exists"
    IN = "in"
    NOT_IN = "not in"
    MEMBER = "member"
    """IN with all three truth values, for use below NOT: Spark's own IN gives FALSE for unknown."""

    @property
    def compares(self) -> bool:
        return self in (ApplyKind.IN, ApplyKind.NOT_IN, ApplyKind.MEMBER)


@dataclass(frozen=True)
class Apply(Operator):
    """For each input row, one value computed from the rows of `body` that satisfy `on`.

    Scalar subqueries, EXISTS and IN outside of plain conjuncts. The subquery stays a subquery, so
    that Spark's own three-valued logic decides; `needles` are the left side of IN, `select` what
    the subquery computes from the matching rows, `groups` its GROUP BY.
    """

    input: Node
    body: Node
    kind: ApplyKind
    on: Expr | None
    select: tuple[Expr, ...]
    output: Field
    needles: tuple[Expr, ...] = ()
    groups: tuple[Expr, ...] = ()

    def __post_init__(self) -> None:
        _check_refs(self, self.on, self.input, self.body)
        for expr in self.select + self.groups:
            _check_refs(self, expr, self.body)
        for expr in self.needles:
            _check_refs(self, expr, self.input)
        self._check_unique()

    @cached_property
    def schema(self) -> tuple[Field, ...]:
        return (*self.input.schema, self.output)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input, self.body)


@dataclass(frozen=True)
class Generate(Operator):
    """LATERAL VIEW: each input row beside each row that the generator makes of it."""

    input: Node
    generator: Expr
    outer: bool
    generated: tuple[Field, ...]

    def __post_init__(self) -> None:
        _check_refs(self, self.generator, self.input)
        self._check_unique()

    @cached_property
    def schema(self) -> tuple[Field, ...]:
        return self.input.schema + self.generated

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Aggregate(Operator):
    """GROUP BY `groups`; each of `aggregates` is one aggregate call. No aggregates: DISTINCT."""

    input: Node
    groups: tuple[Item, ...]
    aggregates: tuple[Item, ...] = ()

    def __post_init__(self) -> None:
        if not self.groups and not self.aggregates:
            raise ValueError("an Aggregate needs groups or aggregates")
        for item in self.groups + self.aggregates:
            _check_refs(self, item.expr, self.input)
        self._check_unique()

    @cached_property
    def schema(self) -> tuple[Field, ...]:
        return tuple(item.field for item in self.groups + self.aggregates)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Window(Operator):
    """Window calls that share `partition`, added to the input's columns."""

    input: Node
    items: tuple[Item, ...]
    partition: tuple[Expr, ...]

    def __post_init__(self) -> None:
        for item in self.items:
            _check_refs(self, item.expr, self.input)
        for expr in self.partition:
            _check_refs(self, expr, self.input)
        self._check_unique()

    @cached_property
    def schema(self) -> tuple[Field, ...]:
        return self.input.schema + tuple(item.field for item in self.items)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class UnionAll(Operator):
    """Rows of all branches, column by column; Spark widens the types to `schema_`."""

    branches: tuple[Node, ...]
    schema_: tuple[Field, ...]

    def __post_init__(self) -> None:
        if not self.branches:
            raise ValueError("a union needs a branch")
        if any(len(branch.columns) != len(self.schema_) for branch in self.branches):
            raise ValueError("the branches of a union differ in width")

    @property
    def schema(self) -> tuple[Field, ...]:
        return self.schema_

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.branches


Node = Union[  # noqa: UP007  (a string in the annotations above needs the name at run time)
    Scan, Ref, Values, Project, Filter, Join, Apply, Generate, Aggregate, Window, UnionAll
]
