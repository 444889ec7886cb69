"""Aggregate functions that are deterministic and mean the same in Spark and in DuckDB."""

from collections.abc import Sequence

from tests.lab.case import Grade, Type
from tests.lab.context import Context, Expr, Ref, keyable, of_type
from tests.lab.scalars import predicate, scalar

_NUMERIC = (Type.INT, Type.BIGINT, Type.DECIMAL, Type.DOUBLE)
_AVERAGED = (Type.INT, Type.BIGINT, Type.DOUBLE)
_SUM_TYPE = {
    Type.INT: Type.BIGINT,
    Type.BIGINT: Type.BIGINT,
    Type.DECIMAL: Type.DECIMAL,
    Type.DOUBLE: Type.DOUBLE,
}


def aggregate(ctx: Context, scope: Sequence[Ref], worst: Grade = Grade.ROUNDED) -> Expr:
    """One aggregate call, now and then with FILTER."""
    name = ctx.choice.weighted(_FUNCTIONS)
    value = _WRITERS.get(name, _count_star)(ctx, scope, worst)
    if value.grade > worst:
        name, value = "count_star", _count_star(ctx, scope, worst)
    ctx.note(f"agg.{name}")
    if ctx.choice.chance(12) and name != "collect":
        ctx.note("agg.filter")
        filtered = f"{value.sql} FILTER (WHERE {predicate(ctx, scope, 1)})"
        value = Expr(filtered, value.type, value.grade)
    if name == "avg_decimal":
        # Spark averages decimals as decimals, DuckDB as doubles: the cast levels that, but for rounding.
        return Expr(f"CAST({value.sql} AS DOUBLE)", value.type, value.grade)
    return value


def _count_star(ctx: Context, scope: Sequence[Ref], worst: Grade) -> Expr:
    return Expr("COUNT(*)", Type.BIGINT)


def _count(ctx: Context, scope: Sequence[Ref], worst: Grade) -> Expr:
    return Expr(f"COUNT({ctx.choice.pick(scope).sql})", Type.BIGINT)


def _count_distinct(ctx: Context, scope: Sequence[Ref], worst: Grade) -> Expr:
    keys = keyable(scope)
    if not keys:
        return _count_star(ctx, scope, worst)
    chosen = ctx.choice.sample(keys, 1 + ctx.choice.chance(20))
    return Expr(f"COUNT(DISTINCT {', '.join(ref.sql for ref in chosen)})", Type.BIGINT)


def _count_if(ctx: Context, scope: Sequence[Ref], worst: Grade) -> Expr:
    return Expr(f"COUNT_IF({predicate(ctx, scope, 1)})", Type.BIGINT)


def _sum(ctx: Context, scope: Sequence[Ref], worst: Grade) -> Expr:
    of = scalar(ctx, scope, _numeric(ctx, scope), 1)
    grade = Grade.ROUNDED if of.grade > Grade.EXACT else Grade.EXACT
    if of.type is Type.DECIMAL and ctx.choice.chance(25):  # as products are: its sum may not fit, for all Deltaic knows
        ctx.note("agg.sum_wide")
        of = Expr(f"CAST({of.sql} AS DECIMAL(32,4))", of.type, of.grade)
    distinct = "DISTINCT " * (of.grade <= Grade.STABLE and ctx.choice.chance(10))
    return Expr(f"SUM({distinct}{of.sql})", _SUM_TYPE[of.type], grade)


def _avg(ctx: Context, scope: Sequence[Ref], worst: Grade) -> Expr:
    type_ = ctx.choice.pick([ref.type for ref in scope if ref.type in _AVERAGED] or [Type.INT])
    of = scalar(ctx, scope, type_, 1)
    return Expr(f"AVG({of.sql})", Type.DOUBLE, Grade.ROUNDED if of.grade > Grade.EXACT else Grade.STABLE)


def _avg_decimal(ctx: Context, scope: Sequence[Ref], worst: Grade) -> Expr:
    of = scalar(ctx, scope, Type.DECIMAL, 1)
    return Expr(f"AVG({of.sql})", Type.DOUBLE, Grade.ROUNDED)


def _extreme(ctx: Context, scope: Sequence[Ref], worst: Grade) -> Expr:
    ref = ctx.choice.pick(scope)
    name = ctx.choice.pick(("MIN", "MAX"))
    return Expr(f"{name}({ref.sql})", ref.type, ref.grade)


def _by(ctx: Context, scope: Sequence[Ref], worst: Grade) -> Expr:
    """MAX_BY of a function of its own key: with any other argument a tie would be a matter of luck."""
    keys = of_type(scope, Type.INT) + of_type(scope, Type.STRING)
    if not keys:
        return _count_star(ctx, scope, worst)
    key = ctx.choice.pick(keys)
    shown = f"({key.sql} * 2 + 1)" if key.type is Type.INT else f"UPPER({key.sql})"
    return Expr(f"{ctx.choice.pick(('MAX_BY', 'MIN_BY'))}({shown}, {key.sql})", key.type)


def _boolean(ctx: Context, scope: Sequence[Ref], worst: Grade) -> Expr:
    name = ctx.choice.pick(("BOOL_OR", "BOOL_AND", "EVERY", "SOME", "ANY"))
    return Expr(f"{name}({scalar(ctx, scope, Type.BOOLEAN, 1).sql})", Type.BOOLEAN)


def _spread(ctx: Context, scope: Sequence[Ref], worst: Grade) -> Expr:
    """Over INT alone: DuckDB refuses a variance that meets NaN."""
    name = ctx.choice.pick(("STDDEV_SAMP", "STDDEV_POP", "VAR_SAMP", "VAR_POP"))
    return Expr(f"{name}({scalar(ctx, scope, Type.INT, 1).sql})", Type.DOUBLE, Grade.ROUNDED)


def _collect(ctx: Context, scope: Sequence[Ref], worst: Grade) -> Expr:
    of = scalar(ctx, scope, Type.STRING, 0)
    return Expr(f"ARRAY_JOIN(ARRAY_SORT(COLLECT_SET({of.sql})), ',')", Type.STRING)


def _median(ctx: Context, scope: Sequence[Ref], worst: Grade) -> Expr:
    return Expr(f"MEDIAN({scalar(ctx, scope, Type.INT, 1).sql})", Type.DOUBLE, Grade.STABLE)


def _bits(ctx: Context, scope: Sequence[Ref], worst: Grade) -> Expr:
    of = scalar(ctx, scope, Type.INT, 0)
    return Expr(f"{ctx.choice.pick(('BIT_XOR', 'BIT_OR', 'BIT_AND'))}({of.sql})", Type.INT)


def _numeric(ctx: Context, scope: Sequence[Ref]) -> Type:
    types = [ref.type for ref in scope if ref.type in _NUMERIC]
    return ctx.choice.pick(types) if types else Type.INT


_FUNCTIONS = [
    (12, "count_star"),
    (6, "count"),
    (20, "sum"),
    (10, "extreme"),
    (7, "avg"),
    (2, "avg_decimal"),
    (7, "count_distinct"),
    (4, "spread"),
    (3, "boolean"),
    (3, "by"),
    (2, "count_if"),
    (2, "collect"),
    (1, "median"),
    (1, "bits"),
]
_WRITERS = {
    "count": _count,
    "sum": _sum,
    "extreme": _extreme,
    "avg": _avg,
    "avg_decimal": _avg_decimal,
    "count_distinct": _count_distinct,
    "spread": _spread,
    "boolean": _boolean,
    "by": _by,
    "count_if": _count_if,
    "collect": _collect,
    "median": _median,
    "bits": _bits,
}
