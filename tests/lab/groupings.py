"""GROUP BY in all its forms, HAVING, and aggregates without GROUP BY."""

from collections.abc import Sequence

from tests.lab.aggregates import aggregate
from tests.lab.case import Grade, Type, identifier
from tests.lab.context import Context, Expr, Query, Ref, keyable
from tests.lab.scalars import predicate, random_literal, scalar
from tests.lab.selects import SelectList
from tests.lab.sources import Source
from tests.lab.subqueries import subquery_predicate


def grouped_select(ctx: Context, from_: Source, where: str, depth: int) -> Query:
    kind = ctx.choice.weighted([(10, "columns"), (3, "global"), (4, "expression"), (4, "sets"), (2, "over")])
    if not keyable(from_.scope) or kind == "global":
        return _global(ctx, from_, where)
    if kind == "sets":
        return _grouping_sets(ctx, from_, where, depth)
    if kind == "over":
        return _window_over_groups(ctx, from_, where)
    keys = _keys(ctx, from_, expressions=kind == "expression")
    return _grouped(ctx, from_, where, keys, depth)


def _global(ctx: Context, from_: Source, where: str) -> Query:
    """Without GROUP BY there is one row, also over nothing (none where HAVING says so)."""
    ctx.note("group.global")
    chosen = SelectList([], [])
    _add_aggregates(ctx, chosen, from_.scope)
    having = ""
    if ctx.choice.chance(15):
        ctx.note("having")
        having = f" HAVING COUNT(*) > {ctx.choice.pick((2, 0, 4))}"
    return Query(f"SELECT {chosen.sql()} FROM {from_.sql}{where}{having}", tuple(chosen.columns), 1)


def _keys(ctx: Context, from_: Source, *, expressions: bool) -> list[Expr | Ref]:
    columns: list[Expr | Ref] = list(ctx.choice.sample(keyable(from_.scope), ctx.choice.integer(1, 3)))
    if expressions:
        type_ = ctx.choice.pick((Type.INT, Type.STRING, Type.DATE, Type.BOOLEAN, Type.DECIMAL))
        value = scalar(ctx, from_.scope, type_, 2, Grade.STABLE)
        if any(ref.sql in value.sql for ref in from_.scope):
            ctx.note("group.expression")
            return [*columns[1:], value]
    return columns


def _grouped(ctx: Context, from_: Source, where: str, keys: list[Expr | Ref], depth: int) -> Query:
    chosen = SelectList([], [])
    terms = [_add_key(ctx, chosen, key) for key in keys]
    _add_aggregates(ctx, chosen, from_.scope, at_least=0 if chosen.items and ctx.choice.chance(12) else 1)
    if any(isinstance(key, Ref) for key in keys) and ctx.choice.chance(8):
        ctx.note("group.key_expression")
        ref = next(key for key in keys if isinstance(key, Ref))
        chosen.add(ctx, Expr(f"COALESCE({ref.sql}, {random_literal(ctx.choice, ref.type)})", ref.type, ref.grade))
    having = _having(ctx, from_, keys, chosen, depth) if ctx.choice.chance(28) else ""
    ctx.note("group")
    sql = f"SELECT {chosen.sql()} FROM {from_.sql}{where} GROUP BY {', '.join(terms)}{having}"
    return Query(sql, tuple(chosen.columns), min(from_.size, 12 * len(keys)))


def _add_key(ctx: Context, chosen: SelectList, key: Expr | Ref) -> str:
    """Show the key (mostly), and say how GROUP BY names it: by text, ordinal or alias."""
    if ctx.choice.chance(12):
        return key.sql
    if isinstance(key, Ref):
        chosen.add_column(ctx, key)
    else:
        chosen.add(ctx, key)
    form = ctx.choice.weighted([(7, "text"), (2, "ordinal"), (2, "alias")])
    if form == "ordinal":
        ctx.note("group.ordinal")
        return str(len(chosen.items))
    if form == "alias" and " AS " in chosen.items[-1]:
        ctx.note("group.alias")
        return identifier(chosen.columns[-1].name)
    return key.sql


def _add_aggregates(ctx: Context, chosen: SelectList, scope: Sequence[Ref], at_least: int = 1) -> None:
    for _ in range(max(at_least, ctx.choice.weighted([(4, 1), (4, 2), (2, 3)]) if at_least else 0)):
        value = aggregate(ctx, scope)
        form = ctx.choice.weighted([(12, "plain"), (2, "coalesce"), (1, "plus"), (1, "case")])
        if form == "coalesce":
            ctx.note("agg.in_expression")
            zero = random_literal(ctx.choice, value.type)
            value = Expr(f"COALESCE({value.sql}, {zero})", value.type, value.grade)
        elif form == "plus" and value.type is Type.BIGINT:
            ctx.note("agg.in_expression")
            value = Expr(f"{value.sql} + COUNT(*)", Type.BIGINT)
        elif form == "case":
            ctx.note("agg.in_expression")
            value = Expr(f"CASE WHEN COUNT(*) > 1 THEN {value.sql} END", value.type, value.grade)
        chosen.add(ctx, value)


