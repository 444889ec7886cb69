"""Which keys a relation can have, from rows that are in this process: enough to read other tables near them.

The answer may hold more rows than the relation, never fewer: filters and counts are passed over, joins are made by
plain equalities of integers and strings, on which Arrow and Spark agree. So no Spark job is needed to find out what to
read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from deltaic.algebra.expr import Expr
from deltaic.algebra.nodes import Aggregate, Filter, Join, JoinKind, Node, Project, Ref, Scan, UnionAll
from deltaic.delta.near import equal_pairs, is_only_equality

MOST = 2_000_000
"""A join of more rows than this is left to Spark."""


def reach(
    node: Node, columns: frozenset[str], rows_of: Callable[[Scan], pa.Table | None], bound: Mapping[str, Node]
) -> pa.Table | None:
    """These columns of a relation; None where it cannot be told."""
    match node:
        case Scan():
            rows = rows_of(node)
            origins = {column.field.name: column.origin for column in node.scanned}
            if rows is None or not columns <= origins.keys():
                return None
            return pa.table({name: rows[origins[name]] for name in sorted(columns)})
        case Ref():
            return reach(bound[node.name], columns, rows_of, bound) if node.name in bound else None
        case Filter():
            return reach(node.input, columns, rows_of, bound)
        case Project():
            return _projected(node, columns, rows_of, bound)
        case UnionAll():
            return _united(node, columns, rows_of, bound)
        case Aggregate() if columns <= {item.name for item in node.groups}:
            groups = Project(node.input, node.groups)
            return reach(groups, columns, rows_of, bound)
        case Join(kind=JoinKind.SEMI | JoinKind.ANTI):
            return reach(node.left, columns, rows_of, bound)
        case Join(kind=JoinKind.INNER):
            return _joined(node, columns, rows_of, bound)
    return None


def equalities(on: Expr | None) -> list[tuple[str, str]] | None:
    """The pairs of columns of a condition that is nothing but plain equalities, all of which must hold."""
    if on is None or not is_only_equality(on):
        return None
    pairs = equal_pairs(on)
    return None if any(nulls for _, _, nulls in pairs) else [(a, b) for a, b, _ in pairs]


def _projected(
    node: Project, columns: frozenset[str], rows_of: Callable[[Scan], pa.Table | None], bound: Mapping[str, Node]
) -> pa.Table | None:
    origins = {name: node.by_name[name].column for name in columns}
    if None in origins.values():
        return None
    below = reach(node.input, frozenset(o for o in origins.values() if o), rows_of, bound)
    return None if below is None else pa.table({name: below[origins[name]] for name in sorted(columns)})


def _united(
    node: UnionAll, columns: frozenset[str], rows_of: Callable[[Scan], pa.Table | None], bound: Mapping[str, Node]
) -> pa.Table | None:
    names = sorted(columns)
    parts = []
    for branch in node.branches:
        own = dict(zip(node.columns, branch.columns, strict=True))
        rows = reach(branch, frozenset(own[name] for name in names), rows_of, bound)
        if rows is None:
            return None
        parts.append(pa.table({name: rows[own[name]] for name in names}))
    if any(part.schema != parts[0].schema for part in parts):
        return None
    return pa.concat_tables(parts)


def _joined(
    node: Join, columns: frozenset[str], rows_of: Callable[[Scan], pa.Table | None], bound: Mapping[str, Node]
) -> pa.Table | None:
    pairs = equalities(node.on)
    if pairs is None:
        return None
    pairs = [(a, b) if a in node.left.columns else (b, a) for a, b in pairs]
    if any(a not in node.left.columns or b not in node.right.columns for a, b in pairs):
        return None
    sides = []
    for side, place in ((node.left, 0), (node.right, 1)):
        keys = frozenset(pair[place] for pair in pairs)
        rows = reach(side, (columns & frozenset(side.columns)) | keys, rows_of, bound)
        if rows is None:
            return None
        sides.append(rows.combine_chunks().group_by(rows.column_names).aggregate([]))
    left, right = sides
    kinds = [(left.schema.field(a).type, right.schema.field(b).type) for a, b in pairs]
    if any(a != b or not (pa.types.is_integer(a) or pa.types.is_string(a)) for a, b in kinds):
        return None
    by = [list(names) for names in zip(*pairs, strict=True)]
    joined = left.join(right, by[0], by[1], join_type="inner", coalesce_keys=False)
    return joined.select(sorted(columns)) if joined.num_rows <= MOST else None
