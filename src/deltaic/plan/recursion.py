"""Steps that compute or maintain predicates defined by recursion, before what reads them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from deltaic.algebra.canonical import canonical
from deltaic.algebra.expr import Expr, col, conjunction, join_parts, null_safe_equal, text
from deltaic.algebra.nodes import (
    WEIGHT,
    Aggregate,
    Field,
    Filter,
    Item,
    Join,
    JoinKind,
    Node,
    Project,
    Ref,
    Scan,
    State,
    UnionAll,
)
from deltaic.algebra.quoting import quote
from deltaic.algebra.recursion import Component, Predicate, column
from deltaic.algebra.trees import keep, pass_through
from deltaic.algebra.types import is_exact_key
from deltaic.delta.dred import AlteredRules, Dred, Leaf, Of, Place, Round, matching, own_leaf, predicate_ref
from deltaic.delta.netting import net_exactly, told_apart
from deltaic.delta.rules import Binding, Derivation, ordered
from deltaic.plan.strata import STRATUM, StrataTable, Stratum
from deltaic.sql.render import render


class Phase(Enum):
    """What rounds are for, in order; and the relation of a predicate that each fills."""

    EVALUATE = "evaluate"
    OVER_DELETE = "over-delete"
    REDERIVE = "re-derive"
    INSERT = "insert"

    @property
    def fills(self) -> Of:
        return {Phase.OVER_DELETE: Of.GONE, Phase.REDERIVE: Of.BACK}.get(self, Of.COME)


@dataclass(frozen=True)
class Query:
    """A tree, and what it is to Spark."""

    node: Node
    sql: str


@dataclass(frozen=True)
class Part:
    """The rounds of one predicate: a query for the first, and one for those after it."""

    predicate: Predicate
    first: Query | None
    again: Query | None


@dataclass(frozen=True)
class Recursion:
    """`stored`: the strata as which predicates are kept in the view's table; the one that is not there is the view."""

    components: tuple[Component, ...]
    stored: Mapping[str, Stratum]

    @property
    def predicates(self) -> list[Predicate]:
        return [p for component in self.components for p in component.predicates]

    @property
    def reads(self) -> frozenset[str]:
        """The tables that rules read."""
        own = {p.source for p in self.predicates}
        return frozenset(source for component in self.components for source in component.reads) - own

    def moved(self, changed: frozenset[str], altered: frozenset[str] = frozenset()) -> frozenset[str]:
        """The predicates that may change, given which sources did, and which predicates have other rules."""
        found = set(changed)
        for component in self.components:
            if component.reads & found or component.sources & altered:
                found |= component.sources
        return frozenset(found - changed)


@dataclass
class Leaves:
    """What rules read beside their component, each once: under names and columns of its own."""

    derivation: Derivation

    def __post_init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        self.nodes: list[Node] = []

    def relation(self, leaf: Leaf, of: Of) -> Node:
        if leaf.place is Place.OWN:
            return own_leaf(leaf, of)
        number = self.number(leaf.node)
        if not self.derivation.moves(leaf.node):
            of = Of.NEW
        rows = _leaf_ref(number, leaf.node, of)
        pairs = zip(rows.schema, leaf.node.schema, strict=False)
        return Project(rows, tuple(Item(f.name, col(own.name), f.type, f.nullable) for own, f in pairs))

    def changed(self, leaf: Leaf) -> bool:
        return self.derivation.moves(leaf.node)

    def number(self, node: Node) -> int:
        key = canonical(node)
        if key not in self.numbers:
            self.numbers[key] = len(self.nodes)
            self.nodes.append(node)
        return self.numbers[key]

    def bindings(self) -> list[Binding]:
        """All relations of all leaves."""
        found: list[Binding] = []
        for number, node in enumerate(self.nodes):
            found.append(Binding(leaf_relation(number, Of.NEW), _told_apart(placed(node))))
            delta = self.derivation.delta(node)
            if delta is None:
                continue
            rows = placed(ordered(delta, node.columns), WEIGHT)
            moved = Binding(f"__deltaic_leaf{number}_moved", net_exactly(_told_apart(rows)))
            counted = Binding(f"__deltaic_leaf{number}_counted", _counted(number, node, moved))
            found.extend([*self.derivation.bindings, moved, counted, *_sides(number, node, counted)])
            self.derivation.bindings.clear()
        return found


