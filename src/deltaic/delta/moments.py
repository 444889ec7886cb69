"""Change tables: the change of sums over a node's rows, carried through aggregates below it.

A *moment* of a relation is a sum over its rows, of a value or of 1. The change of a moment is linear
in the relation's delta, so at a plain node it is the sum over the delta's signed rows. An aggregate
below is passed without asking for its old or new answer, since a sum of its sums is a sum over its
input:

    sum over γ_{G; s = sum(x)}(E) of s, by K   =   sum over E of x, by K      if K is decided by G

The rows that travel up are the paper's aggregate-change table: the columns that are not updated, and
what is to be added (Gupta and Mumick, table 4; its rows are named beside the rules). Where a rule's
condition fails the node is a singularity: its insertions and deletions are derived by the base rule,
and the moments go on from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from deltaic.algebra.expr import Expr, col, conjunction, join_parts
from deltaic.algebra.nodes import (
    WEIGHT,
    Aggregate,
    Call,
    Filter,
    Generate,
    Item,
    Join,
    JoinKind,
    Node,
    Project,
    UnionAll,
)
from deltaic.algebra.stability import is_unstable, own_unstable_decisions, unstable_columns
from deltaic.algebra.trees import keep, walk
from deltaic.delta.rules import Derivation


@dataclass(frozen=True)
class Moment:
    """The sum of `value` over the rows that satisfy `where`; a row whose value is NULL adds nothing."""

    value: Expr
    type: str
    where: Expr | None = None

    @property
    def columns(self) -> frozenset[str]:
        return self.value.columns | (self.where.columns if self.where else frozenset())

    def over(self, by: Mapping[str, Expr]) -> Moment:
        where = self.where.substitute(by) if self.where else None
        return Moment(self.value.substitute(by), self.type, where)


Wanted = Mapping[str, Moment]
"""Moments under the names of the columns that hold their change."""


@dataclass(frozen=True)
class Singularity:
    """A node that no change table passes, and the condition that fails there."""

    node: Node
    why: str


@dataclass
class ChangeTables:
    """Carries moments through a tree; what is not carried comes from the base rules of `derivation`."""

    derivation: Derivation
    carries: bool = True
    """Otherwise insertions and deletions come up from every node, as without change tables."""
    singular: list[Singularity] = field(default_factory=list)
    carried: list[Node] = field(default_factory=list)

    def changes(self, node: Node, fixed: frozenset[str], wanted: Wanted) -> Node | None:
        """Rows of the columns `fixed` and, for each moment, what to add; None if nothing below changed.

        Several rows may have the same fixed columns: what they add is added up by whoever uses them.
        """
        if not self.derivation.moves(node):
            return None
        if not self.carries or not any(isinstance(below, Aggregate) for below in walk(node)):
            return self.of_rows(node, fixed, wanted)
        match node:
            case Project():
                return self.through_project(node, fixed, wanted)
            case Filter():
                return self.through_filter(node, fixed, wanted)
            case Generate():
                return self.through_generate(node, fixed, wanted)
            case UnionAll():
                return self.through_union(node, fixed, wanted)
            case Join():
                return self.through_join(node, fixed, wanted)
            case Aggregate():
                return self.through_aggregate(node, fixed, wanted)
        return self.stopped(node, fixed, wanted, f"{type(node).__name__} is not linear")

    # where change tables begin

    def of_rows(self, node: Node, fixed: frozenset[str], wanted: Wanted) -> Node | None:
        """Section 5.1: from the signed rows of any delta."""
        below = self.derivation.delta(node)
        if below is None:
            return None
        shaky = unstable_columns(node)
        exprs = [e for m in wanted.values() for e in (m.value, m.where) if e is not None]
        exprs += [col(name) for name in fixed]
        self.derivation.shaky.extend((node, expr) for expr in exprs if is_unstable(expr, shaky))
        return signed(below, fixed, wanted)

    def stopped(self, node: Node, fixed: frozenset[str], wanted: Wanted, why: str) -> Node | None:
        self.singular.append(Singularity(node, why))
        return self.of_rows(node, fixed, wanted)

    # table 4

    # row 2: what is projected is decided by columns that are not updated, or is itself passed on
    def through_project(self, node: Project, fixed: frozenset[str], wanted: Wanted) -> Node | None:
        exprs = {name: node.by_name[name] for name in fixed}
        inner = {name: moment.over(node.by_name) for name, moment in wanted.items()}
        below = self.changes(node.input, _used(exprs.values()), inner)
        if below is None:
            return None
        types = node.fields
        items = tuple(Item(name, expr, types[name].type) for name, expr in exprs.items())
        return Project(below, items + _passed(wanted))

    # row 1: the condition looks at columns that are not updated
    def through_filter(self, node: Filter, fixed: frozenset[str], wanted: Wanted) -> Node | None:
        self.derivation.shaky.extend(own_unstable_decisions(node))
        below = self.changes(node.input, fixed | node.predicate.columns, wanted)
        return below and _narrowed(Filter(below, node.predicate), fixed, wanted)

    def through_generate(self, node: Generate, fixed: frozenset[str], wanted: Wanted) -> Node | None:
        own = set(node.input.columns)
        if any(not moment.columns <= own for moment in wanted.values()):
            return self.stopped(node, fixed, wanted, "a sum over what a generator makes")
        self.derivation.shaky.extend(own_unstable_decisions(node))
        below = self.changes(node.input, (fixed & own) | node.generator.columns, wanted)
        return below and _narrowed(replace(node, input=below), fixed, wanted)

    # row 5, with every row knowing its branch
    def through_union(self, node: UnionAll, fixed: frozenset[str], wanted: Wanted) -> Node | None:
        parts: list[Node] = []
        for branch in node.branches:
            names = dict(zip(node.columns, map(col, branch.columns), strict=True))
            inner = {name: moment.over(names) for name, moment in wanted.items()}
            below = self.changes(branch, _used(names[name] for name in fixed), inner)
            if below is not None:
                items = tuple(Item(name, names[name], node.fields[name].type) for name in sorted(fixed))
                parts.append(Project(below, items + _passed(wanted)))
        return _all(parts)

    # rows 3, 4 and 7: a side whose moments are wanted is joined with the other one as it is
    def through_join(self, node: Join, fixed: frozenset[str], wanted: Wanted) -> Node | None:
        columns = frozenset[str]().union(*(moment.columns for moment in wanted.values()))
        if node.kind is JoinKind.FULL:
            return self.stopped(node, fixed, wanted, "either side of a full join decides about rows of the other")
        bare = any(not moment.columns for moment in wanted.values())
        if columns and not bare and columns <= set(node.left.columns):
            return self.through_left(node, fixed, wanted)
        if columns and not bare and columns <= set(node.right.columns) and node.kind is JoinKind.INNER:
            items = {item.name: item for item in keep(node)}
            turned = Join(node.right, node.left, JoinKind.INNER, node.on)
            below = self.through_left(turned, fixed, wanted)
            return below and Project(below, tuple(items[n] for n in sorted(fixed)) + _passed(wanted))
        return self.stopped(node, fixed, wanted, "a sum over both sides of a join, or over the padded one")

    # d(A ⋈ B) = dA ⋈ B + A' ⋈ dB; only A is linear where B is looked for, not listed
    def through_left(self, node: Join, fixed: frozenset[str], wanted: Wanted) -> Node | None:
        self.derivation.shaky.extend(own_unstable_decisions(node))
        needed = (fixed | (node.on.columns if node.on else frozenset())) & set(node.left.columns)
        moved = self.changes(node.left, needed, wanted)
        parts: list[Node] = []
        inner = node.kind is JoinKind.INNER
        if moved is not None:
            other = self.derivation.old(node.right) if inner else node.right
            parts.append(_narrowed(Join(moved, other, node.kind, node.on), fixed, wanted))
        if self.derivation.moves(node.right):
            delta = (
                self.derivation.delta_by_right(node)
                if inner
                else self.derivation.delta_by_partner(node, node.left, node.right, node.on)
            )
            if delta is not None:
                parts.append(signed(delta, fixed, wanted))
        return _all(parts)

    # row 6: a group's sums are sums over its rows
    def through_aggregate(self, node: Aggregate, fixed: frozenset[str], wanted: Wanted) -> Node | None:
        groups = {item.name: item.expr for item in node.groups}
        calls = {item.name: item.call for item in node.aggregates}
        inner: dict[str, Moment] = {}
        for name, moment in wanted.items():
            call = calls.get(moment.value.column or "")
            below = linear(call) if call is not None else None
            if below is None or (moment.where and not moment.where.columns <= groups.keys()):
                return self.stopped(node, fixed, wanted, "what is summed up is not itself a sum or a count")
            where = [w for w in (below.where, moment.where and moment.where.substitute(groups)) if w is not None]
            inner[name] = Moment(below.value, below.type, conjunction(*where))
        if not groups or not fixed <= groups.keys():
            return self.stopped(node, fixed, wanted, "a computed value decides what its rows meet")
        exprs = {name: groups[name] for name in fixed}
        self.derivation.shaky.extend(_shaky(node, exprs.values()))
        rows = self.changes(node.input, _used(exprs.values()), inner)
        if rows is None:
            return None
        self.carried.append(node)
        return summed(rows, tuple(item for item in node.groups if item.name in fixed), wanted)


def linear(call: Call) -> Moment | None:
    """The sum over the input's rows that the call is, if it is one whose change can be added exactly."""
    if call.distinct:
        return None
    match call.function, call.arguments:
        case "count", (Expr(parts=("*",)),):
            return Moment(Expr(("1L",)), "bigint", call.where)
        case "count", arguments if arguments:
            known = [join_parts("(", argument, ") IS NOT NULL") for argument in arguments]
            return Moment(Expr(("1L",)), "bigint", conjunction(*known, *([call.where] if call.where else [])))
        case "count_if", (condition,):
            return Moment(Expr(("1L",)), "bigint", conjunction(condition, *([call.where] if call.where else [])))
        case "sum", (argument,) if is_exact(call.types[0]):
            return Moment(argument, call.types[0], call.where)
    return None


