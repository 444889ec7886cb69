"""Delete and rederive (Gupta, Mumick, Subrahmanian, section 7): what a change does to a component of predicates.

A rule is a tree over *leaves*: scans of its own component, what else it joins, and what it negates. The changes of
leaves are sets: rows that are gone from them, and rows that have come (statement 2), so

    old  =  (new without come) and gone

and no past is read. For each predicate P of the component, with its rows as they were:

1. over-delete, out of old states. A derivation is lost where a joined row is gone, where a negated one has come, and
   where it reads a row that is over-deleted. A row that a rule derives from outside of the component, as that is now,
   stays, and nothing is lost by it; what rests on the component itself may rest on what is gone.
2. re-derive, out of new states: over-deleted rows that are derived from what is left.
3. insert, out of new states. A derivation is new where a joined row has come, where a negated one is gone, and where it
   reads a row that is inserted.

Each step is semi-naive: its first round reads the changes, and every later one what the round before has found.

Rules may change as well. What a removed rule derived is lost, so all of it is over-deleted, and the rule takes no
further part. What an added rule derives is new; it takes part in steps 2 and 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from deltaic.algebra.expr import Expr, col, conjunction, join_parts, null_safe_equal
from deltaic.algebra.nodes import (
    Aggregate,
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
    UnionAll,
)
from deltaic.algebra.recursion import PREFIX, Component, Predicate
from deltaic.algebra.simplify import simplify
from deltaic.algebra.trees import keep, pass_through, sources, walk, with_leaves
from deltaic.delta.graph import Graph, is_joined


class Place(Enum):
    """Where a leaf stands in its rule."""

    OWN = "its own component"
    JOINED = "joined"
    NEGATED = "negated"


class Of(Enum):
    """A relation of a leaf, or of a predicate."""

    OLD, NEW = "old", "new"
    GONE, COME = "gone", "come"
    LEFT = "left"
    """Of a predicate: without what is over-deleted."""
    BACK = "back"
    """What is re-derived of that."""
    NOW = "now"
    """Both."""
    FRONT = "front"
    """What the round before found."""


@dataclass(frozen=True)
class Leaf:
    place: Place
    node: Node

    @property
    def predicate(self) -> str:
        assert isinstance(self.node, Scan)
        return self.node.source


@dataclass(frozen=True)
class Rule:
    """`node` is the rule's tree over `Ref(leaf_name(n))` in the place of its leaves."""

    node: Node
    leaves: tuple[Leaf, ...]

    @staticmethod
    def of(node: Node, own: frozenset[str], *, apart: bool = False) -> Rule:
        cutting = _Cutting(own, [], apart)
        return Rule(cutting.cut(node), tuple(cutting.leaves))

    def at(self, place: Place) -> list[int]:
        return [n for n, leaf in enumerate(self.leaves) if leaf.place is place]


def leaf_name(number: int) -> str:
    return f"@leaf{number}"


@dataclass
class _Cutting:
    own: frozenset[str]
    leaves: list[Leaf]
    apart: bool

    def cut(self, node: Node) -> Node:
        return self.below(node) if self.is_cut(node) else self.leaf(Place.JOINED, node)

    def is_cut(self, node: Node) -> bool:
        """Whether the leaves of a tree are looked at one by one."""
        return bool(self.own & set(sources(node))) or (self.apart and any(isinstance(n, Join) for n in walk(node)))

    def below(self, node: Node) -> Node:
        """A tree that reads the component, or stands in a join with what does."""
        if isinstance(node, Scan) and node.source in self.own:
            return self.leaf(Place.OWN, node)
        match node:
            case Join(kind=JoinKind.INNER):
                return replace(node, left=self.below(node.left), right=self.below(node.right))
            case Filter() | Project() if is_joined(node):
                return replace(node, input=self.below(node.input))
        if not self.is_cut(node):
            return self.leaf(Place.JOINED, node)
        match node:
            case Project() | Filter() | Generate():
                return replace(node, input=self.below(node.input))
            case Join(kind=JoinKind.SEMI | JoinKind.ANTI):
                place = Place.JOINED if node.kind is JoinKind.SEMI else Place.NEGATED
                return replace(node, left=self.below(node.left), right=self.leaf(place, node.right))
        raise TypeError(f"a rule cannot read its own component through {type(node).__name__}")

    def leaf(self, place: Place, node: Node) -> Ref:
        self.leaves.append(Leaf(place, node))
        return Ref(leaf_name(len(self.leaves) - 1), node.schema)