def _having(ctx: Context, from_: Source, keys: list[Expr | Ref], chosen: SelectList, depth: int) -> str:
    ctx.note("having")
    form = ctx.choice.weighted([(4, "count"), (3, "aggregate"), (2, "key"), (1, "subquery"), (1, "alias")])
    refs = [key for key in keys if isinstance(key, Ref)]
    if form == "key" and refs:
        return f" HAVING {predicate(ctx, refs, 1)}"
    if form == "subquery" and refs and depth > 0 and ctx.budget > 0:
        ctx.note("subquery.having")
        return f" HAVING {subquery_predicate(ctx, refs, depth)}"
    if form == "alias":
        shown = [c for c, item in zip(chosen.columns, chosen.items, strict=True) if item.endswith(f" AS {c.name}")]
        if counts := [column for column in shown if column.type is Type.BIGINT]:
            ctx.note("having.alias")
            return f" HAVING {ctx.choice.pick(counts).name} >= 1"
    if form == "aggregate":
        value = aggregate(ctx, from_.scope, worst=Grade.STABLE)
        test = ctx.choice.pick(("<>", ">=", "<="))
        return f" HAVING {value.sql} {test} {random_literal(ctx.choice, value.type)}"
    return f" HAVING COUNT(*) > {ctx.choice.pick((1, 0, 1, 2))}"


def _grouping_sets(ctx: Context, from_: Source, where: str, depth: int) -> Query:
    keys = ctx.choice.sample(keyable(from_.scope), ctx.choice.integer(1, 3))
    names = [key.sql for key in keys]
    listed = ", ".join(names)
    kind = ctx.choice.weighted([(3, "rollup"), (3, "cube"), (3, "sets"), (1, "with_rollup"), (1, "with_cube")])
    ctx.note(f"group.{kind}")
    clause = {
        "rollup": f"ROLLUP ({listed})",
        "cube": f"CUBE ({listed})",
        "with_rollup": f"{listed} WITH ROLLUP",
        "with_cube": f"{listed} WITH CUBE",
        "sets": f"GROUPING SETS ({_sets(ctx, names)})",
    }[kind]
    chosen = SelectList([], [])
    for key in keys:
        chosen.add_column(ctx, key)
    _add_aggregates(ctx, chosen, from_.scope)
    if ctx.choice.chance(40):
        ctx.note("group.grouping_id")
        chosen.add(ctx, Expr("GROUPING_ID()", Type.BIGINT))
    if ctx.choice.chance(30):
        ctx.note("group.grouping")
        chosen.add(ctx, Expr(f"CAST(GROUPING({ctx.choice.pick(names)}) AS INT)", Type.INT))
    having = f" HAVING COUNT(*) > {ctx.choice.pick((1, 0, 1, 2))}" if ctx.choice.chance(15) else ""
    sql = f"SELECT {chosen.sql()} FROM {from_.sql}{where} GROUP BY {clause}{having}"
    return Query(sql, tuple(chosen.columns), min(2 * from_.size, 30 * len(keys)))


def _sets(ctx: Context, names: list[str]) -> str:
    """Grouping sets that name every key at least once (GROUPING_ID() counts the keys that are named)."""
    sets = [f"({', '.join(names)})"]
    for _ in range(ctx.choice.integer(1, 2)):
        some = ctx.choice.sample(names, ctx.choice.integer(0, len(names)))
        sets += [f"({', '.join(some)})"]
    return ", ".join(sets)


def _window_over_groups(ctx: Context, from_: Source, where: str) -> Query:
    """A window function over the result of an aggregation: SUM(COUNT(*)) OVER (PARTITION BY key)."""
    ctx.note("window.over_groups")
    keys = ctx.choice.sample(keyable(from_.scope), 2)
    chosen = SelectList([], [])
    for key in keys:
        chosen.add_column(ctx, key)
    counted = aggregate(ctx, from_.scope, worst=Grade.STABLE)
    chosen.add(ctx, counted)
    over = f"OVER (PARTITION BY {keys[0].sql}"
    chosen.add(ctx, Expr(f"SUM(COUNT(*)) {over})", Type.BIGINT))
    if ctx.choice.chance(40):
        chosen.add(ctx, Expr(f"RANK() {over} ORDER BY {counted.sql} DESC)", Type.INT))
    sql = f"SELECT {chosen.sql()} FROM {from_.sql}{where} GROUP BY {', '.join(key.sql for key in keys)}"
    return Query(sql, tuple(chosen.columns), min(from_.size, 25))
