"""Window functions with PARTITION BY, several per select, frames, QUALIFY.

What hangs on the order of rows (row_number, lag, frames of rows) is ordered by all columns, so that rows that
tie are equal and the answer is the same whichever comes first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.lab.case import Grade, Type
from tests.lab.context import Context, Expr, Query, Ref, keyable, of_type
from tests.lab.scalars import predicate, random_literal
from tests.lab.selects import SelectList
from tests.lab.sources import Source


@dataclass(frozen=True)
class Window:
    partition: str
    order: str  # some columns: rows may tie
    total_order: str | None  # all columns; None where a rounded one is among them

    def over(self, order: str | None = None, frame: str = "") -> str:
        ordered = f" ORDER BY {order}" if order else ""
        return f"OVER (PARTITION BY {self.partition}{ordered}{frame})"


def window_select(ctx: Context, from_: Source, where: str) -> Query:
    keys = keyable(from_.scope)
    chosen = SelectList([], [])
    for ref in ctx.choice.sample(from_.scope, ctx.choice.integer(1, 4)):
        chosen.add_column(ctx, ref)
    count = ctx.choice.weighted([(5, 1), (4, 2), (1, 3)])
    if count > 1:
        ctx.note("window.several")
    qualify, named = "", ""
    if ctx.choice.chance(25):
        window = _window(ctx, keys, from_.scope)
        count -= 1
        # beside another function ties may fall another way: which of two equal rows stays would be luck
        qualify = _qualify(ctx, from_, window if not count else replace(window, total_order=None))
    for _ in range(count):
        _add(ctx, chosen, window_function(ctx, from_.scope, _window(ctx, keys, from_.scope)))
    if ctx.choice.chance(10):
        named = _named_window(ctx, chosen, keys)
    sql = f"SELECT {chosen.sql()} FROM {from_.sql}{where}{named}{qualify}"
    return Query(sql, tuple(chosen.columns), from_.size)


def _window(ctx: Context, keys: Sequence[Ref], scope: Sequence[Ref]) -> Window:
    partition = ", ".join(ref.sql for ref in ctx.choice.sample(keys, ctx.choice.weighted([(7, 1), (3, 2)])))
    order = ", ".join(_ordered(ctx, ref) for ref in ctx.choice.sample(keys, ctx.choice.integer(1, 2)))
    total = None
    if len(keys) == len(scope):
        total = ", ".join(_ordered(ctx, ref) for ref in ctx.choice.sample(keys, len(keys)))
    return Window(partition, order, total)


def _ordered(ctx: Context, ref: Ref) -> str:
    return ref.sql + ctx.choice.weighted([(6, ""), (3, " DESC"), (1, " NULLS LAST"), (1, " DESC NULLS FIRST")])


def window_function(ctx: Context, scope: Sequence[Ref], window: Window) -> Expr:
    name = ctx.choice.weighted(_FUNCTIONS)
    total = window.total_order
    if total is None and name in _NEED_TOTAL_ORDER:
        name = "rank"
    ctx.note(f"window.{name}")
    if name in ("rank", "dense_rank"):
        return Expr(f"{name.upper()}() {window.over(window.order)}", Type.INT)
    if name == "relative":
        function = ctx.choice.pick(("PERCENT_RANK", "CUME_DIST"))
        return Expr(f"{function}() {window.over(window.order)}", Type.DOUBLE, Grade.STABLE)
    if name in ("row_number", "ntile"):
        function = "NTILE(3)" if name == "ntile" else "ROW_NUMBER()"
        return Expr(f"{function} {window.over(total)}", Type.INT)
    if name in ("lag", "lead", "value"):
        return _neighbour(ctx, scope, window, name)
    return _aggregate_over(ctx, scope, window, name)


_FUNCTIONS = [
    (5, "rank"),
    (3, "dense_rank"),
    (6, "row_number"),
    (7, "whole"),
    (5, "running"),
    (3, "frame"),
    (3, "lag"),
    (2, "lead"),
    (2, "value"),
    (1, "ntile"),
    (1, "relative"),
]
_NEED_TOTAL_ORDER = frozenset({"row_number", "frame", "lag", "lead", "value", "ntile"})


def _neighbour(ctx: Context, scope: Sequence[Ref], window: Window, name: str) -> Expr:
    ref = ctx.choice.pick(scope)
    if name == "value":
        function = ctx.choice.pick((f"FIRST_VALUE({ref.sql})", f"LAST_VALUE({ref.sql})", f"NTH_VALUE({ref.sql}, 2)"))
        frame = " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING" * ctx.choice.chance(50)
        return Expr(f"{function} {window.over(window.total_order, frame)}", ref.type, ref.grade)
    default = f", 1, {random_literal(ctx.choice, ref.type)}" if ctx.choice.chance(25) else ""
    return Expr(f"{name.upper()}({ref.sql}{default}) {window.over(window.total_order)}", ref.type, ref.grade)


def _aggregate_over(ctx: Context, scope: Sequence[Ref], window: Window, name: str) -> Expr:
    call = _aggregate(ctx, scope)
    if name == "whole":
        over = window.over()
    elif name == "running":
        over = window.over(window.order)
    else:
        start = ctx.choice.pick(("UNBOUNDED PRECEDING", "1 PRECEDING", "CURRENT ROW"))
        end = ctx.choice.pick(("CURRENT ROW", "1 FOLLOWING"))
        over = window.over(window.total_order, f" ROWS BETWEEN {start} AND {end}")
    return Expr(f"{call.sql} {over}", call.type, call.grade)


def _aggregate(ctx: Context, scope: Sequence[Ref]) -> Expr:
    name = ctx.choice.weighted([(4, "SUM"), (2, "COUNT"), (2, "MIN"), (2, "MAX"), (2, "AVG"), (1, "STAR")])
    numbers = of_type(scope, Type.INT) + of_type(scope, Type.DECIMAL) + of_type(scope, Type.DOUBLE)
    if name == "SUM" and numbers:
        ref = ctx.choice.pick(numbers)
        type_ = Type.BIGINT if ref.type is Type.INT else ref.type
        return Expr(f"SUM({ref.sql})", type_, Grade.ROUNDED if ref.grade > Grade.EXACT else Grade.EXACT)
    if name == "AVG" and (whole := of_type(scope, Type.INT)):
        return Expr(f"AVG({ctx.choice.pick(whole).sql})", Type.DOUBLE, Grade.STABLE)
    if name in ("MIN", "MAX"):
        ref = ctx.choice.pick(scope)
        return Expr(f"{name}({ref.sql})", ref.type, ref.grade)
    if name == "COUNT":
        return Expr(f"COUNT({ctx.choice.pick(scope).sql})", Type.BIGINT)
    return Expr("COUNT(*)", Type.BIGINT)


def _add(ctx: Context, chosen: SelectList, value: Expr) -> None:
    if value.type in (Type.INT, Type.BIGINT) and ctx.choice.chance(15):
        ctx.note("window.in_expression")
        value = Expr(f"({value.sql} * 2 + 1)", value.type)
    chosen.add(ctx, value)


def _named_window(ctx: Context, chosen: SelectList, keys: Sequence[Ref]) -> str:
    ctx.note("window.named")
    name = ctx.fresh("win")
    chosen.add(ctx, Expr(f"COUNT(*) OVER {name}", Type.BIGINT))
    return f" WINDOW {name} AS (PARTITION BY {ctx.choice.pick(keys).sql})"


def _qualify(ctx: Context, from_: Source, window: Window) -> str:
    ctx.note("qualify")
    value = window_function(ctx, from_.scope, window)
    if value.type in (Type.INT, Type.BIGINT):
        test = f"{value.sql} {ctx.choice.pick(('<=', '>=', '<=', '='))} {ctx.choice.integer(1, 3)}"
    else:
        test = f"{value.sql} IS NOT NULL"
    return f" QUALIFY {test}" + (f" OR {predicate(ctx, from_.scope, 0)}" if ctx.choice.chance(20) else "")
