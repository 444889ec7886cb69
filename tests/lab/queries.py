"""Whole queries: a select of some kind, a set operation, or either of them under CTEs."""

from collections.abc import Callable
from dataclasses import replace

from tests.lab.case import Column, Grade, Type
from tests.lab.choice import Choice
from tests.lab.context import Context, Query, Relation, keyable, of_type, select_item
from tests.lab.groupings import grouped_select
from tests.lab.scalars import random_literal, scalar
from tests.lab.selects import plain_select
from tests.lab.sources import Source, source, values_query
from tests.lab.subqueries import condition
from tests.lab.windows import window_select

DEEPEST = 3


def write_view(
    choice: Choice, relations: list[Relation], number: int = 0
) -> tuple[Query, frozenset[str], frozenset[str]]:
    """A query over the relations, the names of all that it is made of, and the relations it reads."""
    ctx = Context(choice, relations, write_query, first_number=100 * number + 1)
    depth = choice.weighted([(1, 1), (3, 2), (6, DEEPEST)])
    query = write_query(ctx, depth)
    return query, frozenset(ctx.features), frozenset(ctx.reads)


def write_query(ctx: Context, depth: int) -> Query:
    ctx.note(f"depth.{depth}")
    kind = ctx.choice.weighted(
        [(80, "select"), (14, "set"), (8 * (depth > 1), "cte"), (2 * bool(ctx.reads), "no from")]
    )
    if kind == "set":
        return _set_operation(ctx, depth)
    if kind == "cte":
        return _with_ctes(ctx, depth)
    if kind == "no from":
        return _without_from(ctx)
    return _select(ctx, depth)


def _select(ctx: Context, depth: int) -> Query:
    from_ = source(ctx, depth)
    where = _where(ctx, from_, depth)
    kind = ctx.choice.weighted([(45, "plain"), (35, "grouped"), (18, "window")])
    if kind == "grouped":
        return grouped_select(ctx, from_, where, depth)
    if kind == "window" and keyable(from_.scope):
        return window_select(ctx, from_, where)
    return plain_select(ctx, from_, where, depth)


def _where(ctx: Context, from_: Source, depth: int) -> str:
    if not ctx.choice.chance(50 if depth == DEEPEST else 32):
        return ""
    ctx.note("where")
    return f" WHERE {condition(ctx, from_.scope, depth)}"


def _without_from(ctx: Context) -> Query:
    ctx.note("no_from")
    types = [ctx.choice.pick(tuple(Type)) for _ in range(2)]
    columns = tuple(Column(ctx.fresh("e"), type_) for type_ in types)
    items = [select_item(random_literal(ctx.choice, column.type), column.name) for column in columns]
    return Query(f"SELECT {', '.join(items)}", columns, 1)


# -------------------------------------------------------------------------------------------- set operations

_OPERATORS = [
    (5, "UNION ALL"),
    (3, "UNION"),
    (2, "INTERSECT"),
    (2, "INTERSECT ALL"),
    (3, "EXCEPT"),
    (3, "EXCEPT ALL"),
]


def _set_operation(ctx: Context, depth: int) -> Query:
    """Two or three queries of the same types; often without parentheses, for precedence to settle."""
    if ctx.choice.chance(5):
        return _values_union(ctx)
    first, types, again = _any_operand(ctx, depth)
    sql, size, columns = first.sql, first.size, first.columns
    operators = [ctx.choice.weighted(_OPERATORS) for _ in range(ctx.choice.weighted([(4, 1), (1, 2)]))]
    for operator in operators:
        ctx.note(f"set.{operator.lower().replace(' ', '_')}")
        similar = again is not None and ctx.choice.chance(15 if operator.startswith("UNION") else 45)
        other = again() if again and similar else _operand(ctx, depth, types, again)
        style = ctx.choice.weighted([(5, "bare"), (2, "right"), (2, "both")])
        left = f"({sql})" if style == "both" else sql
        right = other.sql if style == "bare" else f"({other.sql})"
        sql = f"{left} {operator} {right}"
        size += other.size * operator.startswith("UNION")
        columns = tuple(replace(a, grade=max(a.grade, b.grade)) for a, b in zip(columns, other.columns, strict=True))
    if len(operators) > 1:
        ctx.note("set.chain")
    return Query(sql, columns, size)


