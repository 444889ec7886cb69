"""Joins that several views have in common, told apart by their tables and conditions alone.

Every view names its columns itself. In the common form of a join a column is called by its table's place and its own
name, so two views that join the same tables by the same conditions have the same form, whatever else they read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from deltaic.algebra.expr import Expr, col
from deltaic.algebra.nodes import Filter, Join, Node, Project, Scan, ScanColumn, State
from deltaic.algebra.recursion import PREFIX
from deltaic.delta.graph import Graph, is_joined, is_narrowing

Columns = frozenset[tuple[int, ScanColumn]]
"""Columns of the tables of a join, with the table's place in it."""


@dataclass(frozen=True)
class Shape:
    """What a join is, whoever asks for it. A table that is joined with itself stands there twice."""

    tables: tuple[str, ...]
    conditions: tuple[Expr, ...]

    def graph(self, columns: Columns) -> Graph:
        """The join itself, with these columns of the tables in their places."""
        leaves = []
        for place, table in enumerate(self.tables):
            own = {column.origin: column for at, column in columns if at == place}
            leaves.append(Scan(table, tuple(own[origin] for origin in sorted(own))))
        return Graph(tuple(leaves), self.conditions, ())


@dataclass(frozen=True)
class Shaped:
    """A view's join in its common form. `names` are its own columns, and what they are called there."""

    shape: Shape
    columns: Columns
    names: tuple[tuple[str, str], ...]

    @staticmethod
    def of(graph: Graph) -> Shaped | None:
        """None if something else than tables and filters of them is joined."""
        conditions, scans = list(graph.conditions), list[Scan]()
        for leaf in graph.leaves:
            node = leaf
            while isinstance(node, Filter) or (isinstance(node, Project) and is_narrowing(node)):
                if isinstance(node, Filter):
                    conditions.append(node.predicate)
                node = node.input
            if not isinstance(node, Scan) or node.state is not State.NEW or node.near is not None:
                return None
            if node.source.startswith(PREFIX):  # each view has predicates of its own
                return None
            scans.append(node)
        scans.sort(key=lambda scan: scan.source)
        names, columns = dict[str, str](), set[tuple[int, ScanColumn]]()
        for place, scan in enumerate(scans):
            for column in scan.scanned:
                common = f"{column.origin}#{place}"
                names[column.field.name] = common
                columns.add((place, ScanColumn(replace(column.field, name=common), column.origin)))
        by = {name: col(common) for name, common in names.items()}
        told = sorted((condition.substitute(by) for condition in conditions), key=str)
        shape = Shape(tuple(scan.source for scan in scans), tuple(told))
        return Shaped(shape, frozenset(columns), tuple(names.items()))


def shapes(node: Node) -> Iterator[Shaped]:
    """The inner joins of a view that stand under no other, in their common form."""
    graph = Graph.of(node) if is_joined(node) and isinstance(node, Join | Filter) else None
    if graph is None:
        below = node.inputs
    else:
        shaped = Shaped.of(graph)
        if shaped is not None:
            yield shaped
        below = graph.leaves
    for one in below:
        yield from shapes(one)
