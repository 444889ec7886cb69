"""Groups of sums and counts whose input changed: both answers from one state of the input.

What the base rule reads twice, the touched groups as they are and as they were, is told by one of the two and the
change, if the aggregate is a sum over rows:

    γ(U' | K) and γ(U | K)  =  γ over  U' | K  and  dU      U = U' - dU,  K = the groups that dU touches

Each row carries how often it counts now and how often it did; one aggregation sums up both. A group whose answer is
the same is no change. That is algorithm 6.1 of Gupta, Mumick and Subrahmanian, with T_new found from T_old and the
change, or the other way round: the present is cheaper to read on Delta. Quass' expressions (appendix A of Gupta and
Mumick) are the same from the old state, but list groups that come out equal as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from deltaic.algebra.expr import Expr, col, conjunction, join_parts, null_safe_equal, text
from deltaic.algebra.nodes import (
    WEIGHT,
    WEIGHT_FIELD,
    Aggregate,
    Apply,
    Filter,
    Generate,
    Item,
    Join,
    JoinKind,
    Node,
    Project,
    Scan,
    UnionAll,
)
from deltaic.algebra.stability import is_unstable, own_unstable_decisions, unstable_columns
from deltaic.algebra.trees import pass_through, walk
from deltaic.delta.joins import JoinTrees
from deltaic.delta.moments import INTEGERS, Moment, linear
from deltaic.delta.near import equal_pairs
from deltaic.delta.restrict import restrict
from deltaic.delta.rules import OTHER_WEIGHT, Derivation, ordered, renamed_weight, sum_of, with_weight

NOW, WAS = "__deltaic_now", "__deltaic_was"
"""How often a row counts in the new and in the old state."""

SET_PREFIX = "@stratum"
"""Of the names of sources that are sets inside the view, stored with it."""

LEVELS = 2
"""Each level of aggregates is one more read of the sources; the base rule has two for all of them."""


@dataclass
class Groups(JoinTrees):
    """The rules for inner joins, and for aggregates that are sums: from the new state of their input and the change."""

    def delta_of_groups(self, node: Aggregate) -> Node | None:
        if not self.moves(node):
            return None
        levels = sum(isinstance(n, Aggregate) and self.moves(n) for n in walk(node))
        if levels > LEVELS or not all(self._is_plain(n) for n in walk(node) if self.moves(n)):
            return super().delta_of_groups(node)
        return _both_states(self, node, of_old=False, only_different=True)

    def _is_plain(self, node: Node) -> bool:
        """Whether the node's own delta is to be had without evaluating it twice, and to be trusted."""
        if isinstance(node, Aggregate):
            return can_be_told(node)
        keyed = not isinstance(node, Project | Filter | Join | UnionAll | Generate) and bool(node.inputs)
        return not keyed and not (isinstance(node, Join) and node.kind is not JoinKind.INNER) and _is_stable(node)


@dataclass
class Counting(Derivation):
    """The delta rules of Gupta, Mumick and Subrahmanian: aggregates by algorithm 6.1, a join by one term per side."""

    only_different: bool = True
    """Otherwise as Quass has it: a touched group that comes out equal goes and comes."""

    # d(A x B) = dA x B + A' x dB
    def delta_inner_join(self, node: Join) -> Node:
        left, right = self.delta(node.left), self.delta_by_right(node)
        terms = [] if right is None else [right]
        if left is not None:
            terms.insert(0, ordered(Join(left, self.old(node.right), JoinKind.INNER, node.on), node.columns))
        return sum_of(terms)

    # Definition 6.1. Where a row of A meets one row at most of the set Q, a row that comes to Q or goes from it says by
    # itself what becomes of those it meets:   d(A ⋉ Q) by Q  =  A ⋈ dQ      d(A ▷ Q) by Q  =  - A ⋈ dQ
    def delta_by_partner(self, node: Join | Apply, left: Node, right: Node, on: Expr | None) -> Node | None:
        told = isinstance(node, Join) and node.kind in (JoinKind.SEMI, JoinKind.ANTI) and _meets_one(left, right, on)
        moved = self.delta(right) if told else None
        if moved is None or not isinstance(node, Join):
            return super().delta_by_partner(node, left, right, on)
        met = Join(self.old(left), moved, JoinKind.INNER, on)
        weight = col(WEIGHT) if node.kind is JoinKind.SEMI else join_parts("-", col(WEIGHT))
        return with_weight(met, node.columns, weight)

    def delta_of_groups(self, node: Aggregate) -> Node | None:
        if not self.moves(node):
            return None
        if not can_be_told(node):
            return super().delta_of_groups(node)
        return _both_states(self, node, of_old=True, only_different=self.only_different)


