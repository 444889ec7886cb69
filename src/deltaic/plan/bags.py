"""Stored multiplicities: how often each value of a DISTINCT call, a percentile or a set stands in its group.

A view γ_{G; count(DISTINCT v)}(E) then stores, beside its groups, the rows of γ_{G, v; count(*)}(E), its *bag*, in the
same table and the same commits; the user does not see them. A change is added to the counts of the values it touches.
A value that came to be there or is there no longer is what DISTINCT adds and takes away; a percentile is computed over
the bag of its group. The sources are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deltaic.algebra.expr import Expr, col, conjunction, join_parts, null_safe_equal, text
from deltaic.algebra.nodes import (
    SHOWN,
    WEIGHT,
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
    ScanColumn,
    UnionAll,
)
from deltaic.algebra.trees import keep, null_item, pass_through
from deltaic.delta.rules import never_negative

KIND, COUNT, VALUE_PREFIX = "__deltaic_bag", "__deltaic_bag_count", "__deltaic_bag_v"
"""Hidden columns of such a view: 0 for a group and else the number of the bag; how often; the value."""

BEFORE, AFTER = "__deltaic_before", "__deltaic_after"
_WAS = "_was"


@dataclass(frozen=True)
class Bag:
    """The values of one or more calls, over the aggregate's input; rows where one of them is NULL do not count."""

    number: int
    values: tuple[Expr, ...]
    types: tuple[str, ...]
    where: Expr | None

    @property
    def columns(self) -> tuple[Field, ...]:
        return tuple(Field(f"{VALUE_PREFIX}{self.number}_{n}", kind) for n, kind in enumerate(self.types))

    @property
    def counted(self) -> Expr:
        known = [join_parts("(", value, ") IS NOT NULL") for value in self.values]
        condition = conjunction(*known, *([self.where] if self.where else []))
        assert condition is not None
        return condition

    def groups(self, top: Aggregate) -> tuple[Item, ...]:
        return (*top.groups, *(Item(f.name, v, f.type) for f, v in zip(self.columns, self.values, strict=True)))


def hidden_columns(bags: Sequence[Bag]) -> tuple[Item, ...]:
    """What the row of a group has in the columns of bags."""
    values = (null_item(f) for bag in bags for f in bag.columns)
    return (Item(KIND, text("0"), "int", False), *values, null_item(Field(COUNT, "bigint")))