def additive(call: Call) -> Moment | None:
    """As `linear`, or a sum that may go out of range: it is not passed on, and whoever adds it up must look."""
    if call.function == "sum" and not call.distinct and is_wide(call.types[0]):
        return Moment(call.arguments[0], call.types[0], call.where)
    return linear(call)


INTEGERS = ("tinyint", "smallint", "int", "bigint")


_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def is_exact(kind: str) -> bool:
    """Whether adding and taking away values of this type leaves no trace, and no sum of them goes out of range."""
    decimal = _DECIMAL.fullmatch(kind)
    return kind in INTEGERS or (decimal is not None and int(decimal[1]) <= 27)


def is_wide(kind: str) -> bool:
    """Whether that is so only while sums stay in range.

    Spark's sum of a decimal has 10 digits more, and 38 at most. Adding two numbers of 38 digits gives up digits behind
    the point, but never the first six."""
    return _wide_sum(kind) is not None


def _wide_sum(kind: str) -> str | None:
    """The type of a sum of such values."""
    decimal = _DECIMAL.fullmatch(kind)
    wide = decimal is not None and int(decimal[1]) > 27 and int(decimal[2]) <= 6
    return f"DECIMAL(38,{decimal[2]})" if decimal is not None and wide else None


def signed(delta: Node, fixed: Iterable[str], wanted: Wanted) -> Project:
    """The moments' change out of signed rows, whose counts are 1 or -1."""
    items = tuple(Item(name, col(name), delta.fields[name].type) for name in sorted(fixed))
    return Project(delta, items + tuple(Item(n, signed_value(m), m.type) for n, m in wanted.items()))