@dataclass
class Expanded(Counting):
    """A join by all that meets in it, each relation changed or as it was: 2^n - 1 terms (Blakeley, Larson, Tompa)."""

    # d(A x B) = dA x B + A x dB + dA x dB
    def delta_inner_join(self, node: Join) -> Node:
        left, right = self.delta(node.left), self.delta(node.right)
        terms: list[Node] = []
        if left is not None:
            terms.append(ordered(Join(left, self.old(node.right), JoinKind.INNER, node.on), node.columns))
        if right is not None:
            terms.append(ordered(Join(self.old(node.left), right, JoinKind.INNER, node.on), node.columns))
        if left is not None and right is not None:
            both = Join(left, renamed_weight(right), JoinKind.INNER, node.on)
            terms.append(with_weight(both, node.columns, join_parts(col(WEIGHT), " * ", col(OTHER_WEIGHT))))
        return sum_of(terms)


def _meets_one(left: Node, right: Node, on: Expr | None) -> bool:
    """Whether all columns of a set are equal to some of the left side: of another type, several may be equal to one."""
    if not isinstance(right, Scan) or not right.source.startswith(SET_PREFIX):
        return False
    pairs = [(a, b) for one, two, _ in equal_pairs(on) for a, b in ((one, two), (two, one))]
    own, theirs = left.fields, right.fields
    return set(right.columns) <= {a for a, b in pairs if a in theirs and b in own and theirs[a].type == own[b].type}


def can_be_told(node: Aggregate) -> bool:
    """Whether all that the aggregate computes are sums over rows that come out the same every time."""
    moments = [linear(item.call) if item.call else None for item in node.aggregates]
    exprs = [item.expr for item in (*node.groups, *node.aggregates)]
    shaky = unstable_columns(node.input)
    return None not in moments and _is_stable(node) and not any(is_unstable(expr, shaky) for expr in exprs)


def _is_stable(node: Node) -> bool:
    return not any(True for _ in own_unstable_decisions(node))


@dataclass(frozen=True)
class _Sum:
    """One of an aggregate's values, as columns of the aggregation that finds both of its states."""

    item: Item
    moment: Moment
    number: int

    @property
    def is_count(self) -> bool:
        return self.item.call is not None and self.item.call.function != "sum"

    @property
    def value(self) -> Item:
        """What a row adds. The smallest number of a type has no counterpart: of a wider one it has."""
        found = self.moment.value
        if self.moment.type in INTEGERS[:3]:
            found = join_parts("CAST(", found, " AS BIGINT)")
        if self.moment.where is not None:
            found = join_parts("CASE WHEN ", self.moment.where, " THEN ", found, " END")
        return Item(f"__deltaic_v{self.number}", found, self.moment.type)

    def total(self, state: str) -> Item:
        value, sign = col(self.value.name), col(state)
        signed = join_parts("CASE WHEN ", sign, " = 1 THEN ", value, " WHEN ", sign, " = -1 THEN -", value, " END")
        return Item(f"{state}_{self.number}", join_parts("sum(", signed, ")"), self.item.type)

    def known(self, state: str) -> Item:
        """How many rows have a value: the sum of none is NULL."""
        counted = join_parts("CASE WHEN ", col(self.value.name), " IS NOT NULL THEN ", col(state), " ELSE 0L END")
        return Item(f"{state}_n{self.number}", join_parts("sum(", counted, ")"), "bigint", False)

    def columns(self, state: str) -> tuple[Item, ...]:
        return (self.known(state),) if self.is_count else (self.total(state), self.known(state))

    def result(self, state: str) -> Expr:
        known = col(self.known(state).name)
        if self.is_count:
            return join_parts("coalesce(", known, ", 0L)")
        return join_parts("CASE WHEN ", known, " > 0 THEN ", col(self.total(state).name), " END")