@dataclass(frozen=True)
class BagTable:
    """A view's table that has bags: `schema` is that of its rows, `key` its columns of the groups of `top`."""

    top: Aggregate
    schema: tuple[Field, ...]
    key: tuple[str, ...]
    view: str

    def row(self, bag: Bag, count: str) -> tuple[Item, ...]:
        """A value of the bag as a row of the table."""
        groups = dict(zip(self.key, [col(item.name) for item in self.top.groups] or [text("0")], strict=True))
        values = {f.name for f in bag.columns}
        items = []
        for field in self.schema:
            if field.name in groups:
                items.append(Item(field.name, groups[field.name], field.type))
            elif field.name in values:
                items.append(pass_through(field))
            elif field.name in (KIND, COUNT, SHOWN):
                own = {KIND: text(str(bag.number)), COUNT: col(count), SHOWN: text("FALSE")}[field.name]
                items.append(Item(field.name, own, field.type, False))
            else:
                items.append(null_item(field))
        return tuple(items)

    def rows(self, bag: Bag) -> Project:
        """All of a bag, from the sources."""
        total = _count(COUNT, text("count(*)"))
        counted = Aggregate(Filter(self.top.input, bag.counted), bag.groups(self.top), (total,))
        return Project(counted, self.row(bag, COUNT))

    def scan(self, bags: Sequence[Bag], suffix: str) -> Filter:
        """Bags as they are stored, every column with a suffix."""
        fields = {f.name: f for f in self.schema}
        names = (*self.key, KIND, COUNT, *self.values)
        columns = (ScanColumn(Field(name + suffix, fields[name].type), name) for name in dict.fromkeys(names))
        numbers = ", ".join(str(bag.number) for bag in bags)
        return Filter(Scan(self.view, tuple(columns)), join_parts(col(KIND + suffix), f" IN ({numbers})"))

    @property
    def values(self) -> tuple[str, ...]:
        """The columns of all bags' values; a row has those of its own bag."""
        return tuple(f.name for f in self.schema if f.name.startswith(VALUE_PREFIX))

    def moved(self, bags: Sequence[Bag], delta: Node) -> Filter:
        """How often more or less often each value of each bag is there. `delta` is the input's, signed."""
        branches = []
        for bag in bags:
            own = {item.name: item for item in bag.groups(self.top)}
            own[KIND] = Item(KIND, text(str(bag.number)), "int", False)
            others = {f.name: null_item(f) for f in self.schema if f.name in self.values}
            names = (*(item.name for item in self.top.groups), KIND, *self.values)
            items = tuple({**others, **own}[name] for name in names)
            branches.append(Project(Filter(delta, bag.counted), (*items, _count(WEIGHT, col(WEIGHT)))))
        nullable = tuple(Field(f.name, f.type, True) for f in branches[0].schema)
        rows = branches[0] if len(branches) == 1 else UnionAll(tuple(branches), nullable)
        equal = tuple(item for item in keep(rows) if item.name != WEIGHT)
        return Filter(Aggregate(rows, equal, (_total(WEIGHT),)), join_parts(col(WEIGHT), " <> 0"))

    def counted(self, whole: Sequence[Bag], others: Sequence[Bag], moved: Ref, touched: Node) -> Project:
        """Each value with how often it was there before and is now: all of the touched groups in the bags `whole`, and
        of the others those that moved."""
        parts: list[Node] = []
        if whole:
            groups = {f"{item.name}_touched": item for item in self.top.groups}
            keys = Project(touched, tuple(Item(n, col(i.name), i.type) for n, i in groups.items()) or (_nothing(),))
            parts.append(Join(self.scan(whole, _WAS), keys, JoinKind.SEMI, self.same_group(_WAS, list(groups))))
        if others:
            names = {item.name: f"{item.name}_moved" for item in keep(moved) if item.name != WEIGHT}
            found = Project(moved, tuple(Item(new, col(n), moved.fields[n].type) for n, new in names.items()))
            same = [null_safe_equal(col(names[name]), col(name + _WAS)) for name in (KIND, *self.values)]
            on = conjunction(self.same_group(_WAS, [names[item.name] for item in self.top.groups]), *same)
            parts.append(Join(self.scan(others, _WAS), found, JoinKind.SEMI, on))
        was = dict(zip((item.name for item in self.top.groups), self.key, strict=bool(self.top.groups)))
        rows: list[Node] = []
        for part in parts:
            own = [Item(f.name, col(was.get(f.name, f.name) + _WAS), f.type) for f in moved.schema if f.name != WEIGHT]
            rows.append(Project(part, (*own, _count(WEIGHT, text("0L")), _count(BEFORE, col(COUNT + _WAS)))))
        rows.append(Project(moved, (*keep(moved), _count(BEFORE, text("0L")))))
        union = UnionAll(tuple(rows), tuple(Field(f.name, f.type, True) for f in rows[0].schema))
        equal = tuple(item for item in keep(union) if item.name not in (WEIGHT, BEFORE))
        summed = Aggregate(union, equal, (_total(WEIGHT), _total(BEFORE)))
        after = never_negative(join_parts("(", col(BEFORE), " + ", col(WEIGHT), ")"))
        return Project(summed, (*equal, _count(BEFORE, col(BEFORE)), _count(AFTER, after)))

    def same_group(self, suffix: str, groups: Sequence[str]) -> Expr:
        pairs = zip(self.key, map(col, groups) if groups else [text("0")], strict=True)
        on = conjunction(*(null_safe_equal(group, col(key + suffix)) for key, group in pairs))
        assert on is not None
        return on

    def flip(self, bag: Bag, value: Expr) -> Expr:
        """What values that came to be there, or are there no longer, add to a sum of `value`."""
        own, before, after = join_parts(col(KIND), f" = {bag.number} AND "), col(BEFORE), col(AFTER)
        came = join_parts("WHEN ", own, before, " = 0 AND ", after, " > 0 THEN ", value)
        gone = join_parts("WHEN ", own, before, " > 0 AND ", after, " = 0 THEN -(", value, ")")
        return join_parts("sum(CASE ", came, " ", gone, " END)")

    def over(self, bag: Bag, call: Expr) -> Expr:
        """A call over the values of a bag that are there now; it passes over NULL."""
        there = join_parts("CASE WHEN ", col(KIND), f" = {bag.number} AND ", col(AFTER), " > 0 THEN ")
        values = {f.name: join_parts(there, col(f.name), " END") for f in bag.columns}
        return call.substitute({**values, COUNT: col(AFTER)})

    def own_groups(self, node: Node) -> tuple[Item, ...]:
        return tuple(pass_through(node.fields[item.name]) for item in self.top.groups)

    def beside(self, table: Node, more: Aggregate) -> Project:
        """The change table with the columns of `more`, which has one row per group at most."""
        names = {item.name: f"{item.name}_more" for item in self.top.groups}
        items = tuple(Item(names.get(i.name, i.name), i.expr, i.type) for i in keep(more))
        on = conjunction(*(null_safe_equal(col(a), col(b)) for a, b in names.items()))
        joined = Join(table, Project(more, items), JoinKind.LEFT, on)
        return Project(joined, tuple(i for i in keep(joined) if i.name not in names.values()))

    def operations(self, bags: Sequence[Bag], counted: Ref, op: Field) -> Project:
        """Every value that moved goes from the table, if it was there, and comes, if it is."""
        both = Generate(counted, text("explode(array(-1, 1))"), False, (op,))
        gone = join_parts(col(op.name), " < 0 AND ", col(BEFORE), " > 0")
        come = join_parts(col(op.name), " > 0 AND ", col(AFTER), " > 0")
        moved = join_parts(col(BEFORE), " <> ", col(AFTER), " AND ((", gone, ") OR (", come, "))")
        items = {item.name: item for item in self.row(bags[0], AFTER)}
        for name in (KIND, *self.values):
            items[name] = pass_through(counted.fields[name])
        return Project(Filter(both, moved), (pass_through(op), *(items[f.name] for f in self.schema)))


def _count(name: str, expr: Expr) -> Item:
    return Item(name, expr, "bigint", False)


def _total(name: str) -> Item:
    return _count(name, join_parts("sum(", col(name), ")"))


def _nothing() -> Item:
    return Item("__deltaic_nothing", text("0"), "int", False)