def leaf_relation(number: int, of: Of) -> str:
    return f"__deltaic_leaf{number}_{of.value}"


def _leaf_ref(number: int, node: Node, of: Of) -> Ref:
    return Ref(leaf_relation(number, of), _fields(node))


def _fields(node: Node) -> tuple[Field, ...]:
    """Of a leaf's relations: its columns, and what tells values apart that are equal and not the same."""
    own = [Field(column(n), f.type) for n, f in enumerate(node.schema)]
    return (*own, *(item.field for item in _apart(own)))


def _apart(fields: Sequence[Field]) -> list[Item]:
    return [told_apart(f, f"{f.name}_apart") for f in fields if f.name != WEIGHT and not is_exact_key(f.type)]


def _told_apart(node: Node) -> Project:
    return Project(node, (*keep(node), *_apart(node.schema)))


def placed(node: Node, *more: str) -> Project:
    """The columns by their places, and some by their names."""
    named = [f for f in node.schema if f.name not in more]
    items = [Item(column(n), col(f.name), f.type, f.nullable) for n, f in enumerate(named)]
    return Project(node, (*items, *(pass_through(node.fields[name]) for name in more)))


def _same(one: Sequence[Field], suffix: str) -> Expr | None:
    return conjunction(*(null_safe_equal(col(f.name), col(f.name + suffix)) for f in one))


def _suffixed(node: Node, suffix: str) -> Project:
    return Project(node, tuple(Item(f.name + suffix, col(f.name), f.type, f.nullable) for f in node.schema))


def _counted(number: int, node: Node, moved: Binding) -> Project:
    """Rows whose count changed, with how often they are there now."""
    fields, touched = _fields(node), Ref(moved.name, moved.node.schema)
    now = Join(_leaf_ref(number, node, Of.NEW), _suffixed(touched, "_moved"), JoinKind.SEMI, _same(fields, "_moved"))
    there = Item("__deltaic_there", text("count(*)"), "bigint", False)
    counts = _suffixed(Aggregate(now, tuple(map(pass_through, fields)), (there,)), "_now")
    joined = Join(touched, counts, JoinKind.LEFT, _same(fields, "_now"))
    count = Item("__deltaic_there", join_parts("coalesce(", col("__deltaic_there_now"), ", 0L)"), "bigint", False)
    return Project(joined, (*map(pass_through, fields), pass_through(touched.fields[WEIGHT]), count))


def _sides(number: int, node: Node, counted: Binding) -> list[Binding]:
    """Statement 2: what is gone altogether, and what was not there at all; and so, what was there."""
    fields, rows = _fields(node), Ref(counted.name, counted.node.schema)
    own, there, weight = tuple(map(pass_through, fields)), col("__deltaic_there"), col(WEIGHT)
    gone = Project(Filter(rows, join_parts(weight, " < 0 AND ", there, " = 0")), own)
    come = Project(Filter(rows, join_parts(weight, " > 0 AND ", there, " = ", weight)), own)
    new, more = _leaf_ref(number, node, Of.NEW), _suffixed(_leaf_ref(number, node, Of.COME), "_come")
    left = Join(new, more, JoinKind.ANTI, _same(fields, "_come"))
    old = UnionAll((left, _leaf_ref(number, node, Of.GONE)), fields)
    return [
        Binding(leaf_relation(number, Of.GONE), gone),
        Binding(leaf_relation(number, Of.COME), come),
        Binding(leaf_relation(number, Of.OLD), old),
    ]


Named = Callable[[Scan], str]
_NONE = AlteredRules()


@dataclass(frozen=True)
class Fixpoint:
    """What is computed for one component: relations of its leaves, then rounds."""

    component: Component
    read: tuple[Node, ...]
    """The leaves of its rules, by their numbers."""
    leaves: tuple[Binding, ...]
    phases: tuple[tuple[Phase, tuple[Round, ...]], ...]


def evaluated(component: Component) -> Fixpoint:
    leaves = Leaves(Derivation(frozenset()))
    dred = Dred(component, leaves.relation, leaves.changed)
    rounds = tuple(dred.evaluate())
    return Fixpoint(component, tuple(leaves.nodes), tuple(leaves.bindings()), ((Phase.EVALUATE, rounds),))


