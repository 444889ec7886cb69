"""What a view stores about the outer joins inside it, so that their other side need not be read.

For each side that an outer join preserves: a marker, true where the row stands alone and false where it has a match
(all columns NULL would not do, since a real row can be that), and the columns by which it is matched. The marker is
NULL where the row is not of that side: the other branch of a union, or a row of the other side of a full join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deltaic.algebra.expr import col, join_parts, text
from deltaic.algebra.nodes import Apply, Field, Filter, Generate, Item, Join, JoinKind, Node, Project, UnionAll
from deltaic.algebra.trees import keep, null_item, pass_through
from deltaic.algebra.types import is_exact_key
from deltaic.delta.matches import key_columns

MARKER = "__deltaic_m"


@dataclass(frozen=True)
class PreservedSide:
    """One preserved side. `rule` is the join as the delta rules see it: LEFT, or ANTI for the right of a full join."""

    join: Join
    rule: Join
    marker: str
    keys: tuple[str, ...]
    dropping: bool
    """Whether an operator above may drop rows of the join."""


def with_markers(query: Node) -> tuple[Node, tuple[PreservedSide, ...]]:
    """The query with one more column for each marker and key, behind its own; as it was if it has no outer join."""
    marking = _Marking()
    node, _ = marking.of(query, False)
    return node, tuple(marking.sides)


class _Marking:
    """Each step gives the node and the fields that it has got behind its own."""

    def __init__(self) -> None:
        self.sides: list[PreservedSide] = []
        self.number = 0

    def of(self, node: Node, dropping: bool) -> tuple[Node, tuple[Field, ...]]:
        """`dropping`: whether an operator above may drop rows.

        Below a full join that would hide who stands alone there, and matter for whom the full join pads."""
        match node:
            case Project():
                below, added = self.of(node.input, dropping)
                return (Project(below, (*node.items, *map(pass_through, added))), added) if added else (node, ())
            case Filter() | Generate():
                below, added = self.of(node.input, True)
                return (_behind(replace(node, input=below), added), added) if added else (node, ())
            case Apply():
                below, added = self.of(node.input, dropping)
                return (_behind(replace(node, input=below), added), added) if added else (node, ())
            case UnionAll():
                return self.of_union(node, dropping)
            case Join():
                return self.of_join(node, dropping)
        return node, ()

    def of_union(self, node: UnionAll, dropping: bool) -> tuple[Node, tuple[Field, ...]]:
        found = [self.of(branch, dropping) for branch in node.branches]
        every = tuple(replace(f, nullable=True) for _, added in found for f in added)
        if not every:
            return node, ()
        branches = []
        for branch, (below, added) in zip(node.branches, found, strict=True):
            own = {f.name for f in added}
            items = {item.name: item for item in keep(below)}
            extra = (items[f.name] if f.name in own else null_item(f) for f in every)
            branches.append(Project(below, (*(items[name] for name in branch.columns), *extra)))
        return UnionAll(tuple(branches), (*node.schema, *every)), every

    def of_join(self, node: Join, dropping: bool) -> tuple[Node, tuple[Field, ...]]:
        inner = node.kind is JoinKind.INNER
        full = node.kind is JoinKind.FULL
        below: list[Node] = [node.left, node.right]
        added: tuple[Field, ...] = ()
        if not (full and dropping):
            below[0], added = self.of(node.left, dropping or not (full or node.kind is JoinKind.LEFT))
        if inner or (full and not dropping):
            below[1], more = self.of(node.right, dropping or inner)
            added += more
        if node.kind in (JoinKind.LEFT, JoinKind.FULL):
            return self.of_outer(replace(node, left=below[0], right=below[1]), added, dropping)
        return (_behind(replace(node, left=below[0], right=below[1]), added), added) if added else (node, ())

    def of_outer(self, node: Join, added: Sequence[Field], dropping: bool) -> tuple[Node, tuple[Field, ...]]:
        self.number += 1
        name = f"{MARKER}{self.number}"
        here, there = f"{name}_left", f"{name}_right"
        join = Join(_present(node.left, here), _present(node.right, there), node.kind, node.on)
        sides = [(Join(join.left, join.right, JoinKind.LEFT, node.on), here, there, f"{name}l")]
        if node.kind is JoinKind.FULL:
            sides.append((Join(join.right, join.left, JoinKind.ANTI, node.on), there, here, f"{name}r"))
        items: list[Item] = []
        for rule, own, other, side in sides:
            columns = key_columns(rule)
            if not all(is_exact_key(rule.left.fields[c].type) for c in columns):
                continue
            alone = join_parts("CASE WHEN ", col(own), " THEN ", col(other), " IS NULL END")
            keys = [Item(f"{side}{n}", col(c), rule.left.fields[c].type) for n, c in enumerate(columns)]
            items.extend((Item(side, alone, "boolean"), *keys))
            self.sides.append(PreservedSide(join, rule, side, tuple(key.name for key in keys), dropping))
        last = {f.name for f in added}
        kept = {item.name: item for item in keep(join)}
        shown = [kept[c] for c in node.columns if c not in last]
        return Project(join, (*shown, *(kept[f.name] for f in added), *items)), (*added, *(i.field for i in items))


def _present(node: Node, name: str) -> Project:
    return Project(node, (*keep(node), Item(name, text("TRUE"), "boolean", False)))


def _behind(node: Node, added: Sequence[Field]) -> Project:
    """The added columns after all others."""
    names = {f.name for f in added}
    own = [item for item in keep(node) if item.name not in names]
    last = {item.name: item for item in keep(node)}
    return Project(node, (*own, *(last[f.name] for f in added)))
