"""Counting with set semantics (Gupta, Mumick, Subrahmanian, algorithm 4.1 with statement 2): strata and their counts.

A set inside a view, a DISTINCT, a side of INTERSECT and EXCEPT, or the right side of IN, EXISTS and their negations, is
a *stratum*. The view stores its rows with how often each is derived, in its own table and its own commits; the user
does not see them. A change is added to the counts of the rows it touches, and

    d(stratum)  =  the rows whose count crosses zero, +1 or -1                               statement 2

is all that travels on: what reads the stratum takes it for a table whose change this is. Its old state is what is
stored, its new one that and the change. What derives its rows is not read, but for the terms of its own delta.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deltaic.algebra.expr import Expr, col, conjunction, join_parts, null_safe_equal, text
from deltaic.algebra.nodes import (
    SHOWN,
    WEIGHT,
    Aggregate,
    Apply,
    ApplyKind,
    Field,
    Filter,
    Generate,
    Item,
    Join,
    JoinKind,
    Node,
    Project,
    Ref,
    Scan,
    ScanColumn,
    State,
    UnionAll,
)
from deltaic.algebra.set_operations import SetOperation
from deltaic.algebra.stability import unstable_columns
from deltaic.algebra.trees import keep, null_item, pass_through, sources, with_inputs, with_leaves
from deltaic.algebra.types import is_exact_key
from deltaic.delta.groups import SET_PREFIX
from deltaic.delta.joins import JoinTrees
from deltaic.delta.near import LARGE
from deltaic.delta.rules import Binding, Derivation, Stage, never_negative

STRATUM, DERIVATIONS, VALUE_PREFIX = "__deltaic_stratum", "__deltaic_derivations", "__deltaic_t"
"""Hidden columns of a view with strata: 0 for its own rows and else the stratum's number; how often; the values."""
_WAS, BEFORE, AFTER = "_was", "__deltaic_before", "__deltaic_after"


@dataclass(frozen=True)
class Stratum:
    """`node` is the set; where it reads strata below, it scans them."""

    number: int
    node: Aggregate

    @property
    def source(self) -> str:
        return f"{SET_PREFIX}{self.number}"

    @property
    def scan(self) -> Scan:
        """What a view reads instead of the set."""
        return Scan(self.source, tuple(ScanColumn(f, f.name) for f in self.node.schema))

    @property
    def columns(self) -> tuple[Field, ...]:
        """Of the view's table."""
        return tuple(Field(f"{VALUE_PREFIX}{self.number}_{n}", f.type) for n, f in enumerate(self.node.schema))


def stratified(query: Node, top: Node) -> tuple[Node, tuple[Stratum, ...]]:
    """The query over strata instead of the sets inside it, lower ones first. `top` is no stratum: it is the view."""
    cutting = _Cutting([])
    return cutting.below(query, top), tuple(cutting.strata)


@dataclass
class _Cutting:
    strata: list[Stratum]

    def below(self, node: Node, top: Node) -> Node:
        if node is not top:
            assert isinstance(node, Project | Filter)
            return replace(node, input=self.below(node.input, top))
        return self.cut(node) if not isinstance(node, Aggregate) else replace(node, input=self.cut(node.input))

    def cut(self, node: Node) -> Node:
        operation = SetOperation.of(node)
        if operation is not None:
            left, right = (self.cut(side) for side in operation.sides())
            return operation.joined(left, right)
        node = with_inputs(node, self.cut)
        match node:
            case Aggregate() if not node.aggregates:
                return self.stratum(node)
            case Join(kind=JoinKind.SEMI | JoinKind.ANTI) if node.on is not None:
                return replace(node, right=self.looked_at(node.right, node.on.columns))
            case Apply() if node.kind is not ApplyKind.SCALAR and not node.groups:
                used = frozenset[str]().union(*(e.columns for e in (*node.select, *filter(None, [node.on]))))
                return replace(node, body=self.looked_at(node.body, used))
        return node

    def looked_at(self, node: Node, columns: frozenset[str]) -> Node:
        """What a row is compared with is a set: of the columns that are looked at."""
        fields = [f for f in node.schema if f.name in columns]
        if not fields or (isinstance(node, Scan) and node.source.startswith(SET_PREFIX)):
            return node
        return self.stratum(Aggregate(node, tuple(map(pass_through, fields))))

    def stratum(self, node: Aggregate) -> Node:
        exact = all(is_exact_key(f.type) for f in node.schema)
        if not exact or unstable_columns(node) or not sources(node):
            return node
        self.strata.append(Stratum(len(self.strata) + 1, node))
        return self.strata[-1].scan