def _both_states(derivation: Derivation, node: Aggregate, *, of_old: bool, only_different: bool) -> Node | None:
    found = derivation.delta(node.input)
    if found is None:
        return None
    moved = derivation.bind("rows", found)
    sums = [_Sum(item, _moment(item), number) for number, item in enumerate(node.aggregates)]
    state = derivation.old(node.input) if of_old else node.input
    if node.groups:
        state = restrict(state, tuple(i.expr for i in node.groups), derivation.keys_from(node, moved))
    sign = col(WEIGHT) if of_old else join_parts("-", col(WEIGHT))
    here, there = (WAS, NOW) if of_old else (NOW, WAS)
    values = (*node.groups, *(s.value for s in sums))
    once, never = text("1L"), text("0L")
    standing = Project(state, (*values, _count(NOW, once), _count(WAS, once)))
    moving = Project(moved, (*values, _count(here, never), _count(there, sign)))
    moving = Project(moving, tuple(pass_through(moving.fields[name]) for name in standing.columns))
    rows = UnionAll((standing, moving), standing.schema)
    counts = tuple(Item(f"{s}_rows", join_parts("sum(", col(s), ")"), "bigint", False) for s in (NOW, WAS))
    groups = tuple(pass_through(rows.fields[item.name]) for item in node.groups)
    both: Node = Aggregate(
        rows, groups, (*counts, *(i for s in sums for state in (NOW, WAS) for i in s.columns(state)))
    )
    if only_different:
        both = Filter(both, _different(node, sums))
    return _as_rows(node, both, sums)


def _different(node: Aggregate, sums: list[_Sum]) -> Expr:
    equal = [null_safe_equal(s.result(NOW), s.result(WAS)) for s in sums]
    if node.groups:
        equal.append(join_parts("(", _is_there(NOW), ") = (", _is_there(WAS), ")"))
    same = conjunction(*equal)
    return text("FALSE") if same is None else join_parts("NOT (", same, ")")


def _as_rows(node: Aggregate, both: Node, sums: list[_Sum]) -> Node:
    """The new answer of every group with 1, the old one with -1, where there is a group."""
    signs = Generate(both, text("explode(array(1L, -1L))"), False, (WEIGHT_FIELD,))
    is_new = join_parts(col(WEIGHT), " > 0")
    shown: Node = signs
    if node.groups:  # an aggregate without groups has its one row in any state
        shown = Filter(
            signs, join_parts("CASE WHEN ", is_new, " THEN ", _is_there(NOW), " ELSE ", _is_there(WAS), " END")
        )
    items = [pass_through(both.fields[item.name]) for item in node.groups]
    for s in sums:
        value = join_parts("CASE WHEN ", is_new, " THEN ", s.result(NOW), " ELSE ", s.result(WAS), " END")
        items.append(Item(s.item.name, value, s.item.type, s.item.nullable))
    return Project(shown, (*items, pass_through(WEIGHT_FIELD)))


def _is_there(state: str) -> Expr:
    return join_parts(col(f"{state}_rows"), " > 0")


def _count(name: str, expr: Expr) -> Item:
    return Item(name, expr, "bigint", False)


def _moment(item: Item) -> Moment:
    moment = linear(item.call) if item.call else None
    assert moment is not None
    return moment