Relation = Callable[[Leaf, Of], Node]
"""The rows of a leaf in one of its relations, under the leaf's column names."""


@dataclass(frozen=True)
class Round:
    """What a round finds of a predicate: the first one, and those after it; None where it can find nothing."""

    predicate: Predicate
    first: Node | None
    again: Node | None


@dataclass(frozen=True)
class AlteredRules:
    """By the predicate that they are for: rules that are no longer there, and those among its rules that are new."""

    removed: Mapping[str, tuple[Node, ...]] = field(default_factory=dict)
    added: Mapping[str, tuple[Node, ...]] = field(default_factory=dict)

    @property
    def predicates(self) -> frozenset[str]:
        return frozenset({**self.removed, **self.added})


@dataclass(frozen=True)
class Dred:
    """`changed`: whether a leaf may have changed. `altered`: rules that were added or removed."""

    component: Component
    relation: Relation
    changed: Callable[[Leaf], bool]
    altered: AlteredRules = field(default_factory=AlteredRules)
    rules: Mapping[str, tuple[Rule, ...]] = field(init=False)

    def __post_init__(self) -> None:
        own = self.component.sources
        apart = self.component.apart
        rules = {p.source: tuple(Rule.of(r, own, apart=apart) for r in p.rules) for p in self.component.predicates}
        object.__setattr__(self, "rules", rules)

    # the steps

    def evaluate(self) -> list[Round]:
        """All rows, from nothing."""

        def round_of(p: Predicate) -> Round:
            first = [self.term(rule, {}, Of.NEW) for rule in self.rules[p.source] if not rule.at(Place.OWN)]
            again = list(self.recursive(p, Of.NEW, Of.COME))
            return Round(p, self.found(p, first), self.found(p, again, [Of.COME]))

        return [round_of(p) for p in self.component.predicates]

    def over_delete(self) -> list[Round]:
        def round_of(p: Predicate) -> Round:
            first = list(self.driven(p, Of.OLD, Of.OLD, joined=Of.GONE, negated=Of.COME))
            first += [_as_it_was(rule) for rule in self.altered.removed.get(p.source, ())]
            again = list(self.recursive(p, Of.OLD, Of.OLD, self.kept(p)))
            return Round(p, self.unsupported(p, first), self.unsupported(p, again, [Of.GONE]))

        return [round_of(p) for p in self.component.predicates]

    def rederive(self) -> list[Round]:
        def round_of(p: Predicate) -> Round:
            first = [self.rederived(rule, p) for rule in self.rules[p.source]]
            again = [self.among(term, p, Of.GONE) for term in self.recursive(p, Of.NEW, Of.NOW)]
            return Round(p, self.found(p, first), self.found(p, again, [Of.BACK]))

        return [round_of(p) for p in self.component.predicates]

    def insert(self) -> list[Round]:
        def round_of(p: Predicate) -> Round:
            first = list(self.driven(p, Of.NEW, Of.NOW, joined=Of.COME, negated=Of.GONE))
            first += [self.term(rule, {}, Of.NEW, Of.NOW) for rule in self.new(p)]
            again = list(self.recursive(p, Of.NEW, Of.NEW))
            return Round(p, self.found(p, first, [Of.NOW]), self.found(p, again, [Of.NOW, Of.COME]))

        return [round_of(p) for p in self.component.predicates]

    # rules

    def new(self, p: Predicate) -> list[Rule]:
        added = self.altered.added.get(p.source, ())
        return [rule for rule, node in zip(self.rules[p.source], p.rules, strict=True) if node in added]

    def kept(self, p: Predicate) -> list[Rule]:
        new = self.new(p)
        return [rule for rule in self.rules[p.source] if rule not in new]

    # terms

    def driven(self, p: Predicate, state: Of, own: Of, *, joined: Of, negated: Of) -> Iterator[Node]:
        """Derivations by the rules of a predicate that a change of a leaf decides."""
        for rule in self.kept(p):
            for number, leaf in enumerate(rule.leaves):
                if leaf.place is Place.JOINED and self.changed(leaf):
                    yield self.term(rule, {number: joined}, state, own, first=number)
                elif leaf.place is Place.NEGATED and self.changed(leaf):
                    yield self.term(_seen_too(rule, number), {len(rule.leaves): negated}, state, own)

    def recursive(self, p: Predicate, state: Of, own: Of, rules: Sequence[Rule] | None = None) -> Iterator[Node]:
        """Derivations that read what the round before found."""
        for rule in self.rules[p.source] if rules is None else rules:
            for number in rule.at(Place.OWN):
                yield self.term(rule, {number: Of.FRONT}, state, own, first=number)

    def term(
        self, rule: Rule, chosen: Mapping[int, Of], state: Of, own: Of | None = None, first: int | None = None
    ) -> Node:
        """The rule with some leaves as chosen and the others in a state; joins begin with the first one."""
        tree = rule.node if first is None else _beginning_with(rule.node, leaf_name(first))
        places = {leaf_name(n): (n, leaf) for n, leaf in enumerate(rule.leaves)}

        def turn(node: Node) -> Node:
            if not isinstance(node, Ref) or node.name not in places:
                return node
            number, leaf = places[node.name]
            usual = own if leaf.place is Place.OWN else state
            of = chosen.get(number, usual)
            assert of is not None
            return self.relation(leaf, of)

        return with_leaves(tree, turn)

    def rederived(self, rule: Rule, p: Predicate) -> Node:
        """The rows of a rule that were over-deleted, found from them."""
        lost = tuple(replace(f, name=f"{f.name}_lost") for f in p.fields)
        gone = Project(predicate_ref(p, Of.GONE), tuple(_renamed(f, lost[n]) for n, f in enumerate(p.fields)))
        number = len(rule.leaves)
        leaf = Leaf(Place.JOINED, gone)
        head = [col(name) for name in rule.node.columns]
        pairs = [null_safe_equal(expr, col(f.name)) for expr, f in zip(head, lost, strict=True)]
        met = _meeting(rule.node, Ref(leaf_name(number), lost), pairs)
        tree = _beginning_with(Project(met, keep(rule.node)), leaf_name(number))
        whole = with_leaves(tree, lambda node: gone if node == Ref(leaf_name(number), lost) else node)
        return self.term(Rule(whole, (*rule.leaves, leaf)), {}, Of.NEW, Of.LEFT)

    def among(self, term: Node, p: Predicate, of: Of) -> Node:
        """Those rows of a term that a relation of the predicate has."""
        return matching(_headed(term, p), predicate_ref(p, of), JoinKind.SEMI)

    def unsupported(self, p: Predicate, terms: Sequence[Node], without: Sequence[Of] = ()) -> Node | None:
        """Those rows that no rule of one leaf derives from outside of the component; step 2 finds what others do."""
        rows = self.found(p, terms, without)
        for rule in self.rules[p.source]:
            if rows is not None and len(rule.leaves) == 1 and not rule.at(Place.OWN):
                derived = simplify(_headed(self.term(rule, {}, Of.NEW), p))
                rows = matching(rows, derived, JoinKind.ANTI)
        return rows

    def found(self, p: Predicate, terms: Sequence[Node], without: Sequence[Of] = ()) -> Node | None:
        """The rows of some terms, each once, without those that are known."""
        if not terms:
            return None
        heads = [_headed(term, p) for term in terms]
        rows: Node = heads[0] if len(heads) == 1 else UnionAll(tuple(heads), p.fields)
        rows = Aggregate(rows, tuple(map(pass_through, p.fields)))
        for of in without:
            rows = matching(rows, predicate_ref(p, of), JoinKind.ANTI)
        return rows