def maintained(component: Component, derivation: Derivation, altered: AlteredRules = _NONE) -> Fixpoint:
    leaves = Leaves(derivation)
    dred = Dred(component, leaves.relation, leaves.changed, altered)
    phases = (
        (Phase.OVER_DELETE, tuple(dred.over_delete())),
        (Phase.REDERIVE, tuple(dred.rederive())),
        (Phase.INSERT, tuple(dred.insert())),
    )
    return Fixpoint(component, tuple(leaves.nodes), tuple(leaves.bindings()), phases)


def parts(rounds: Sequence[Round], relation: Named) -> tuple[Part, ...]:
    def written(node: Node | None) -> Query | None:
        return None if node is None else Query(node, render(node, relation))

    return tuple(Part(r.predicate, written(r.first), written(r.again)) for r in rounds)


def old_sql(recursion: Recursion, p: Predicate, relation: str, columns: Mapping[str, str]) -> str:
    """The rows of a predicate, out of the view's table; `columns` are its own, by the algebra's names."""
    stratum = recursion.stored.get(p.source)
    if stratum is None:
        stored = [columns[name] for name in list(columns)[: len(p.types)]]
        where = ""
    else:
        stored = [columns[f.name] for f in stratum.columns]
        where = f" WHERE {quote(columns[STRATUM])} = {stratum.number}"
    listed = ", ".join(f"{quote(name)} AS {column(n)}" for n, name in enumerate(stored))
    return f"SELECT {listed} FROM {relation}{where}"


def _query(node: Node) -> Query:
    """Over relations that have names."""
    return Query(node, render(node, lambda scan: scan.source))


def follows(p: Predicate, of: Of) -> Query:
    """A relation of a predicate that follows from others, while it is maintained."""
    old, gone, left, back, now, come = (
        predicate_ref(p, which) for which in (Of.OLD, Of.GONE, Of.LEFT, Of.BACK, Of.NOW, Of.COME)
    )
    match of:
        case Of.LEFT:
            return _query(matching(old, gone, JoinKind.ANTI))
        case Of.NOW:
            return _query(UnionAll((left, back), p.fields))
    assert of is Of.NEW
    return _query(UnionAll((now, come), p.fields))


def same_as(p: Predicate, of: Of) -> Query:
    return _query(predicate_ref(p, of))


def named(relation: str, p: Predicate) -> Query:
    return _query(Ref(relation, p.fields))


def lost(p: Predicate) -> Query:
    """What is no longer there; a row that was over-deleted and came again is."""
    gone, back, come = (predicate_ref(p, of) for of in (Of.GONE, Of.BACK, Of.COME))
    return _query(matching(matching(gone, back, JoinKind.ANTI), come, JoinKind.ANTI))


def won(p: Predicate) -> Query:
    """What was not there before."""
    return _query(matching(predicate_ref(p, Of.COME), predicate_ref(p, Of.GONE), JoinKind.ANTI))


def change_of(p: Predicate) -> str:
    """The name of a predicate's change, as scans of it have it."""
    return f"__deltaic_{p.source.removeprefix('@')}_{State.CHANGE.value}"


@dataclass(frozen=True)
class PredicateRows:
    """The rows of predicates in the view's table, beside what is above them (compare `strata.Layers`)."""

    recursion: Recursion
    table: StrataTable
    derivation: Derivation

    def finished(self, artifact: Node, _upper: Node, op: Field, marks: Sequence[Item]) -> list[Binding]:
        """All bindings of a refresh, after the rounds: what is above the predicates, and what both write."""
        shown = self.derivation.bind("shown", artifact)
        states: list[Node] = []
        for p in self.recursion.predicates:
            stratum = self.recursion.stored[p.source]
            if p.source not in self.derivation.changed:
                continue
            scan = stratum.node.input
            assert isinstance(scan, Scan)
            change = replace(scan, state=State.CHANGE)
            sign = Item(op.name, join_parts("CAST(", col(WEIGHT), f" AS {op.type})"), op.type, False)
            rows = Project(change, (sign, *self.table.row(stratum, text("1L"))))
            items = {item.name: item for item in (*keep(rows), *marks)}
            states.append(Project(rows, tuple(items[name] for name in shown.columns)))
        nullable = tuple(replace(f, nullable=True) for f in shown.schema)
        return [*self.derivation.bindings, Binding("", UnionAll((shown, *states), nullable))]
