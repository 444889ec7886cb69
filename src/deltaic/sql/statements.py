"""What a statement asks for, as values: the MATERIALIZED VIEW statements, and Spark's own that concern views."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Policy(Enum):
    """What a refresh may do."""

    AUTO = "AUTO"
    INCREMENTAL = "INCREMENTAL"
    STRICT = "INCREMENTAL STRICT"
    FULL = "FULL"


@dataclass(frozen=True)
class CreateView:
    name: tuple[str, ...]
    query: str
    """The query in its place in the statement: what stands before it is blank, so positions agree."""
    program: str | None = None
    """The file of a Datalog program instead, the predicate of which that has the view's name is its query."""
    columns: tuple[tuple[str, str | None], ...] = ()
    comment: str | None = None
    partitioned_by: tuple[str, ...] = ()
    clustered_by: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    policy: Policy = Policy.AUTO
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class RefreshView:
    name: tuple[str, ...]
    full: bool = False
    as_of: int | str | None = None
    """A time: its number, or a timestamp."""


@dataclass(frozen=True)
class ExplainCreate:
    create: CreateView


@dataclass(frozen=True)
class ExplainRefresh:
    name: tuple[str, ...]


@dataclass(frozen=True)
class AlterView:
    name: tuple[str, ...]
    query: str
    program: str | None = None
    """As of CreateView."""


@dataclass(frozen=True)
class ExplainAlter:
    alter: AlterView


@dataclass(frozen=True)
class DropView:
    name: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True)
class ShowViews:
    schema: tuple[str, ...] = ()


@dataclass(frozen=True)
class DescribeHistory:
    """Of a view; of a table it is Spark's own statement."""

    name: tuple[str, ...]


@dataclass(frozen=True)
class DropTable:
    """DROP TABLE, or DROP VIEW of a plain view."""

    name: tuple[str, ...]
    sql: str
    kind: str = "TABLE"


@dataclass(frozen=True)
class ChangeSchema:
    """CREATE or DROP of a schema."""

    name: tuple[str, ...]
    sql: str
    drop: bool
    has_location: bool = False


@dataclass(frozen=True)
class ChangePlainView:
    """CREATE VIEW or ALTER VIEW: Spark's own, unless the name is a materialized view's."""

    name: tuple[str, ...]
    sql: str


@dataclass(frozen=True)
class RenameTable:
    name: tuple[str, ...]
    sql: str


@dataclass(frozen=True)
class MoveTable:
    """ALTER TABLE ... SET LOCATION."""

    name: tuple[str, ...]
    location: str
    sql: str


@dataclass(frozen=True)
class CreateTable:
    """A table whose place Deltaic chooses: `before` and `after` stand around its LOCATION."""

    name: tuple[str, ...]
    before: str
    after: str
    has_location: bool


@dataclass(frozen=True)
class SparkStatement:
    sql: str


Statement = (
    CreateView
    | RefreshView
    | ExplainCreate
    | ExplainRefresh
    | AlterView
    | ExplainAlter
    | DropView
    | ShowViews
    | DescribeHistory
    | DropTable
    | ChangeSchema
    | RenameTable
    | MoveTable
    | ChangePlainView
    | CreateTable
    | SparkStatement
)
