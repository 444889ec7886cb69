"""Subqueries in expressions: semi- and anti-joins where they can be, Apply elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from deltaic.algebra.expr import Expr, col, conjunction, join_parts
from deltaic.algebra.nodes import Apply, ApplyKind, Field, Join, JoinKind, Node
from deltaic.algebra.reasons import Code
from deltaic.sql import functions
from deltaic.sql.parse import OPERAND, SPAN, Span, span_of
from deltaic.sql.surface import in_of

if TYPE_CHECKING:
    from deltaic.sql.block import Block
    from deltaic.sql.from_clause import Relation
    from deltaic.sql.lower import Lowering


@dataclass(frozen=True)
class _Subquery:
    """The rows a subquery ranges over, how they hang on the outer row, and what is made of them."""

    body: Node
    on: Expr | None
    select: tuple[Expr, ...]
    groups: tuple[Expr, ...] = ()


def lower_subquery(lowering: Lowering, block: Block, tree: exp.Expr, span: Span) -> Expr:
    """Puts an Apply on the block and gives the column that stands for the subquery."""
    kind, negated = _kind_of(tree)
    sub = _subquery(lowering, block, _query(tree), kind, span)
    needles = _needles(block, tree) if kind is ApplyKind.IN else ()
    if kind is ApplyKind.IN and _below_not(lowering, tree, span):
        kind = ApplyKind.MEMBER
    elif kind is ApplyKind.IN and negated:
        kind = ApplyKind.NOT_IN
    output = _output(lowering, sub, kind)
    select = sub.select
    if kind is ApplyKind.SCALAR:
        select = (Expr(sub.select[0].parts, sub.select[0].unstable or _shaky(block, sub, output, span)),)
    block.node = Apply(block.node, sub.body, kind, sub.on, select, output, needles, sub.groups)
    return join_parts("NOT ", col(output.name)) if negated and kind is ApplyKind.MEMBER else col(output.name)


def semi_join(lowering: Lowering, block: Block, tree: exp.Expr, span: Span, *, negated: bool) -> bool:
    """Lowers a conjunct that is just [NOT] EXISTS or [NOT] IN to a join; False if it cannot be."""
    kind, not_in = _kind_of(tree)
    negated = negated != not_in
    if kind is ApplyKind.SCALAR:
        return False
    before = block.node
    sub = _subquery(lowering, block, _query(tree), kind, span)
    terms = [sub.on] if sub.on is not None else []
    if kind is ApplyKind.IN:
        needles = _needles(block, tree)
        if not _same_types(lowering, block, needles, sub):
            block.node = before
            return False
        terms.append(_membership(block, needles, sub, negated))
    join_kind = JoinKind.ANTI if negated else JoinKind.SEMI
    block.node = Join(block.node, sub.body, join_kind, conjunction(*terms))
    return True


def _kind_of(tree: exp.Expr) -> tuple[ApplyKind, bool]:
    """What kind of subquery it is, and whether a NOT belongs to it."""
    if isinstance(tree, exp.Exists):
        return ApplyKind.EXISTS, False
    if in_of(tree) is None:
        return ApplyKind.SCALAR, False
    return ApplyKind.IN, isinstance(tree, exp.Not)


def _below_not(lowering: Lowering, tree: exp.Expr, span: Span) -> bool:
    """Whether a NOT above may turn unknown into something that passes. Spark's optimizer moves a NOT down through
    logic; below anything else, or a second NOT, what is unknown becomes FALSE before, which only a WHERE of logic alone
    does not tell from it."""
    above, between = tree.parent, [tree]
    below = False
    while above is not None and not isinstance(above, exp.Query):
        if isinstance(above, exp.Not):
            inner = above.this.unnest()
            plain = all(isinstance(node, _LOGIC) for node in between[1:])
            if not plain or (isinstance(inner, exp.Not) and not _filters(above)):
                lowering.context.refuse(Code.UNSUPPORTED_SYNTAX, "IN below NOT and something else", span[0])
            below = True
        between.append(above)
        above = above.parent
    return below


def _filters(tree: exp.Expr) -> bool:
    """Whether it only decides which rows pass."""
    above = tree.parent
    while isinstance(above, _LOGIC) and not isinstance(above, exp.Case | exp.If):
        above = above.parent
    return isinstance(above, exp.Where)


_LOGIC = (exp.And, exp.Or, exp.Not, exp.Paren, exp.Case, exp.If)


def _query(tree: exp.Expr) -> exp.Expr:
    member = in_of(tree)
    query = member.args["query"] if member is not None else tree
    while isinstance(query, exp.Subquery | exp.Exists):
        query = query.this
    return query


def _subquery(lowering: Lowering, block: Block, query: exp.Expr, kind: ApplyKind, span: Span) -> _Subquery:
    """Each is lowered once: one inside it that was lowered twice, and one inside that, would be so four times."""
    from deltaic.sql.select import lower_list, lower_rows

    if not isinstance(query, exp.Select):
        return _uncorrelated(lowering.query(query, block.ctes, None), kind)
    ctes = lowering.with_ctes(query, block.ctes)
    rows, conditions = lower_rows(lowering, query, ctes, block.scope)
    if conditions:
        return _correlated(lowering, block, rows, conditions, query, kind, span)
    lowering.check_modifiers(query)
    alone = replace(rows, scope=replace(rows.scope, parent=None))
    return _uncorrelated(lower_list(lowering, query, alone), kind)


def _uncorrelated(relation: Relation, kind: ApplyKind) -> _Subquery:
    select = () if kind is ApplyKind.EXISTS else tuple(col(name) for name in relation.node.columns)
    return _Subquery(relation.node, None, select)


def _correlated(
    lowering: Lowering,
    outer: Block,
    block: Block,
    conditions: list[Expr],
    query: exp.Select,
    kind: ApplyKind,
    span: Span,
) -> _Subquery:
    """The parts of a subquery that refers to the outer row by `conditions`."""
    refuse = lowering.context.refuse
    for clause in ("having", "qualify", "limit", "offset", "windows"):
        if query.args.get(clause) is not None:
            refuse(Code.CORRELATED_SUBQUERY, f"{clause.upper()} in a correlated subquery", span[0])
    if query.args.get("distinct") and kind is ApplyKind.SCALAR:
        refuse(Code.CORRELATED_SUBQUERY, "DISTINCT in a correlated scalar subquery", span[0])
    missing = block.outer_columns - set(outer.node.columns)
    if missing:
        refuse(Code.CORRELATED_SUBQUERY, "a column of the outer query that is not grouped", span[0])
    select, groups = _outputs(lowering, block, query, kind, span)
    reached = frozenset[str]().union(*(expr.columns for expr in (*select, *groups)))
    if not reached <= set(block.node.columns):
        refuse(Code.CORRELATED_SUBQUERY, "an outer column outside of the subquery's WHERE", span[0])
    return _Subquery(block.node, conjunction(*conditions), select, groups)


def _outputs(
    lowering: Lowering, block: Block, query: exp.Select, kind: ApplyKind, span: Span
) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    trees = [item.unalias() for item in query.expressions]
    group = query.args.get("group")
    aggregated = any(block.aggregate_calls(tree, span_of(tree)) for tree in trees)
    if kind is ApplyKind.EXISTS and group is None and not aggregated:
        calls = (call for tree in trees for call in block.text.calls(span_of(tree)))
        if any(call.name in functions.GENERATORS for call in calls):
            lowering.context.refuse(Code.CORRELATED_SUBQUERY, "a generator in a correlated EXISTS", span[0])
        return (), ()
    if group is not None and {name for name, value in group.args.items() if value} - {"expressions"}:
        lowering.context.refuse(Code.CORRELATED_SUBQUERY, "GROUP BY ALL or sets in a correlated subquery", span[0])
    scalar = kind is ApplyKind.SCALAR and len(trees) == 1 and (aggregated or group is not None)
    plain = kind is ApplyKind.IN and not aggregated and group is None
    if not scalar and not plain:
        lowering.context.refuse(Code.CORRELATED_SUBQUERY, "grouping or a bare column in a correlated subquery", span[0])
    groups = group.expressions if group is not None else []
    return tuple(block.lower(t) for t in trees), tuple(block.lower(t) for t in groups)


def _needles(block: Block, tree: exp.Expr) -> tuple[Expr, ...]:
    member = in_of(tree)
    assert member is not None
    left = member.this
    trees = left.expressions if isinstance(left, exp.Tuple) else [left]
    return tuple(block.lower(t, t.meta.get(SPAN) or t.meta[OPERAND]) for t in trees)


def _output(lowering: Lowering, sub: _Subquery, kind: ApplyKind) -> Field:
    name = lowering.context.names.fresh(kind.value)
    if kind is not ApplyKind.SCALAR:
        return Field(name, "boolean", kind.compares)
    if len(sub.select) != 1:
        lowering.context.refuse(Code.UNSUPPORTED_SYNTAX, "a scalar subquery of several columns")
    (item,) = lowering.context.typed(sub.body, [(name, sub.select[0])])
    return Field(name, item.type, True)


def _shaky(block: Block, sub: _Subquery, output: Field, span: Span) -> bool:
    """Whether an aggregate inside a correlated scalar subquery may come out differently again."""
    if sub.on is None:
        return False
    names = [call.name for call in block.text.calls(span) if call.name in functions.AGGREGATES]
    return any(functions.aggregate_is_unstable(name, output.type) for name in names)


def _same_types(lowering: Lowering, block: Block, needles: tuple[Expr, ...], sub: _Subquery) -> bool:
    """IN and = agree on coercion only where there is nothing to coerce."""
    fresh = lowering.context.names.fresh
    left = lowering.context.typed(block.node, [(fresh("needle"), e) for e in needles])
    right = lowering.context.typed(sub.body, [(fresh("member"), e) for e in sub.select])
    return [item.type for item in left] == [item.type for item in right]


def _membership(block: Block, needles: tuple[Expr, ...], sub: _Subquery, negated: bool) -> Expr:
    pairs = list(zip(needles, sub.select, strict=True))
    equal = conjunction(*(join_parts("(", a, ") = (", b, ")") for a, b in pairs))
    assert equal is not None
    if not negated or not any(_nullable(block.node, a) or _nullable(sub.body, b) for a, b in pairs):
        return equal
    # x NOT IN S holds where no s makes x = s true or unknown
    return join_parts("((", equal, ") IS NOT FALSE)")


def _nullable(node: Node, expr: Expr) -> bool:
    return expr.column is None or node.fields[expr.column].nullable
