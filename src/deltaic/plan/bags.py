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
    keep,
    null_item,
    pass_through,
)
from deltaic.delta.rules import never_negative

KIND, COUNT, VALUE_PREFIX = "__deltaic_bag", "__deltaic_bag_count", "__deltaic_bag_v"
"""Hidden columns of such a view: 0 for a group and else the number of the bag; how often; the value."""

BEFORE, AFTER = "__deltaic_before", "__deltaic_after"


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
        total = Item(COUNT, text("count(*)"), "bigint", False)
        counted = Aggregate(Filter(self.top.input, bag.counted), bag.groups(self.top), (total,))
        return Project(counted, self.row(bag, COUNT))

    def scan(self, bag: Bag, suffix: str) -> Filter:
        """The bag as it is stored, every column with a suffix."""
        fields = {f.name: f for f in self.schema}
        names = (*self.key, KIND, COUNT, *(f.name for f in bag.columns))
        columns = (ScanColumn(Field(name + suffix, fields[name].type), name) for name in dict.fromkeys(names))
        return Filter(Scan(self.view, tuple(columns)), join_parts(col(KIND + suffix), f" = {bag.number}"))

    def same_group(self, suffix: str, groups: Sequence[str]) -> Expr:
        pairs = zip(self.key, map(col, groups) if groups else [text("0")], strict=True)
        on = conjunction(*(null_safe_equal(group, col(key + suffix)) for key, group in pairs))
        assert on is not None
        return on

    def changed(self, bag: Bag, delta: Node) -> Project:
        """The touched values with how often each was there before and is now. `delta` is the input's, signed."""
        total = Item(WEIGHT, join_parts("sum(", col(WEIGHT), ")"), "bigint", False)
        moved = Aggregate(Filter(delta, bag.counted), bag.groups(self.top), (total,))
        suffix = f"_was{bag.number}"
        same = [null_safe_equal(col(f.name), col(f.name + suffix)) for f in bag.columns]
        on = conjunction(self.same_group(suffix, [i.name for i in self.top.groups]), *same)
        joined = Join(Filter(moved, join_parts(col(WEIGHT), " <> 0")), self.scan(bag, suffix), JoinKind.LEFT, on)
        before = join_parts("coalesce(", col(COUNT + suffix), ", 0L)")
        own = tuple(pass_through(moved.fields[item.name]) for item in bag.groups(self.top))
        after = never_negative(join_parts("(", before, " + ", col(WEIGHT), ")"))
        return Project(joined, (*own, Item(BEFORE, before, "bigint", False), Item(AFTER, after, "bigint", False)))

    def flips(self, moved: Ref, parts: Sequence[tuple[str, Expr, str]]) -> Aggregate:
        """What values that came to be there, or are there no longer, add to parts: name, value and type of each."""
        before, after = col(BEFORE), col(AFTER)

        def total(value: Expr) -> Expr:
            came = join_parts("WHEN ", before, " = 0 AND ", after, " > 0 THEN ", value)
            gone = join_parts("WHEN ", before, " > 0 AND ", after, " = 0 THEN -(", value, ")")
            return join_parts("sum(CASE ", came, " ", gone, " END)")

        return Aggregate(moved, self.own_groups(moved), tuple(Item(n, total(v), kind) for n, v, kind in parts))

    def over(self, bag: Bag, moved: Ref, touched: Node, parts: Sequence[tuple[str, Expr, str]]) -> Aggregate:
        """Parts computed over the bags of touched groups, as they are now."""
        suffix = f"_is{bag.number}"
        groups = {f"{item.name}_touched": item for item in self.top.groups}
        keys = Project(touched, tuple(Item(n, col(i.name), i.type) for n, i in groups.items()) or (_nothing(),))
        there = Join(self.scan(bag, suffix), keys, JoinKind.SEMI, self.same_group(suffix, list(groups)))
        old = zip(self.top.groups, self.key, strict=bool(self.top.groups))
        names = [Item(item.name, col(key + suffix), item.type) for item, key in old]
        names += [Item(f.name, col(f.name + suffix), f.type) for f in bag.columns]
        stored = Project(there, (*names, Item(COUNT, col(COUNT + suffix), "bigint", False)))
        own = tuple(pass_through(moved.fields[item.name]) for item in names)
        more = Project(moved, (*own, Item(COUNT, join_parts(col(AFTER), " - ", col(BEFORE)), "bigint", False)))
        total = Item(COUNT, join_parts("sum(", col(COUNT), ")"), "bigint", False)
        now = Aggregate(UnionAll((stored, more), stored.schema), own, (total,))
        present = Filter(now, join_parts(col(COUNT), " > 0"))
        return Aggregate(present, self.own_groups(moved), tuple(Item(n, e, kind) for n, e, kind in parts))

    def own_groups(self, node: Node) -> tuple[Item, ...]:
        return tuple(pass_through(node.fields[item.name]) for item in self.top.groups)

    def beside(self, table: Node, more: Aggregate) -> Project:
        """The change table with the columns of `more`, which has one row per group at most."""
        names = {item.name: f"{item.name}_more" for item in self.top.groups}
        items = tuple(Item(names.get(i.name, i.name), i.expr, i.type) for i in keep(more))
        on = conjunction(*(null_safe_equal(col(a), col(b)) for a, b in names.items()))
        joined = Join(table, Project(more, items), JoinKind.LEFT, on)
        return Project(joined, tuple(i for i in keep(joined) if i.name not in names.values()))

    def operations(self, bag: Bag, moved: Ref, op: Field) -> Project:
        """Every touched value goes from the table, if it was there, and comes, if it is."""
        both = Generate(moved, text("explode(array(-1, 1))"), False, (op,))
        gone = join_parts(col(op.name), " < 0 AND ", col(BEFORE), " > 0")
        come = join_parts(col(op.name), " > 0 AND ", col(AFTER), " > 0")
        kept = Filter(both, join_parts("(", gone, ") OR (", come, ")"))
        return Project(kept, (pass_through(op), *self.row(bag, AFTER)))


def _nothing() -> Item:
    return Item("__deltaic_nothing", text("0"), "int", False)