def _any_operand(ctx: Context, depth: int) -> tuple[Query, list[Type], Callable[[], Query] | None]:
    """A query, its types, and a way to get it again under another WHERE, with rows in common."""
    from_ = source(ctx, depth, joins=ctx.choice.chance(40))
    keys = keyable(from_.scope)
    if not keys:
        return _shaped(ctx, from_, depth, [Type.INT]), [Type.INT], None
    refs = ctx.choice.sample(keys, ctx.choice.integer(1, 3))

    def query() -> Query:
        names = [ctx.fresh("e") for _ in refs]
        items = [select_item(ref.sql, name) for ref, name in zip(refs, names, strict=True)]
        columns = tuple(Column(name, ref.type, ref.grade) for name, ref in zip(names, refs, strict=True))
        sql = f"SELECT {', '.join(items)} FROM {from_.sql}{_where(ctx, from_, depth)}"
        return Query(sql, columns, from_.size)

    return query(), [ref.type for ref in refs], query


def _operand(ctx: Context, depth: int, types: list[Type], other: Callable[[], Query] | None = None) -> Query:
    """A query of these types over a source that has them; else the other one, if there is one."""
    from_ = source(ctx, depth, joins=ctx.choice.chance(25))
    fits = all(of_type(from_.scope, type_, Grade.STABLE) for type_ in types)
    return _shaped(ctx, from_, depth, types) if fits or other is None else other()


def _shaped(ctx: Context, from_: Source, depth: int, types: list[Type]) -> Query:
    """A select that gives columns of just these types."""
    values = [scalar(ctx, from_.scope, type_, ctx.choice.chance(15), Grade.STABLE) for type_ in types]
    columns = tuple(Column(ctx.fresh("e"), value.type, value.grade) for value in values)
    items = [select_item(value.sql, column.name) for value, column in zip(values, columns, strict=True)]
    distinct = "DISTINCT " * ctx.choice.chance(8)
    sql = f"SELECT {distinct}{', '.join(items)} FROM {from_.sql}{_where(ctx, from_, depth)}"
    return Query(sql, columns, from_.size)


def _values_union(ctx: Context) -> Query:
    """UNION ALL with rows that are written out."""
    ctx.note("set.values")
    ctx.note("values")
    values = values_query(ctx)
    shaped = _operand(ctx, 1, [column.type for column in values.columns])
    return Query(f"{shaped.sql} UNION ALL {values.sql}", shaped.columns, shaped.size + values.size)


# ------------------------------------------------------------------------------------------------------ CTEs


def _with_ctes(ctx: Context, depth: int) -> Query:
    """One or two CTEs, the second of which may read the first; the query below prefers to read them."""
    outer = list(ctx.ctes)
    written = []
    for _ in range(ctx.choice.weighted([(3, 1), (2, 2)])):
        ctx.note("cte")
        query = ctx.query(depth - 1)
        name, columns, renamed = ctx.fresh("cte"), query.columns, ""
        if ctx.choice.chance(15):
            ctx.note("cte.column_list")
            columns = tuple(replace(column, name=ctx.fresh("m")) for column in columns)
            renamed = "(" + ", ".join(column.name for column in columns) + ")"
        written.append(f"{name}{renamed} AS ({query.sql})")
        ctx.ctes.append(Relation(name, columns, query.size))
    ctx.budget = max(ctx.budget, 2)
    body = _set_operation(ctx, depth - 1) if ctx.choice.chance(20) else _select(ctx, depth - 1)
    ctx.ctes = outer
    return replace(body, sql=f"WITH {', '.join(written)} {body.sql}")
