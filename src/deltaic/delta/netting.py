"""Equal rows of a delta as one, with how often they come or go: for who reads them, or for what is computed of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deltaic.algebra.expr import col, join_parts
from deltaic.algebra.nodes import WEIGHT, Aggregate, Field, Filter, Item, Node, Project
from deltaic.algebra.trees import keep
from deltaic.algebra.types import is_exact_key


def net(node: Node) -> Node:
    """Equal rows of a delta merged, zero counts dropped: for who reads them. Of 0.0 and -0.0, which are equal, one is
    shown."""
    groups = tuple(i for i in keep(node) if i.name != WEIGHT)
    return _counted(Aggregate(node, groups, (_total(),)))


def net_exactly(node: Node) -> Node:
    """The same for what is computed of them next: equal are rows of which every function gives the same."""
    return _counted(merged_exactly(node))


def _counted(node: Node) -> Filter:
    return Filter(node, join_parts(col(WEIGHT), " <> 0"))


def merged_exactly(node: Node, sums: Sequence[Item] = ()) -> Node:
    """With zero counts, and with what is added up on the way, which is no part of a row."""
    items = [i for i in keep(node) if i.name not in {WEIGHT, *(i.name for i in sums)}]
    exact = tuple(i for i in items if is_exact_key(i.type))
    others = [i for i in items if i not in exact]
    if not others:
        return Aggregate(node, exact, (_total(), *sums))
    told = [told_apart(i.field, f"__deltaic_apart{n}") for n, i in enumerate(others)]
    same = [replace(i, name=f"__deltaic_same{n}") for n, i in enumerate(others)]
    any_of_them = [replace(i, expr=join_parts("any_value(", i.expr, ")")) for i in others]
    merged = Aggregate(node, (*exact, *told, *same), (*any_of_them, _total(), *sums))
    kept = {item.name: item for item in keep(merged)}
    return Project(merged, tuple(kept[name] for name in (*(i.name for i in items), WEIGHT, *(i.name for i in sums))))


def told_apart(column: Field, name: str) -> Item:
    """What tells values apart that are equal and not the same."""
    shown = join_parts("CAST(", col(column.name), " AS STRING)")
    if column.type not in ("double", "float"):
        return Item(name, shown, "string")
    return Item(name, join_parts("(", col(column.name), " = 0 AND ", shown, " = '-0.0')"), "boolean")


def _total() -> Item:
    return Item(WEIGHT, join_parts("sum(", col(WEIGHT), ")"), "bigint", False)
