"""One row per touched group: what changed of it, by the delta rules and from the bags that the view stores."""

from __future__ import annotations

from dataclasses import dataclass, replace

from deltaic.algebra.nodes import WEIGHT, Aggregate, Item, Node, Project, Ref
from deltaic.algebra.stability import is_unstable, unstable_columns
from deltaic.algebra.trees import keep
from deltaic.delta.moments import ChangeTables, signed_value, totals
from deltaic.delta.netting import merged_exactly
from deltaic.delta.rules import Derivation
from deltaic.plan.fold import change_items, counts_copies, one_by_one
from deltaic.plan.maintain import Maintenance
from deltaic.plan.state import Fold


@dataclass(frozen=True)
class Change:
    """`table` has one row per touched group, its columns and what changed of every part; None if nothing did."""

    table: Node | None
    how: ChangeTables
    bags: Ref | None = None
    """How often values of the bags were there, and are now."""


def change_table(way: Maintenance, derivation: Derivation) -> Change:
    assert way.kept is not None
    top, parts = way.kept.top, way.kept.parts
    tables = ChangeTables(derivation, carries=way.technique == "auto")
    groups = tuple(i.expr for i in top.groups)
    derivation.shaky.extend((top, e) for e in groups if is_unstable(e, unstable_columns(top.input)))
    bags = way.bags
    parts = tuple(part for part in parts if part.bag is None)
    wanted = {p.name: p.moment for p in parts if p.moment is not None}
    used = frozenset[str]().union(*(e.columns for e in groups))
    items = tuple(item for part in parts for item in change_items(part))
    if len(wanted) == len(parts) and not bags:
        rows = tables.changes(top.input, used, wanted)
        return Change(None if rows is None else Aggregate(rows, top.groups, items), tables)
    delta = derivation.delta(top.input)
    if delta is None:
        return Change(None, tables)
    if bags:
        delta = derivation.bind("rows", delta)
    shaky = unstable_columns(top.input)
    derivation.shaky.extend((top, e) for b in bags for e in (*b.values, b.counted) if is_unstable(e, shaky))
    exprs = [expr for part in parts for expr in (*part.values, part.where) if expr is not None]
    derivation.shaky.extend((top, expr) for expr in exprs if is_unstable(expr, shaky))
    # Rows that came and went again, or that two terms of a join's delta count and uncount, are no extremes:
    # equal rows are netted first. What adds up needs no netting, and is added up on the way.
    looked_at = used.union(*(part.looked_at for part in parts if part.moment is None))
    adding = tuple(Item(n, signed_value(m), m.type) for n, m in wanted.items())
    rows = Project(delta, (*(i for i in keep(delta) if i.name in {*looked_at, WEIGHT}), *adding))
    netted = merged_exactly(rows, totals(wanted))
    if counts_copies(parts):
        netted = one_by_one(netted, wanted)
    table = Aggregate(netted, top.groups, items)
    return _with_bags(way, derivation, delta, Change(table, tables)) if bags else Change(table, tables)


def _with_bags(way: Maintenance, derivation: Derivation, delta: Node, change: Change) -> Change:
    """The parts that come from bags as well."""
    assert way.kept is not None
    assert change.table is not None
    stored = way.bag_table
    parts = [(part, part.bag, part.over) for part in way.kept.parts]
    told = [(part, bag, over) for part, bag, over in parts if bag is not None and over is not None]
    whole = list(dict.fromkeys(bag for part, bag, _ in told if part.fold is Fold.BAG))
    table = derivation.bind("table", change.table)
    moved = derivation.bind("moved", stored.moved(way.bags, delta))
    others = [bag for bag in way.bags if bag not in whole]
    counted = derivation.bind("bags", stored.counted(whole, others, moved, table))
    items = []
    for part, bag, over in told:
        found = stored.over(bag, over) if part.fold is Fold.BAG else stored.flip(bag, over)
        items.append(Item(part.name, found, part.item.type))
    more = Aggregate(counted, stored.own_groups(counted), tuple(items))
    return replace(change, table=stored.beside(table, more), bags=counted)
