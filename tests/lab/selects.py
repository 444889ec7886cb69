"""Plain select lists: columns, expressions, stars, lateral column aliases, subqueries, explode."""

from dataclasses import dataclass

from tests.lab.case import Column, Grade, Type, identifier
from tests.lab.context import Context, Expr, Query, Ref, keyable, select_item, unique_names
from tests.lab.scalars import scalar
from tests.lab.sources import Source
from tests.lab.subqueries import scalar_subquery, subquery_predicate


@dataclass
class SelectList:
    """A select list in the making; every output name is given once."""

    items: list[str]
    columns: list[Column]

    def taken(self, name: str) -> bool:
        return name.lower() in {column.name.lower() for column in self.columns}

    def add_column(self, ctx: Context, ref: Ref) -> None:
        """A column under its own name where that is free, else under a new one."""
        if self.taken(ref.name) or ctx.choice.chance(10):
            self.add(ctx, Expr(ref.sql, ref.type, ref.grade))
            return
        self.items.append(ref.sql)
        self.columns.append(Column(ref.name, ref.type, ref.grade))

    def add(self, ctx: Context, expr: Expr) -> str:
        name = ctx.fresh("Total ") if ctx.choice.chance(2) else ctx.fresh("e")
        self.items.append(select_item(expr.sql, name))
        self.columns.append(Column(name, expr.type, expr.grade))
        return name

    def sql(self) -> str:
        return ", ".join(self.items)


def plain_select(ctx: Context, from_: Source, where: str, depth: int) -> Query:
    worst = Grade.ROUNDED
    distinct = ctx.choice.chance(14)
    if distinct and keyable(from_.scope):
        ctx.note("distinct")
        worst = Grade.STABLE
    else:
        distinct = False
    star = _star(ctx, from_, worst)
    chosen = star or _listed(ctx, from_, depth, worst, distinct=distinct)
    size = min(from_.size, 40) if distinct else from_.size
    sql = f"SELECT {'DISTINCT ' * distinct}{chosen.sql()} FROM {from_.sql}{where}"
    return Query(sql, tuple(chosen.columns), size)


def _star(ctx: Context, from_: Source, worst: Grade) -> SelectList | None:
    """`*`, `* EXCEPT (c)`, or `r.*` with more columns beside it; None where it cannot or need not be."""
    if not from_.plain_star or not ctx.choice.chance(22) or any(ref.grade > worst for ref in from_.scope):
        return None
    if unique_names(from_.scope) and ctx.choice.chance(65):
        dropped = ctx.choice.pick(from_.scope) if len(from_.scope) > 1 and ctx.choice.chance(35) else None
        ctx.note("star.except" if dropped else "star")
        kept = [Column(r.name, r.type, r.grade) for r in from_.scope if r is not dropped]
        return SelectList([f"* EXCEPT ({identifier(dropped.name)})" if dropped else "*"], kept)
    if not from_.stars:
        return None
    alias, refs = ctx.choice.pick(from_.stars)
    ctx.note("star.qualified")
    chosen = SelectList([f"{alias}.*"], [Column(r.name, r.type, r.grade) for r in refs])
    for ref in ctx.choice.sample([ref for ref in from_.scope if ref not in refs], 2):
        chosen.add_column(ctx, ref)
    return chosen


def _listed(ctx: Context, from_: Source, depth: int, worst: Grade, *, distinct: bool) -> SelectList:
    chosen = SelectList([], [])
    usable = [ref for ref in from_.scope if ref.grade <= worst]
    for ref in ctx.choice.sample(usable, ctx.choice.integer(1, 4)):
        chosen.add_column(ctx, ref)
    for _ in range(ctx.choice.weighted([(5, 0), (4, 1), (2, 2)])):
        _add_expression(ctx, chosen, from_, depth, worst)
    if ctx.choice.chance(3) and not distinct:
        ctx.note("explode.select_list")
        items = [scalar(ctx, from_.scope, Type.INT, 1).sql for _ in range(2)]
        chosen.add(ctx, Expr(f"EXPLODE(ARRAY({', '.join(items)}))", Type.INT))
    return chosen


def _add_expression(ctx: Context, chosen: SelectList, from_: Source, depth: int, worst: Grade) -> None:
    kind = ctx.choice.weighted([(12, "scalar"), (2, "alias"), (2, "boolean"), (3, "scalar subquery"), (2, "case")])
    subqueries = depth > 0 and ctx.budget > 0 and "LATERAL VIEW" not in from_.sql
    if kind == "alias":
        _add_lateral_alias(ctx, chosen, from_)
    elif kind == "boolean" and subqueries:
        ctx.note("subquery.select_list")
        chosen.add(ctx, Expr(subquery_predicate(ctx, from_.scope, depth), Type.BOOLEAN))
    elif kind == "scalar subquery" and subqueries:
        ctx.note("subquery.select_list")
        chosen.add(ctx, scalar_subquery(ctx, from_.scope, depth, worst))
    elif kind == "case" and subqueries:
        ctx.note("subquery.in_case")
        inner = subquery_predicate(ctx, from_.scope, depth)
        one = scalar(ctx, from_.scope, Type.INT, 1).sql
        chosen.add(ctx, Expr(f"CASE WHEN {inner} THEN {one} ELSE -1 END", Type.INT))
    else:
        type_ = ctx.choice.pick(tuple(Type))
        chosen.add(ctx, scalar(ctx, from_.scope, type_, 2, worst))


def _add_lateral_alias(ctx: Context, chosen: SelectList, from_: Source) -> None:
    """A select item that reads the alias of an earlier one."""
    ctx.note("lateral_alias")
    type_ = ctx.choice.pick((Type.INT, Type.STRING))
    first = chosen.add(ctx, scalar(ctx, from_.scope, type_, 2))
    again = f"{identifier(first)} + 1" if type_ is Type.INT else f"UPPER({identifier(first)})"
    chosen.add(ctx, Expr(again, type_))
