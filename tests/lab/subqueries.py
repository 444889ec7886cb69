"""Subqueries in expressions: IN, EXISTS and scalar ones, correlated or not, negated, under OR, in CASE."""

from collections.abc import Sequence
from dataclasses import replace

from tests.lab.aggregates import aggregate
from tests.lab.case import Grade, Type
from tests.lab.context import Context, Expr, Ref, keyable
from tests.lab.scalars import predicate, scalar
from tests.lab.sources import Source, source


def condition(ctx: Context, scope: Sequence[Ref], depth: int) -> str:
    """A WHERE condition: plain, or with a subquery, alone or under AND, OR, NOT."""
    if depth < 1 or ctx.budget < 1 or not ctx.choice.chance(30):
        return predicate(ctx, scope, 2)
    inner = subquery_predicate(ctx, scope, depth)
    form = ctx.choice.weighted([(6, "alone"), (3, "AND"), (4, "OR"), (1, "NOT")])
    if form == "alone":
        return inner
    if form == "NOT":
        ctx.note("subquery.under_not")
        return f"NOT ({inner})"
    if form == "OR":
        ctx.note("subquery.under_or")
    other = predicate(ctx, scope, 1)
    if ctx.budget > 0 and ctx.choice.chance(10):
        ctx.note("subquery.two")
        other = subquery_predicate(ctx, scope, depth)
    return f"({inner} {form} {other})"


def subquery_predicate(ctx: Context, scope: Sequence[Ref], depth: int) -> str:
    outer = [replace(ref, sql=ref.outer) for ref in keyable(scope) if ref.outer is not None]
    if not outer:
        return predicate(ctx, scope, 1)
    kind = ctx.choice.weighted([(4, "exists"), (3, "not exists"), (4, "in"), (3, "not in"), (2, "scalar"), (1, "row")])
    if kind == "scalar":
        return _scalar_comparison(ctx, outer, depth)
    inner = source(ctx, depth - 1, aliased=True, joins=ctx.choice.chance(30))
    if kind in ("exists", "not exists"):
        return _exists(ctx, outer, inner, depth, kind)
    pairs = _pairs(outer, inner)
    if not pairs:
        return _exists(ctx, outer, inner, depth, "exists")
    if kind == "row":
        return _row_in(ctx, pairs, inner)
    return _in(ctx, outer, inner, depth, kind)


def _exists(ctx: Context, outer: Sequence[Ref], inner: Source, depth: int, kind: str) -> str:
    ctx.note(f"subquery.{kind.replace(' ', '_')}")
    where = _inner_where(ctx, outer, inner, depth, correlated=80)
    shown = ctx.choice.pick(("1", "*", inner.scope[0].sql))
    return f"{kind.upper()} (SELECT {shown} FROM {inner.sql}{where})"


def _in(ctx: Context, outer: Sequence[Ref], inner: Source, depth: int, kind: str) -> str:
    ctx.note(f"subquery.{kind.replace(' ', '_')}")
    one, two = ctx.choice.pick(_pairs(outer, inner))
    if ctx.choice.chance(20):
        ctx.note("subquery.in_grouped")
        groups = f"SELECT {two.sql} FROM {inner.sql} GROUP BY {two.sql} HAVING COUNT(*) > 1"
        return f"{one.sql} {kind.upper()} ({groups})"
    where = _inner_where(ctx, outer, inner, depth, correlated=35)
    distinct = "DISTINCT " * ctx.choice.chance(10)
    return f"{one.sql} {kind.upper()} (SELECT {distinct}{two.sql} FROM {inner.sql}{where})"


def _row_in(ctx: Context, pairs: list[tuple[Ref, Ref]], inner: Source) -> str:
    ctx.note("subquery.row_in")
    chosen = ctx.choice.sample(pairs, 2)
    ones, twos = ", ".join(one.sql for one, _ in chosen), ", ".join(two.sql for _, two in chosen)
    return f"({ones}) IN (SELECT {twos} FROM {inner.sql})"


def _scalar_comparison(ctx: Context, outer: Sequence[Ref], depth: int) -> str:
    value = scalar_subquery(ctx, outer, depth, worst=Grade.STABLE)
    left = scalar(ctx, outer, value.type, 0, Grade.STABLE)
    return f"{left.sql} {ctx.choice.pick(('<=', '>=', '<>', '<>', '='))} {value.sql}"


def scalar_subquery(ctx: Context, scope: Sequence[Ref], depth: int, worst: Grade = Grade.ROUNDED) -> Expr:
    """One aggregate over a source, correlated by equality or not at all."""
    outer = [replace(ref, sql=ref.outer) for ref in keyable(scope) if ref.outer is not None]
    inner = source(ctx, depth - 1, aliased=True, joins=ctx.choice.chance(25))
    value = aggregate(ctx, inner.scope, worst)
    pairs = _pairs(outer, inner)
    ctx.note("subquery.scalar")
    where = f" WHERE {predicate(ctx, inner.scope, 1)}" if ctx.choice.chance(30) else ""
    if pairs and ctx.choice.chance(60):
        ctx.note("subquery.scalar_correlated")
        one, two = ctx.choice.pick(pairs)
        where = f"{where} AND" if where else " WHERE"
        where += f" {two.sql} = {one.sql}"
    return replace(value, sql=f"(SELECT {value.sql} FROM {inner.sql}{where})")


def _inner_where(ctx: Context, outer: Sequence[Ref], inner: Source, depth: int, correlated: int) -> str:
    """The WHERE of a subquery: how it hangs on the outer row, and a condition of its own."""
    parts = []
    pairs = _pairs(outer, inner)
    if pairs and ctx.choice.chance(correlated):
        one, two = ctx.choice.pick(pairs)
        operator = ctx.choice.weighted([(8, "="), (1, "<=>"), (2, "<"), (1, ">="), (1, "<>")])
        ctx.note("subquery.correlated" if operator in ("=", "<=>") else "subquery.correlated_unequal")
        parts.append(f"{two.sql} {operator} {one.sql}")
    if ctx.choice.chance(50):
        parts.append(condition(ctx, inner.scope, depth - 2))
    return " WHERE " + " AND ".join(parts) if parts else ""


def _pairs(outer: Sequence[Ref], inner: Source) -> list[tuple[Ref, Ref]]:
    return [
        (one, two)
        for one in outer
        for two in keyable(inner.scope)
        if one.type is two.type and one.type is not Type.BOOLEAN
    ]