def _as_it_was(rule: Node) -> Node:
    """A rule that is no longer there, over all predicates as they were. Tables do not change while rules do."""

    def turn(node: Node) -> Node:
        if isinstance(node, Scan) and node.source.startswith(PREFIX):
            return own_leaf(Leaf(Place.OWN, node), Of.OLD)
        return node

    return with_leaves(rule, turn)


def relation_of(predicate: str, of: Of) -> str:
    """What a relation of a predicate is called, by its source."""
    return f"__deltaic_{predicate.removeprefix('@')}_{of.value}"


def predicate_ref(p: Predicate, of: Of) -> Ref:
    return Ref(relation_of(p.source, of), p.fields)


def own_leaf(leaf: Leaf, of: Of) -> Node:
    """A scan of the component's own, in one of its relations."""
    scan = leaf.node
    assert isinstance(scan, Scan)
    fields = tuple(Field(c.origin, c.field.type) for c in scan.scanned)
    rows = Ref(relation_of(scan.source, of), fields)
    return Project(rows, tuple(_renamed(f, c.field) for f, c in zip(fields, scan.scanned, strict=True)))


def _renamed(own: Field, given: Field) -> Item:
    return Item(given.name, col(own.name), given.type, given.nullable)


def _headed(term: Node, p: Predicate) -> Project:
    """A rule's answer as rows of its predicate. Of the two zeros a set has one."""
    items = []
    for f, name in zip(p.fields, term.columns, strict=True):
        expr = col(name)
        if f.type in ("float", "double"):
            expr = join_parts("(", expr, f" + CAST(0 AS {f.type}))")
        items.append(Item(f.name, expr, f.type))
    return Project(term, tuple(items))


