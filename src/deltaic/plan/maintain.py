"""How a view is kept: what it stores beside the user's columns, and what a refresh replaces.

Every refresh does the same to the view's table: delete the rows of some keys, insert rows.

* CHANGES: one row per touched group says what to add (the change table); the view's own rows are read,
  the sources are not, but for groups that an old value and a change do not tell.
* KEYS: the keys that the change touches are deleted and their rows computed anew. The old rows come
  out by key, never by value, so an unstable value in them does no harm, and the past is not read.
* ROWS: the view's signed delta is computed; a row of it is found in the view by its hash. Where a
  row goes away, all rows of that hash are replaced by those that are left.
* SETS: which rows come and go is found by a reducing algorithm, without counts of their derivations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from deltaic.algebra.keys import Declared, Reference
from deltaic.algebra.nodes import Node, Scan, ScanColumn, UnionAll
from deltaic.algebra.trees import sources
from deltaic.delta.common import Columns, Shape
from deltaic.delta.dred import AlteredRules
from deltaic.delta.groups import Counting, Expanded
from deltaic.delta.joins import JoinTrees
from deltaic.delta.matches import MatchDerivation, Seen
from deltaic.delta.rules import Derivation
from deltaic.delta.sets import ALGORITHMS, SetQuery
from deltaic.plan.bags import KIND, Bag, BagTable
from deltaic.plan.outer import PreservedSide
from deltaic.plan.recursion import Recursion
from deltaic.plan.state import KeptAggregate
from deltaic.plan.strata import STRATUM, StrataTable, Stratum

VIEW = "@view"
"""The source name under which a program reads the view's own table."""


ROW_KEY = "__deltaic_row"
"""The hash of a row, in a view that is kept by rows."""


class Way(Enum):
    CHANGES = "change tables"
    KEYS = "keys"
    ROWS = "rows"
    SETS = "reducing"


@dataclass(frozen=True)
class Form:
    """What a view stores of its sets: how often each row is derived; and the sets inside it, with their counts."""

    counts: bool = True
    strata: bool = False

    def __str__(self) -> str:
        counts, strata = ("with" if there else "without" for there in (self.counts, self.strata))
        return f"{counts} counts, {strata} the sets inside it"


@dataclass(frozen=True)
class Known:
    """What is known of the sources before a refresh is derived."""

    changed: frozenset[str]
    appended: frozenset[str] = frozenset()
    """Of these, the ones that only got more rows."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """How many rows a source has, and under VIEW the view itself."""
    changes: Mapping[str, int] = field(default_factory=dict)
    """How many rows a source's change has."""
    common: Mapping[Shape, Columns] = field(default_factory=dict)
    """Joins that views refreshed together have in common, and the columns that all of them want."""
    altered: AlteredRules = field(default_factory=AlteredRules)
    """Rules of predicates that are other ones than before."""


@dataclass(frozen=True)
class Maintenance:
    """`root` has the user's columns in order, then the hidden ones; `key` names root's columns."""

    root: Node
    way: Way
    key: tuple[str, ...]
    visible: int
    kept: KeptAggregate | None = None
    stored: tuple[tuple[str, str], ...] = ()
    """For a view kept by change tables: its parts, and which columns of root hold them."""
    preserved: tuple[PreservedSide, ...] = ()
    """For a view kept by rows: what it stores of its outer joins, under root's column names."""
    technique: str = "auto"
    """What it is pinned to."""
    sets: SetQuery | None = None
    """For a view kept by reducing: its query."""
    declared: Declared = field(default_factory=dict)
    """Keys of the sources."""
    references: tuple[Reference, ...] = ()
    """Which of their rows refer to rows of others."""
    strata: tuple[Stratum, ...] = ()
    """Sets inside the view whose rows are stored with counts of their derivations."""
    layered: Maintenance | None = None
    """For a view with strata: the same over scans of them."""
    recursion: Recursion | None = None
    """The predicates that it defines by recursion and scans, which are kept by DRed."""

    @property
    def bags(self) -> tuple[Bag, ...]:
        return self.kept.bags if self.kept else ()

    @property
    def bag_table(self) -> BagTable:
        assert self.kept is not None
        return BagTable(self.kept.top, self.root.schema, self.key, VIEW)

    @property
    def whole(self) -> Node:
        """Everything that the view's table holds."""
        if not self.bags and not self.strata:
            return self.root
        nullable = tuple(replace(f, nullable=True) for f in self.root.schema)
        bags = [self.bag_table.rows(bag) for bag in self.bags]
        return UnionAll((self.root, *bags, *map(self.strata_table.rows, self.strata)), nullable)

    @property
    def strata_table(self) -> StrataTable:
        return StrataTable(self.strata, self.root.schema, ROW_KEY if self.way is Way.ROWS else None, VIEW)

    def by_groups(self, known: Known) -> bool:
        """Whether touched groups are computed anew, for a view that could do with its bags.

        Either way a table is gone through once: the sources, or the view with its bags."""
        counts = [known.rows.get(source) for source in (*sources(self.root), VIEW)]
        there = [count for count in counts if count is not None]
        return bool(self.bags) and len(there) == len(counts) and sum(there[:-1]) <= there[-1]

    def replaced(self, known: Known) -> tuple[str, ...]:
        """The columns that say which rows a refresh replaces."""
        bags = () if self.by_groups(known) else self.bags
        if self.way is Way.ROWS or not (bags or self.strata):
            return self.key
        of_bags = (KIND, *(f.name for bag in bags for f in bag.columns)) if bags else ()
        of_strata = (STRATUM, *(f.name for s in self.strata for f in s.columns)) if self.strata else ()
        return (*self.key, *of_bags, *of_strata)

    @property
    def hidden(self) -> tuple[str, ...]:
        return self.root.columns[self.visible :]

    def derivation(self, known: Known) -> Derivation:
        """The delta rules by which the view is kept."""
        match self.technique:
            case "base":
                return Derivation(known.changed)
            case name if name in ALGORITHMS and name != "reducing":
                return JoinTrees(known.changed, rows=known.rows, changes=known.changes)
            case "counting" | "quass":
                return Counting(known.changed, only_different=self.technique == "counting")
            case "blakeley":
                return Expanded(known.changed)
        seen = {side.rule: self._seen(side) for side in self.preserved}
        return MatchDerivation(
            known.changed,
            seen=seen,
            appended=known.appended,
            rows=known.rows,
            changes=known.changes,
            common=known.common,
        )

    def _seen(self, side: PreservedSide) -> Seen:
        names = dict.fromkeys((side.marker, *side.keys))
        fields = [replace(self.root.fields[name], name=f"{name}_{side.marker}_seen") for name in names]
        seen = Scan(VIEW, tuple(ScanColumn(f, name) for f, name in zip(fields, names, strict=True)))
        by = dict(zip(names, seen.columns, strict=True))
        return Seen(self.root, side.join, seen, by[side.marker], tuple(by[key] for key in side.keys), side.dropping)