def expanded(node: Node, strata: Sequence[Stratum]) -> Node:
    """The tree over the sources themselves."""
    by = {stratum.source: stratum for stratum in strata}

    def whole(leaf: Node) -> Node:
        found = by.get(leaf.source) if isinstance(leaf, Scan) else None
        return expanded(found.node, strata) if found else leaf

    return with_leaves(node, whole)


def hidden_columns(strata: Sequence[Stratum], *, shown: bool) -> tuple[Item, ...]:
    """What a row of the view itself has in the columns of strata."""
    values = (null_item(f) for stratum in strata for f in stratum.columns)
    marks = (Item(SHOWN, text("TRUE"), "boolean", False),) if shown else ()
    return (*marks, Item(STRATUM, text("0"), "int", False), *values, null_item(Field(DERIVATIONS, "bigint")))


@dataclass(frozen=True)
class StrataTable:
    """The table of a view with strata: `schema` is that of its rows; `row_key` their hash, where it has one."""

    strata: tuple[Stratum, ...]
    schema: tuple[Field, ...]
    row_key: str | None
    view: str

    def row(self, stratum: Stratum, count: Expr) -> tuple[Item, ...]:
        """A row of the stratum as one of the table."""
        values = dict(zip((f.name for f in stratum.columns), stratum.node.columns, strict=True))
        items = []
        for field in self.schema:
            own: Expr | None = None
            if field.name in values:
                own = col(values[field.name])
            elif field.name == self.row_key:
                own = _hash(stratum)
            else:
                own = {STRATUM: text(str(stratum.number)), DERIVATIONS: count, SHOWN: text("FALSE")}.get(field.name)
            items.append(Item(field.name, own, field.type, field.nullable) if own else null_item(field))
        return tuple(items)

    def rows(self, stratum: Stratum) -> Node:
        """All of a stratum, from the sources."""
        total = Item(DERIVATIONS, text("count(*)"), "bigint", False)
        counted = replace(stratum.node, input=expanded(stratum.node.input, self.strata), aggregates=(total,))
        return Project(counted, self.row(stratum, col(DERIVATIONS)))

    def stored(self, stratum: Stratum, suffix: str = "") -> Project:
        """The stratum as it was."""
        pairs = list(zip(stratum.node.schema, stratum.columns, strict=True))
        kind, count = f"{STRATUM}{suffix}", f"{DERIVATIONS}{suffix}"
        columns = [ScanColumn(replace(f, name=f.name + suffix, nullable=True), c.name) for f, c in pairs]
        marks = [ScanColumn(Field(kind, "int"), STRATUM), ScanColumn(Field(count, "bigint"), DERIVATIONS)]
        scan = Filter(Scan(self.view, (*columns, *marks)), join_parts(col(kind), f" = {stratum.number}"))
        return Project(scan, tuple(item for item in keep(scan) if item.name != kind))

    def moved(self, stratum: Stratum, delta: Node) -> Filter:
        """How much more or less often each row is derived, by the delta of the stratum's input."""
        total = Item(WEIGHT, join_parts("sum(", col(WEIGHT), ")"), "bigint", False)
        return Filter(Aggregate(delta, stratum.node.groups, (total,)), join_parts(col(WEIGHT), " <> 0"))

    def counted(self, stratum: Stratum, moved: Node) -> Project:
        """These rows with how often they were derived and are."""
        was = self.stored(stratum, _WAS)
        names = stratum.node.columns
        on = conjunction(*(null_safe_equal(col(name), col(name + _WAS)) for name in names))
        before = join_parts("coalesce(", col(DERIVATIONS + _WAS), ", 0L)")
        # lemma 4.1: more can only be taken away than there is if the change is not the one of these rows
        after = never_negative(join_parts("(", before, " + ", col(WEIGHT), ")"))
        joined = Join(moved, was, JoinKind.LEFT, on)
        groups = tuple(pass_through(f) for f in stratum.node.schema)
        return Project(joined, (*groups, Item(BEFORE, before, "bigint", False), Item(AFTER, after, "bigint", False)))

    def operations(self, stratum: Stratum, counted: Ref, op: Field) -> Project:
        """Every row whose count changed goes with the old one and comes with the new one."""
        both = Generate(counted, text("explode(array(-1, 1))"), False, (op,))
        there = join_parts("CASE WHEN ", col(op.name), " < 0 THEN ", col(BEFORE), " ELSE ", col(AFTER), " END")
        rows = Filter(both, join_parts(there, " > 0"))
        return Project(rows, (pass_through(op), *self.row(stratum, there)))


def _hash(stratum: Stratum) -> Expr:
    pieces: list[str | Expr] = [f"xxhash64({stratum.number}"]
    for name in stratum.node.columns:
        pieces.extend([", ", col(name)])
    return join_parts(*pieces, ")")