def signed_value(moment: Moment) -> Expr:
    # the smallest number of a type has no counterpart: negated as a wider one it has
    value = join_parts("CAST(", moment.value, " AS BIGINT)") if moment.type in INTEGERS[:3] else moment.value
    sign = join_parts("CASE WHEN ", col(WEIGHT), " < 0 THEN -(", value, ") ELSE (", value, ") END")
    return join_parts("CASE WHEN ", moment.where, " THEN ", sign, " END") if moment.where else sign


def summed(rows: Node, groups: tuple[Item, ...], wanted: Wanted) -> Aggregate:
    """One row per group with what is to be added."""
    return Aggregate(rows, groups, totals(wanted))


def totals(wanted: Wanted) -> tuple[Item, ...]:
    return tuple(Item(n, total_of(n, m.type), _sum_type(m.type)) for n, m in wanted.items())


def total_of(name: str, kind: str) -> Expr:
    """The sum, and no NULL for one that does not fit: where that is no error of Spark's, it is one of ours."""
    total = join_parts("sum(", col(name), ")")
    stored = _wide_sum(kind)
    if stored is None:
        return total
    lost = join_parts(
        "CASE WHEN count(", col(name), f") > 0 THEN CAST(raise_error('ARITHMETIC_OVERFLOW') AS {stored}) END"
    )
    return join_parts("coalesce(CAST(", total, f" AS {stored}), ", lost, ")")


def _sum_type(kind: str) -> str:
    return "bigint" if kind in INTEGERS else "?"


def _passed(wanted: Wanted) -> tuple[Item, ...]:
    return tuple(Item(name, col(name), moment.type) for name, moment in wanted.items())


def _narrowed(node: Node, fixed: frozenset[str], wanted: Wanted) -> Project:
    items = tuple(Item(name, col(name), node.fields[name].type) for name in sorted(fixed))
    return Project(node, items + _passed(wanted))


def _used(exprs: Iterable[Expr]) -> frozenset[str]:
    return frozenset[str]().union(*(expr.columns for expr in exprs))


def _shaky(node: Aggregate, exprs: Iterable[Expr]) -> Iterable[tuple[Node, Expr]]:
    below = unstable_columns(node.input)
    return [(node, expr) for expr in exprs if is_unstable(expr, below)]


def _all(parts: list[Node]) -> Node | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    return UnionAll(tuple(parts), tuple(replace(f, nullable=True) for f in parts[0].schema))
