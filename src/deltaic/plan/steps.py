"""The steps that refreshes are made of, each a value with its SQL. Explain prints them, run walks them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from deltaic.algebra.nodes import Near, Node, Scan, State
from deltaic.algebra.quoting import quote
from deltaic.algebra.recursion import PREFIX
from deltaic.delta.common import Shape
from deltaic.delta.rules import Stage, ViewCounts
from deltaic.plan.maintain import VIEW
from deltaic.plan.recursion import Fixpoint, Part, Phase

VIEW_RELATION = "__deltaic_view"


RS_ROWS = 300_000
"""A change of more rows is Spark's to read, and what comes of it Spark's to keep."""

STATE_ROWS = 500_000
"""A table with more rows is Spark's to read."""


@dataclass(frozen=True)
class SourceRead:
    """How one source is read in one refresh; `change_sql` is None where delta-rs reads the change.

    `rs_states` are the states that delta-rs reads: those of small tables."""

    name: str
    relation: str
    old: int | None
    new: int
    change_kind: str = "none"
    change_sql: str | None = None
    change_rows: int | None = None
    change_note: str = ""
    change_from: int | None = None
    change_upto: int | None = None
    rs_states: frozenset[State] = frozenset()
    shown: str | None = None
    """The column that says which rows count, in a view that hides some."""
    appends: bool = False
    """Whether its change deletes nothing."""
    rows: int | None = None
    files: int | None = None
    """How many it has now."""
    rs_finds: bool = False
    """Whether delta-rs may go through it, however large, for some rows."""
    times: tuple[tuple[int, int], ...] = ()
    """Of a timed change: its versions, and their times."""
    by_files: bool = False
    """Of a timed change: whether it is read out of the files, never out of the feed."""
    live: bool = False
    """Whether it can be read only now; `relation` is then the state that was read, as of the version wanted."""

    missing: frozenset[str] = frozenset()
    """Columns that it has now and did not have at `new`: what is asked of that version does not depend on them."""

    def at(self, version: int | None) -> str:
        return self.relation if self.live else f"{self.relation} VERSION AS OF {version}"

    @property
    def where(self) -> str:
        return f" WHERE {quote(self.shown)}" if self.shown else ""

    @property
    def changed(self) -> bool:
        return self.change_kind != "none"


class Only(Enum):
    """What a step waits to be seen before it is done; without it, it is left out."""

    DELETES = "only if rows of the view go away"
    EQUALS = "only if a row that goes has an equal that stays"
    AGAIN = "only if the change leaves a group untold"
    CANDIDATES = "only if a row is left that may come or go"


@dataclass(frozen=True)
class Step:
    """`relation` is the temporary view that the step leaves behind, if it leaves one."""

    title: str
    sql: str
    relation: str | None = None
    only: Only | None = None


@dataclass(frozen=True)
class ReadState(Step):
    """Without SQL the state is read by delta-rs. `columns` are the table's, with the names they get."""

    source: str = ""
    state: State = State.NEW
    version: int | None = None
    columns: tuple[tuple[str, str], ...] = ()
    shown: str | None = None
    near: Near | None = None
    """Which rows are enough: the run writes the values into the query, if they are few."""
    rs_finds: bool = False
    """Whether delta-rs may be asked for them."""


@dataclass(frozen=True)
class ReadCounts(Step):
    """What the view tells about an outer join of its own. `by_rs`: delta-rs tries, its SQL is for Spark.

    `counts` names the columns of the view's table, `names` are those of the answer."""

    counts: ViewCounts | None = None
    names: tuple[str, ...] = ()
    version: int | None = None
    by_rs: bool = False


@dataclass(frozen=True)
class ReadChange(Step):
    """Without SQL the change is read by delta-rs.

    `times`: the change of each of these versions, with its time."""

    source: str = ""
    columns: tuple[str, ...] = ()
    times: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Compute(Step):
    """An intermediate relation that several later steps use, kept while they run.

    `asked`: a later step looks for rows near its values. `common`: it is the delta of a join of several views.
    `stage`: it is one of a reducing algorithm, and `nothing` what there is if that ended before."""

    asked: bool = False
    node: Node | None = None
    common: Shape | None = None
    stage: Stage | None = None
    nothing: str = ""


@dataclass(frozen=True)
class ComputeDelta(Step):
    """The rows that are applied, or for a view kept by rows the signed delta."""


@dataclass(frozen=True)
class ComputeAgain(Step):
    """The groups whose new value their old one and the change do not tell, from the sources."""


@dataclass(frozen=True)
class MarkRows(Step):
    """Where in the view the rows are that go, by their hash. Its SQL gives the rows that come.

    If the view has as many rows of a hash as go, they are the ones, and no row has to be looked at."""


@dataclass(frozen=True)
class FindRows(Step):
    """Which rows of the view a deletion leaves."""


class Write(Enum):
    """What becomes of the rows that a table has."""

    MERGE = "those of some keys are replaced"
    APPEND = "they stay"
    OVERWRITE = "all are replaced"
    ANEW = "another table takes its place, which may have other columns"


@dataclass(frozen=True)
class WriteView(Step):
    """Into the view, in one commit that carries the progress. `key` says which of its rows are replaced;
    `all_there`, that every key to be taken out has a row there.

    `query` gives all rows of a view that is overwritten, where they were few before: if they still are, delta-rs
    writes them."""

    kind: Write = Write.MERGE
    query: str | None = None
    key: tuple[str, ...] = ()
    all_there: bool = False

    @property
    def whole(self) -> bool:
        return self.kind in (Write.OVERWRITE, Write.ANEW)


@dataclass(frozen=True)
class Iterate(Step):
    """Rounds of queries until one finds nothing, which evaluate or maintain predicates that need one another.

    `relations` are computed before them, in order. A query may be long, and there are many: its SQL tells them all."""

    fixpoint: Fixpoint | None = None
    relations: tuple[tuple[str, str], ...] = ()
    phases: tuple[tuple[Phase, tuple[Part, ...]], ...] = ()


@dataclass(frozen=True)
class StoredView:
    """The view's own table: how Spark names it, at which version, and its columns beside the algebra's."""

    relation: str
    version: int | None
    columns: Mapping[str, str]
    by_rs: bool = False
    rows: int | None = None
    scanned_by_rs: bool = False
    """Whether delta-rs may go through it, however large, for an answer that is small."""
    rs_finds: bool = False
    """Whether it may for rows, by their hash."""
    marked: bool = False
    """Whether rows that go are marked in their files, by deletion vectors."""


def relation_name(scan: Scan, numbers: Mapping[str, int]) -> str:
    """Temporary views are numbered, so that no user's name ever stands in one."""
    if scan.source.startswith(PREFIX):
        return f"__deltaic_{scan.source.removeprefix('@')}_{scan.state.value}"
    near = f"_near_{scan.near.binding}_{_digest(repr(scan.near))}" if scan.near else ""
    if scan.source == VIEW:
        return f"{VIEW_RELATION}{near}"
    return f"__deltaic_{scan.state.value}_{numbers[scan.source]}{near}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