def crossed(counted: Ref) -> Project:
    """Statement 2: the rows that came to be derived, and those that are no longer."""
    changed = Filter(counted, join_parts("(", col(BEFORE), " = 0) <> (", col(AFTER), " = 0)"))
    groups = tuple(i for i in keep(changed) if i.name not in (BEFORE, AFTER))
    sign = Item(WEIGHT, join_parts("CASE WHEN ", col(BEFORE), " = 0 THEN 1L ELSE -1L END"), "bigint", False)
    return Project(changed, (*groups, sign))


@dataclass
class Layers:
    """Derives the strata of a view, lowest first, and gives what is above them their states and changes."""

    table: StrataTable
    derivation: Derivation

    def __post_init__(self) -> None:
        self.counts: list[tuple[Stratum, Ref]] = []
        self.changes: dict[str, Ref] = {}
        for stratum in self.table.strata:
            found = self.derivation.delta(stratum.node.input)
            if found is None:
                continue
            label = ", ".join(sources(expanded(stratum.node, self.table.strata)))
            what = f"how often each row of stratum {stratum.number} is derived, that the change of {label} touches"
            after = self.only_after(stratum.node)
            stage = Stage(stratum.number, what, number=0, last=True, after=after)
            moved: Node = self.table.moved(stratum, found)
            if isinstance(self.derivation, JoinTrees) and self.derivation.rows.get(self.table.view, 0) >= LARGE:
                moved = self.derivation.bind("derived", moved)  # a large view is read near the rows in it
            counted = self.derivation.bind("counted", self.table.counted(stratum, moved), stage=stage)
            what = f"the rows of stratum {stratum.number} that came to be derived, and that are no longer"
            stage = Stage(stratum.number, what, f"stratum {stratum.number} of {label}", after=after)
            self.counts.append((stratum, counted))
            self.changes[stratum.source] = self.derivation.bind("stratum", crossed(counted), stage=stage)

    def only_after(self, node: Node) -> frozenset[int]:
        """The strata by which alone a node changes; none if a table of its own changed as well."""
        moving = [source for source in sources(node) if source in self.derivation.changed]
        numbers = {stratum.source: stratum.number for stratum in self.table.strata}
        return frozenset(numbers[s] for s in moving) if all(s in numbers for s in moving) else frozenset()

    def finished(self, artifact: Node, upper: Node, op: Field, marks: Sequence[Item]) -> list[Binding]:
        """All bindings of a refresh: the strata, what is above them, and what both write."""
        stage = Stage(0, "what changes of the view's own rows", number=2, last=True, after=self.only_after(upper))
        shown = self.derivation.bind("shown", artifact, stage=stage)
        states: list[Node] = []
        for stratum, counted in self.counts:
            rows = self.table.operations(stratum, counted, op)
            items = {item.name: item for item in (*keep(rows), *marks)}
            states.append(Project(rows, tuple(items[name] for name in shown.columns)))
        nullable = tuple(replace(f, nullable=True) for f in shown.schema)
        both = Binding("", UnionAll((shown, *states), nullable))
        return [replace(b, node=self.told(b.node)) for b in (*self.derivation.bindings, both)]

    def told(self, node: Node) -> Node:
        """The tree with what is known of strata in the place of their scans."""
        by = {stratum.source: stratum for stratum in self.table.strata}

        def turn(leaf: Node) -> Node:
            stratum = by.get(leaf.source) if isinstance(leaf, Scan) else None
            return self.state(stratum, leaf) if stratum and isinstance(leaf, Scan) else leaf

        return with_leaves(node, turn)

    def state(self, stratum: Stratum, scan: Scan) -> Node:
        """A scan may want some of the columns only: of as many rows."""
        found = self.whole_state(stratum, scan.state)
        return Project(found, tuple(pass_through(found.fields[name]) for name in scan.columns))

    def whole_state(self, stratum: Stratum, state: State) -> Node:
        change = self.changes.get(stratum.source)
        names = tuple(pass_through(f) for f in stratum.node.schema)
        if state is State.CHANGE:
            assert change is not None
            return change
        old = Project(self.table.stored(stratum), names)
        if state is State.OLD or change is None:
            return old
        gone = tuple(Item(f"{i.name}_gone", i.expr, i.type, i.nullable) for i in names)
        lost = Project(Filter(change, join_parts(col(WEIGHT), " < 0")), gone)
        on = conjunction(*(null_safe_equal(col(i.name), col(f"{i.name}_gone")) for i in names))
        left = Project(Join(old, lost, JoinKind.ANTI, on), names)
        come = Project(Filter(change, join_parts(col(WEIGHT), " > 0")), names)
        return UnionAll((left, come), tuple(replace(f, nullable=True) for f in stratum.node.schema))
