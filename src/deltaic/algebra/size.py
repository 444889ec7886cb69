"""How large a query may be to be kept incrementally: what is derived from it, and given to Spark, must stay bounded.

A delta joins the change of each relation with the states of all others, and takes an aggregate's rows before and after:
it grows with the square of the query. So does the time to plan it, here and in Spark.
"""

from __future__ import annotations

from collections.abc import Iterable

from deltaic.algebra.nodes import Aggregate, Apply, ApplyKind, Join, JoinKind, Node, Window
from deltaic.algebra.reasons import Reason, too_large
from deltaic.algebra.trees import walk

LARGEST = 5_000
"""Nodes that a delta may have, as `delta_size` counts them: seconds of planning."""
HEAVIEST = 500
"""Joins, subqueries, groups and windows that the delta of what did change may have: seconds of Spark's planning."""
DEEPEST = 120
"""Nodes that may stand on one another: rules and renderers call themselves for each."""


def why_too_large(node: Node) -> Reason | None:
    """What stands against keeping the view of a query incrementally, if it is its size."""
    sizes, depths = dict[int, tuple[int, int]](), dict[int, int]()
    for part in reversed(walk(node)):
        below = [sizes[id(child)] for child in part.inputs]
        sizes[id(part)] = _size(part, below)
        depths[id(part)] = 1 + max((depths[id(child)] for child in part.inputs), default=0)
    delta, depth = sizes[id(node)][1], depths[id(node)]
    if depth > DEEPEST:
        return too_large(f"it is nested {depth:,} operators deep, more than {DEEPEST:,}")
    if delta > LARGEST:
        return too_large(f"its delta would have about {delta:,} operators, more than {LARGEST:,}")
    return None


def why_delta_too_large(relations: Iterable[Node]) -> Reason | None:
    """What stands against computing a delta, of which these are the relations, if it is its size."""
    heavy = sum(isinstance(part, Join | Apply | Aggregate | Window) for node in relations for part in walk(node))
    if heavy <= HEAVIEST:
        return None
    return too_large(f"the delta of what changed has {heavy:,} joins and groups, more than {HEAVIEST:,}")


def _size(node: Node, below: list[tuple[int, int]]) -> tuple[int, int]:
    """About how many nodes the rendered tree has, and its delta, by those of its inputs."""
    size, delta = 1 + sum(s for s, _ in below), 1 + sum(d for _, d in below)
    if isinstance(node, Apply) and node.kind is ApplyKind.MEMBER:
        size += below[1][0]  # the subquery is asked twice
    if isinstance(node, Join | Apply | Aggregate | Window):
        padded = isinstance(node, Join) and node.kind in (JoinKind.LEFT, JoinKind.FULL)
        delta += size * (4 if padded else 1 if isinstance(node, Join) else 2)
    return size, delta
