"""Other columns over the same rows: a view whose new columns follow from those it stores.

The law: where old = project(p, E) and new = project(q, E), and every expression of q is one of p, or is over columns
that p hands through, new = project(q over p, old). So the view's own rows are read, and its sources are not. Values
that are equal and not the same (0.0 and -0.0) are none that p hands through: the view may hold either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from deltaic.algebra.canonical import canonical
from deltaic.algebra.expr import Expr, col
from deltaic.algebra.nodes import Aggregate, Item, Node, Project, Scan, ScanColumn, Window
from deltaic.algebra.prune import prune
from deltaic.algebra.simplify import simplify
from deltaic.algebra.trees import walk
from deltaic.algebra.types import is_exact_key
from deltaic.plan.branches import taken_apart
from deltaic.plan.maintain import VIEW, Maintenance, Way
from deltaic.plan.recursion import placed


@dataclass(frozen=True)
class AlteredColumns:
    """`node` computes all columns of the view's table under its new query from those under its old one, out of VIEW."""

    node: Node
    removed: int
    added: int


def altered_columns(old: Maintenance, new: Maintenance) -> AlteredColumns | None:
    """None if the view's rows do not tell its new ones, or if its table holds other rows beside them."""
    if any(way.bags or way.strata or way.recursion for way in (old, new)):
        return None
    # the hash of a row is of what is shown of it
    hashed = new.root if new.way is Way.ROWS and isinstance(new.root, Project) else None
    target = hashed.input if hashed else new.root
    found = _over(old.root, target)
    if found is None:
        return None
    scanned = tuple(ScanColumn(field, field.name) for field in old.root.schema)
    items = tuple(Item(f.name, found[f.name], f.type, f.nullable) for f in target.schema)
    rows: Node = Project(Scan(VIEW, scanned), items)
    if hashed is not None:
        rows = Project(rows, hashed.items)
    shown = {found.get(name) for name in new.root.columns[: new.visible]}
    kept = {col(name) for name in old.root.columns[: old.visible]}
    return AlteredColumns(rows, len(kept - shown), len(shown - kept))


def _over(old: Node, new: Node) -> dict[str, Expr] | None:
    """The columns of one tree as expressions over those of another; of two unions, the same ones in every branch."""
    was, now = (taken_apart(placed(node)) for node in (old, new))
    if len(was) != len(now):
        return None
    found = [_branch_over(*pair) for pair in zip(was, now, strict=True)]
    first = found[0]
    if first is None or any(other != first for other in found):
        return None
    names = {f"c{n}": col(name) for n, name in enumerate(old.columns)}
    return {name: first[f"c{n}"].substitute(names) for n, name in enumerate(new.columns)}


def _branch_over(old: Node, new: Node) -> dict[str, Expr] | None:
    (below, was), (above, now) = _flat(old), _flat(new)
    same = _same(was, now)
    wanted = sorted({name for expr in above.values() for name in expr.columns})
    if not all(name in same for name in wanted) or not _are_one(was, now, same, wanted):
        return None
    whole = {expr: name for name, expr in reversed(below.items())}
    passed = {expr.column: col(name) for expr, name in whole.items() if expr.column is not None}
    found = {}
    for name, expr in above.items():
        here = expr.substitute({own: col(other) for own, other in same.items()})
        if here in whole:
            found[name] = col(whole[here])
        elif here.columns <= set(passed) and all(is_exact_key(was.fields[name].type) for name in here.columns):
            found[name] = here.substitute(passed)
        else:
            return None
    return found


def _flat(node: Node) -> tuple[dict[str, Expr], Node]:
    """The columns of a tree as expressions over the first node in it that is not a projection; and that."""
    exprs = {name: col(name) for name in node.columns}
    while isinstance(node, Project):
        exprs = {name: expr.substitute(node.by_name) for name, expr in exprs.items()}
        node = node.input
    return exprs, node


def _same(was: Node, now: Node) -> dict[str, str]:
    """The columns of a node by their counterparts in another: those of tables by their origin, those that the node
    computes by how, others by name."""
    scanned = _same_scanned(was, now)
    there = {item.expr: item.name for item in reversed(_computed(was))}
    found = {}
    for item in _computed(now):
        expr = item.expr.substitute({own: col(other) for own, other in scanned.items()})
        if expr in there:
            found[item.name] = there[expr]
    return {name: name for name in now.columns if name in was.columns} | scanned | found


def _same_scanned(was: Node, now: Node) -> dict[str, str]:
    one, two = ([node for node in walk(tree) if isinstance(node, Scan)] for tree in (was, now))
    if [scan.source for scan in one] != [scan.source for scan in two]:
        return {}
    places = [{column.origin: column.field.name for column in scan.scanned} for scan in one]
    return {
        column.field.name: place[column.origin]
        for place, scan in zip(places, two, strict=True)
        for column in scan.scanned
        if column.origin in place
    }


def _computed(node: Node) -> tuple[Item, ...]:
    match node:
        case Aggregate():
            return (*node.groups, *node.aggregates)
        case Window():
            return node.items
    return ()


def _are_one(was: Node, now: Node, same: Mapping[str, str], wanted: Sequence[str]) -> bool:
    """Whether two nodes have the same rows, in the columns that are wanted."""
    others = [same[name] for name in wanted]
    if not set(others) <= set(was.columns):  # what a table has may not come through to the top
        return False
    return _form(_arranged(was, now, same), others) == _form(now, list(wanted))


def _arranged(was: Node, now: Node, same: Mapping[str, str]) -> Node:
    """A node with what it computes in the order of another."""
    order = {same[item.name]: n for n, item in enumerate(_computed(now)) if item.name in same}

    def sorted_(items: tuple[Item, ...]) -> tuple[Item, ...]:
        return tuple(sorted(items, key=lambda item: order.get(item.name, len(order))))

    match was:
        case Aggregate():
            return replace(was, aggregates=sorted_(was.aggregates))
        case Window():
            return replace(was, items=sorted_(was.items))
    return was


def _form(node: Node, names: Sequence[str]) -> object:
    items = tuple(Item(f"c{n}", col(name), node.fields[name].type) for n, name in enumerate(names))
    return canonical(simplify(prune(Project(node, items))))
