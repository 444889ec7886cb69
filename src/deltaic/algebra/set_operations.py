"""INTERSECT and EXCEPT without ALL: as two counts of each row, and as two sets.

Lowered, they count how often a row stands on either side, which is what a view on top stores. Inside a view they are

    A INTERSECT B  =  set(A) ⋉ set(B)        A EXCEPT B  =  set(A) ▷ set(B)

by null-safe equality of all columns, so that each side can be a stratum of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from deltaic.algebra.expr import Expr, col, conjunction, join_parts, null_safe_equal, text
from deltaic.algebra.nodes import Aggregate, Filter, Item, Join, JoinKind, Node, Project, UnionAll
from deltaic.algebra.trees import pass_through

_OTHER = "_other"


def is_present(here: Expr, there: Expr, *, common: bool) -> Expr:
    """Whether a row that stands so often on the left and on the right is in the result."""
    return join_parts(here, " > 0 AND ", there, " > 0" if common else " = 0")


@dataclass(frozen=True)
class SetOperation:
    """What `node`, the filter over the counts, computes: `common` for INTERSECT."""

    node: Filter
    counted: Aggregate
    common: bool

    @staticmethod
    def of(node: Node) -> SetOperation | None:
        """Only the lowering says that a filter is one: a user's own, over the same counts, may show them."""
        if not isinstance(node, Filter) or node.common is None or not isinstance(node.input, Aggregate):
            return None
        return SetOperation(node, node.input, node.common)

    def sides(self) -> tuple[Aggregate, Aggregate]:
        """Either side as a set."""
        left, right = self._side(0, ""), self._side(1, _OTHER)
        return left, right

    def _side(self, number: int, suffix: str) -> Aggregate:
        union = self.counted.input
        assert isinstance(union, UnionAll)
        branch = union.branches[number]
        width = len(self.counted.groups)
        names = [item.name + suffix for item in self.counted.groups]
        own = zip(names, branch.schema[:width], strict=True)
        rows = Project(branch, tuple(Item(name, col(f.name), f.type, f.nullable) for name, f in own))
        return Aggregate(rows, tuple(pass_through(f) for f in rows.schema))

    def joined(self, left: Node, right: Node) -> Node:
        """The result from the two sets, which have the columns of `sides`; with the counts of a set."""
        on = conjunction(*(null_safe_equal(col(i.name), col(i.name + _OTHER)) for i in self.counted.groups))
        kind = JoinKind.SEMI if self.common else JoinKind.ANTI
        counts = zip(self.counted.aggregates, ("1L", "1L" if self.common else "0L"), strict=True)
        told = tuple(Item(item.name, text(count), "bigint", False) for item, count in counts)
        return Project(Join(left, right, kind, on), (*(pass_through(f) for f in left.schema), *told))
