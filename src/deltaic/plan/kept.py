"""The kept delta of a view: the two halves of a refresh, propagate and apply, with a timed delta between them.

Below the operator on top of a view stands its *body*: selections, projections, joins and unions, of which there is a
timed delta. Propagate appends that delta to a table beside the view. For apply this table is a source whose change is
known in any interval, as a stratum is: the view above it is kept by the rules that it is always kept by.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from deltaic.algebra.nodes import WEIGHT, Aggregate, Field, Node, Project, Scan, ScanColumn, State, Window
from deltaic.algebra.printer import print_tree
from deltaic.algebra.prune import prune
from deltaic.algebra.trees import keep, pass_through, top_of, with_leaves, with_top
from deltaic.delta.netting import net_exactly
from deltaic.delta.rules import Binding, at
from deltaic.delta.timed import TIME, OneTerm, Timed, timed, why_not_timed
from deltaic.plan.maintain import Known, Maintenance, Way

KEPT = "@kept"
"""The source name under which a program reads the kept delta."""


@dataclass(frozen=True)
class Body:
    """`node` is the body; `above` is how the view is kept over a scan of it."""

    node: Node
    above: Maintenance

    @property
    def columns(self) -> tuple[Field, ...]:
        """Of the kept delta's table, beside count and time."""
        return tuple(Field(f"c{n}", f.type) for n, f in enumerate(self.node.schema))

    @property
    def text(self) -> str:
        """Tells one body from another."""
        return print_tree(self.node)

    def told(self, node: Node, changed: frozenset[str]) -> Node:
        """The tree with the body itself where a state of it is read."""

        def turn(leaf: Node) -> Node:
            if not isinstance(leaf, Scan) or leaf.source != KEPT or leaf.state is State.CHANGE:
                return leaf
            found = at(self.node, changed) if leaf.state is State.OLD else self.node
            return Project(found, tuple(pass_through(found.fields[name]) for name in leaf.columns))

        return with_leaves(node, turn)


def body_of(way: Maintenance) -> Body | str:
    """The body of a view, or why it has no timed delta."""
    if way.recursion is not None:
        return "it is defined by recursion, whose delta has no times"
    if way.way is Way.SETS or way.strata:
        return "it is a set without counts, or has sets stored inside it"
    if way.preserved:
        return "it has outer joins, whose delta has no times"
    top = None if way.way is Way.ROWS else top_of(way.root)
    if top is None:
        whole = prune(way.root)
    else:
        if not isinstance(top, Aggregate | Window):
            return "it is kept by the keys of an operator below its top"
        whole = prune(Project(top.input, tuple(i for i in keep(top.input) if i.name in _used(top))))
    problem = why_not_timed(whole)
    if problem is not None:
        return problem
    origins = [f"c{n}" for n in range(len(whole.schema))]
    scan = Scan(KEPT, tuple(ScanColumn(f, name) for f, name in zip(whole.schema, origins, strict=True)))
    if top is None:
        return Body(whole, replace(way, root=scan))
    new_top = replace(top, input=scan)
    kept = replace(way.kept, top=new_top) if way.kept and isinstance(new_top, Aggregate) else None
    return Body(whole, replace(way, root=with_top(way.root, new_top), kept=kept))


def _used(top: Aggregate | Window) -> frozenset[str]:
    """The columns of its input that the top looks at; a window hands all of them up."""
    if isinstance(top, Window):
        return frozenset(top.input.columns)
    items = (*top.groups, *top.aggregates)
    calls = [item.call for item in top.aggregates if item.call]
    exprs = [item.expr for item in items] + [e for c in calls for e in (*c.arguments, *([c.where] if c.where else []))]
    return frozenset[str]().union(*(expr.columns for expr in exprs))


def timed_bindings(body: Body, known: Known, sign: int | None) -> tuple[Timed, tuple[Binding, ...]] | None:
    """What one step of propagation computes, under the columns of the kept delta's table; None if nothing changed.

    With a sign it is one term, the changes of all that changed with each other; else all of them."""
    derivation = Timed(known.changed, rows=known.rows, changes=known.changes)
    if sign is not None:
        derivation = OneTerm(known.changed, rows=known.rows, changes=known.changes, sign=sign)
    found = derivation.delta(body.node)
    if found is None:
        return None
    netted = net_exactly(timed(found, body.node.columns))
    names = dict(zip(body.node.columns, (f.name for f in body.columns), strict=True))
    renamed = Project(netted, tuple(replace(i, name=names.get(i.name, i.name)) for i in keep(netted)))
    return derivation, (*derivation.bindings, Binding("", renamed))


def interval_sql(relation: str, version: int, after: int, upto: int, columns: Iterable[str]) -> str:
    """The rows of a kept delta in an interval, each as often as it counts: a delta's rows count 1 or -1."""
    listed = ", ".join(f"`{name}`" for name in columns)
    copies = f"LATERAL VIEW explode(array_repeat(0, CAST(abs(`{WEIGHT}`) AS INT))) AS __deltaic_copy"
    within = f"WHERE `{TIME}` > {after} AND `{TIME}` <= {upto}"
    rows = f"SELECT * FROM {relation} VERSION AS OF {version} {within}"
    return f"SELECT {listed}, CAST(sign(`{WEIGHT}`) AS BIGINT) AS `{WEIGHT}` FROM ({rows}) {copies}"
