"""E restricted to a set of keys, with the restriction as far down the tree as it can go.

The law: a restriction that looks only at columns of one input commutes with the operator, if the
operator treats rows of different keys apart (a group, a partition) or one row at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deltaic.algebra.expr import Expr, col, conjunction, null_safe_equal
from deltaic.algebra.nodes import (
    Aggregate,
    Apply,
    Filter,
    Generate,
    Item,
    Join,
    JoinKind,
    Node,
    Project,
    Ref,
    UnionAll,
    Window,
)


def restrict(node: Node, exprs: Sequence[Expr], keys: Ref) -> Node:
    """The rows of `node` whose `exprs` are, NULL-safe, one of `keys`."""
    return _Restriction().of(node, tuple(exprs), keys)


class _Restriction:
    def __init__(self) -> None:
        self.copies = 0

    def of(self, node: Node, exprs: tuple[Expr, ...], keys: Ref) -> Node:
        match node:
            case Project():
                return replace(node, input=self.of(node.input, _substituted(exprs, node.by_name), keys))
            case Filter():
                return replace(node, input=self.of(node.input, exprs, keys))
            case Aggregate() if node.groups and _within(exprs, [i.name for i in node.groups]):
                inner = _substituted(exprs, {i.name: i.expr for i in node.groups})
                return replace(node, input=self.of(node.input, inner, keys))
            case Window() if set(node.partition) >= set(exprs):
                return replace(node, input=self.of(node.input, exprs, keys))
            case Generate() | Apply() if _within(exprs, node.input.columns):
                return replace(node, input=self.of(node.input, exprs, keys))
            case UnionAll():
                return replace(node, branches=tuple(self._branch(node, b, exprs, keys) for b in node.branches))
            case Join() if _within(exprs, node.left.columns) and node.kind is not JoinKind.FULL:
                return replace(node, left=self.of(node.left, exprs, keys))
            case Join(kind=JoinKind.INNER) if _within(exprs, node.right.columns):
                return replace(node, right=self.of(node.right, exprs, keys))
        return self._semi_join(node, exprs, keys)

    def _branch(self, union: UnionAll, branch: Node, exprs: tuple[Expr, ...], keys: Ref) -> Node:
        names = dict(zip(union.columns, map(col, branch.columns), strict=True))
        return self.of(branch, _substituted(exprs, names), keys)

    def _semi_join(self, node: Node, exprs: tuple[Expr, ...], keys: Ref) -> Node:
        """Each use of the keys has column names of its own, so that they can meet in one tree."""
        self.copies += 1
        renamed = tuple(Item(f"{f.name}_{self.copies}", col(f.name), f.type, f.nullable) for f in keys.schema)
        if not exprs:
            return Join(node, Project(keys, renamed), JoinKind.SEMI, None)
        pairs = zip(exprs, renamed, strict=True)
        on = conjunction(*(null_safe_equal(expr, col(item.name)) for expr, item in pairs))
        return Join(node, Project(keys, renamed), JoinKind.SEMI, on)


def _substituted(exprs: tuple[Expr, ...], by: dict[str, Expr]) -> tuple[Expr, ...]:
    return tuple(expr.substitute(by) for expr in exprs)


def _within(exprs: tuple[Expr, ...], columns: Sequence[str]) -> bool:
    names = set(columns)
    return all(expr.columns <= names for expr in exprs)