def matching(rows: Node, other: Node, kind: JoinKind) -> Join:
    pairs = [(f.name, f"{f.name}_known") for f in other.schema]
    renamed = simplify(Project(other, tuple(Item(b, col(a), other.fields[a].type) for a, b in pairs)))
    on = conjunction(*(null_safe_equal(col(a), col(b)) for a, b in pairs))
    return Join(rows, renamed, kind, on)


def _seen_too(rule: Rule, number: int) -> Rule:
    """The rule only for what meets a row of another relation of a negated leaf, which becomes its last leaf."""
    name, leaf = leaf_name(number), rule.leaves[number]

    def turn(node: Node) -> Node:
        if isinstance(node, Join) and node.kind is JoinKind.ANTI and node.right == Ref(name, leaf.node.schema):
            also = Ref(leaf_name(len(rule.leaves)), leaf.node.schema)
            return replace(node, left=Join(node.left, also, JoinKind.SEMI, node.on))
        match node:
            case Project() | Filter() | Generate():
                return replace(node, input=turn(node.input))
            case Join():
                return replace(node, left=turn(node.left), right=turn(node.right))
        return node

    return Rule(turn(rule.node), (*rule.leaves, replace(leaf, place=Place.JOINED)))


def _meeting(node: Node, other: Ref, conditions: Sequence[Expr]) -> Node:
    """The node joined with another relation, as far down as the conditions can be told."""
    match node:
        case Project():
            below = [condition.substitute(node.by_name) for condition in conditions]
            return replace(node, input=_meeting(node.input, other, below))
        case Filter() if not is_joined(node):
            return replace(node, input=_meeting(node.input, other, conditions))
        case Join(kind=JoinKind.SEMI | JoinKind.ANTI):
            return replace(node, left=_meeting(node.left, other, conditions))
    rows: Node = Join(node, other, JoinKind.INNER, None)
    for condition in conditions:  # each by itself, so that joins can be put in order by it
        rows = Filter(rows, condition)
    return rows


def _beginning_with(node: Node, name: str) -> Node:
    """The tree with its joins in an order that begins with a leaf, each next one joined by a condition if one is."""
    match node:
        case Join(kind=JoinKind.INNER):
            return _ordered(node, name)
        case Filter() | Project() if is_joined(node):
            return _ordered(node, name)
        case Project() | Filter() | Generate():
            return replace(node, input=_beginning_with(node.input, name))
        case Join(kind=JoinKind.SEMI | JoinKind.ANTI):
            return replace(node, left=_beginning_with(node.left, name))
    return node


def _ordered(node: Node, name: str) -> Node:
    graph = Graph.of(node)
    left = [leaf if not _has(leaf, name) else _beginning_with(leaf, name) for leaf in graph.leaves]
    start = next((leaf for leaf in left if _has(leaf, name)), None)
    if start is None:
        return node
    pending = list(graph.conditions)
    rows: Node = start
    left.remove(start)
    while True:
        here = set(rows.columns)
        decided = [c for c in pending if c.columns <= here]
        for condition in decided:
            rows = Filter(rows, condition)
            pending.remove(condition)
        if not left:
            break
        following = next((leaf for leaf in left if any(_joins(c, here, leaf) for c in pending)), left[0])
        left.remove(following)
        here |= set(following.columns)
        on = [c for c in pending if c.columns <= here]
        rows = Join(rows, following, JoinKind.INNER, conjunction(*on))
        pending = [c for c in pending if c not in on]
    return Project(rows, tuple(pass_through(rows.fields[f.name]) for f in node.schema))


def _joins(condition: Expr, here: set[str], leaf: Node) -> bool:
    own = set(leaf.columns)
    return bool(condition.columns & own) and bool(condition.columns & here) and condition.columns <= here | own


def _has(node: Node, name: str) -> bool:
    return any(isinstance(n, Ref) and n.name == name for n in walk(node))
