"""Spark SQL to DuckDB SQL, by sqlglot, put right where its own translation fails or means something else.

DuckDB stands in for Spark in the lab, so what counts here is Spark's meaning.
"""

import re
from collections.abc import Callable
from functools import lru_cache

import sqlglot
from sqlglot import exp


@lru_cache(maxsize=4096)
def to_duckdb(sql: str) -> str:
    """The DuckDB text of a Spark SQL statement."""
    # sqlglot has no place for how often a value counts, the third argument
    kept = re.sub(r"\bpercentile\(", "percentile_of(", sql, flags=re.IGNORECASE)
    return duckdb_tree(sqlglot.parse_one(kept, read="spark")).sql(dialect="duckdb", copy=False)


def duckdb_tree(tree: exp.Expr) -> exp.Expr:
    """A parsed Spark statement, changed so that sqlglot's DuckDB generator writes what Spark means."""
    for select in list(tree.find_all(exp.Select)):
        _grouping_sets_as_one_clause(select)
        _no_total_over_nothing(select)
        _laterals_to_joins(select)
    for node in reversed(list(tree.walk())):  # inner ones first
        fixed = _fix(node)
        if fixed is not node:
            node.replace(fixed)
    return tree


def _fix(node: exp.Expr) -> exp.Expr:
    fix = _FIXES.get(type(node))
    if fix is not None:
        return fix(node)
    if isinstance(node, exp.Anonymous):
        named = _FUNCTIONS.get(node.name.upper())
        if named is not None:
            return named(node.expressions)
    return node


# ------------------------------------------------------------------------------------------------- clauses


def _grouping_sets_as_one_clause(select: exp.Select) -> None:
    """GROUP BY a, b WITH CUBE, and GROUP BY a, b GROUPING SETS (...), to DuckDB a product or an error."""
    group = select.args.get("group")
    if group is None:
        return
    for kind in ("cube", "rollup"):
        for clause in group.args.get(kind) or []:
            if not clause.expressions:
                clause.set("expressions", [key.copy() for key in group.expressions])
                group.set("expressions", [])
    if group.args.get("grouping_sets") and group.expressions:
        group.set("expressions", [])


def _no_total_over_nothing(select: exp.Select) -> None:
    """Over no rows, the empty grouping set gives no row in Spark, one in DuckDB."""
    group = select.args.get("group")
    if group is None or group.find(exp.Cube, exp.Rollup, exp.GroupingSets) is None:
        return
    some = exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(0))
    having = select.args.get("having")
    condition = exp.and_(having.this, some) if having else some
    select.set("having", exp.Having(this=condition))


def _laterals_to_joins(select: exp.Select) -> None:
    """LATERAL VIEW [OUTER] f(...) t AS c  =  CROSS (LEFT) JOIN LATERAL (SELECT ... ) AS t(c)."""
    for lateral in select.args.get("laterals") or []:
        select.append("joins", _lateral_join(lateral))
    select.set("laterals", None)
    for join in select.args.get("joins") or []:
        if isinstance(join.this, exp.Lateral) and not isinstance(join.this.this, exp.Subquery):
            join.replace(_lateral_join(join.this))


def _lateral_join(lateral: exp.Lateral) -> exp.Join:
    alias = lateral.args["alias"]
    rows = exp.Subquery(this=_generated_rows(lateral.this), alias=alias.copy())
    join = exp.Join(this=exp.Lateral(this=rows))
    if lateral.args.get("outer") or isinstance(lateral.this, (exp.ExplodeOuter, exp.PosexplodeOuter)):
        join.set("side", "LEFT")
        join.set("on", exp.true())
    else:
        join.set("kind", "CROSS")
    return join


def _generated_rows(call: exp.Expr) -> exp.Select | exp.Union:
    """The rows of a generator function, as a query that reads the row beside it."""
    if isinstance(call, (exp.Posexplode, exp.PosexplodeOuter)):
        array = call.this.copy()
        size = exp.Anonymous(this="RANGE", expressions=[exp.Anonymous(this="LEN", expressions=[array.copy()])])
        return exp.select(exp.Anonymous(this="UNNEST", expressions=[size]), _unnest(array))
    if isinstance(call, exp.Explode):
        if isinstance(call.this, (exp.Map, exp.VarMap)):
            entries = exp.Anonymous(this="MAP_ENTRIES", expressions=[call.this.copy()])
            return exp.select(_unnest(entries, deep=True))
        return exp.select(_unnest(call.this.copy()))
    if isinstance(call, exp.Inline):
        return exp.select(_unnest(call.this.copy(), deep=True))
    if isinstance(call, exp.Stack):
        return _stacked(int(call.this.name), [value.copy() for value in call.expressions])
    raise NotImplementedError(f"LATERAL VIEW {call.sql('spark')}")


def _unnest(array: exp.Expr, *, deep: bool = False) -> exp.Expr:
    depth = [exp.Kwarg(this=exp.var("max_depth"), expression=exp.Literal.number(2))] if deep else []
    return exp.Anonymous(this="UNNEST", expressions=[array, *depth])


def _stacked(count: int, values: list[exp.Expr]) -> exp.Select | exp.Union:
    width = -(-len(values) // count)
    values += [exp.null() for _ in range(count * width - len(values))]
    rows = [exp.select(*values[n * width : (n + 1) * width]) for n in range(count)]
    return exp.union(*rows, distinct=False) if count > 1 else rows[0]


# --------------------------------------------------------------------------------------------- expressions


def _cast(node: exp.Expr) -> exp.Expr:
    """Spark's CAST raises in ANSI mode; sqlglot takes it for TRY_CAST."""
    return node if node.args.get("safe") else exp.Cast(this=node.this, to=node.args["to"])


def _as_date(node: exp.Expr) -> exp.Expr:
    """A date plus days or months is a date; DuckDB makes it a timestamp."""
    return exp.Cast(this=node.copy(), to=exp.DataType.build("date"))


def _trunc(node: exp.Expr) -> exp.Expr:
    names = {"MM": "month", "MON": "month", "YEAR": "year", "YYYY": "year", "YY": "year", "WEEK": "week"}
    unit = node.args["unit"].name.upper()
    call = exp.Anonymous(this="DATE_TRUNC", expressions=[exp.Literal.string(names.get(unit, unit)), node.this])
    return exp.Cast(this=call, to=exp.DataType.build("date"))


def _day_of_week(node: exp.Expr) -> exp.Expr:
    """Spark counts from Sunday = 1, DuckDB from Sunday = 0."""
    call = exp.Anonymous(this="DAYOFWEEK", expressions=[node.this])
    return exp.Paren(this=exp.Add(this=call, expression=exp.Literal.number(1)))


def _count_if(node: exp.Expr) -> exp.Expr:
    """Where nothing is true DuckDB's COUNT_IF is NULL, not 0."""
    return exp.Count(this=exp.case().when(node.this.copy(), "1"), big_int=True)


def _collect_set(node: exp.Expr) -> exp.Expr:
    """Of nothing, or of NULLs alone, Spark collects an empty set."""
    if isinstance(node.parent, (exp.Filter, exp.Window)):
        return node
    return exp.Coalesce(this=node.copy(), expressions=[exp.Array()])


def _in_subquery(node: exp.Expr) -> exp.Expr:
    """As a value (not as a filter) Spark's IN and NOT IN of a subquery are FALSE where SQL says NULL."""
    if node.args.get("query") is None:
        return node
    negated, top = False, node
    while isinstance(top.parent, (exp.Paren, exp.And, exp.Or, exp.Not)):
        top = top.parent
        negated ^= isinstance(top, exp.Not)
    if isinstance(top.parent, (exp.Where, exp.Having, exp.Join, exp.If)) and top.arg_key in ("this", "on"):
        return node
    return exp.Coalesce(this=node.copy(), expressions=[exp.true() if negated else exp.false()])


def _sequence(node: exp.Expr) -> exp.Expr:
    """SEQUENCE(1, 0) is [1, 0] in Spark."""
    start, end = node.args["start"], node.args["end"]
    step = node.args.get("step")
    if step is None:
        step = exp.case().when(exp.GTE(this=end.copy(), expression=start.copy()), "1").else_("-1")
    return exp.Anonymous(this="GENERATE_SERIES", expressions=[start, end, step])


def _logical(name: str) -> Callable[[list[exp.Expr]], exp.Expr]:
    return lambda args: exp.Anonymous(this=name, expressions=args)


def _any(node: exp.Expr) -> exp.Expr:
    """ANY(f) is an aggregate unless it stands beside a comparison."""
    if (isinstance(node.parent, exp.Binary) and node.arg_key == "expression") or isinstance(node.this, exp.Subquery):
        return node
    return exp.Anonymous(this="BOOL_OR", expressions=[node.this.unnest()])


def _pmod(args: list[exp.Expr]) -> exp.Expr:
    one, two = (exp.paren(arg) for arg in args)
    inner = exp.Paren(this=exp.Add(this=exp.Mod(this=one, expression=two), expression=two.copy()))
    return exp.Paren(this=exp.Mod(this=inner, expression=two.copy()))


def _hash(args: list[exp.Expr]) -> exp.Expr:
    """Any hash will do, as long as it is a BIGINT."""
    call = exp.Anonymous(this="HASH", expressions=args)
    shifted = exp.Paren(this=exp.BitwiseRightShift(this=call, expression=exp.Literal.number(1)))
    return exp.Cast(this=shifted, to=exp.DataType.build("bigint"))


def _array_repeat(args: list[exp.Expr]) -> exp.Expr:
    value, count = args
    numbers = exp.Anonymous(this="RANGE", expressions=[count])
    each = exp.Lambda(this=value, expressions=[exp.to_identifier("_n")])
    return exp.Anonymous(this="LIST_TRANSFORM", expressions=[numbers, each])


_FIXES: dict[type[exp.Expr], Callable[[exp.Expr], exp.Expr]] = {
    exp.TryCast: _cast,
    exp.Any: _any,
    exp.TsOrDsAdd: _as_date,
    exp.AddMonths: _as_date,
    exp.DateTrunc: _trunc,
    exp.TimestampTrunc: _trunc,
    exp.DayOfWeek: _day_of_week,
    exp.CountIf: _count_if,
    exp.ArrayUniqueAgg: _collect_set,
    exp.In: _in_subquery,
    exp.GenerateSeries: _sequence,
}
_ZERO = exp.Literal.number(0)


def _percentile(args: list[exp.Expr]) -> exp.Expr:
    """Between two values, and of values that count several times."""
    value, share = exp.cast(args[0], "DOUBLE"), args[1]
    often = exp.cast(args[2], "BIGINT") if len(args) > 2 else exp.Literal.number(1)
    known = exp.and_(exp.not_(exp.Is(this=value.copy(), expression=exp.null())), exp.GT(this=often, expression=_ZERO))
    copies = exp.Anonymous(this="REPEAT", expressions=[exp.Array(expressions=[value]), often.copy()])
    listed = exp.Filter(this=exp.Anonymous(this="LIST", expressions=[copies]), expression=exp.Where(this=known))
    flat = exp.Anonymous(this="FLATTEN", expressions=[listed])
    return exp.Anonymous(this="LIST_AGGREGATE", expressions=[flat, exp.Literal.string("quantile_cont"), share])


_FUNCTIONS: dict[str, Callable[[list[exp.Expr]], exp.Expr]] = {
    "XXHASH64": _hash,
    "HASH": _hash,
    "ARRAY_REPEAT": _array_repeat,
    "PERCENTILE_OF": _percentile,
    "PMOD": _pmod,
    "ISNULL": lambda args: exp.Is(this=args[0], expression=exp.null()),
    "ISNOTNULL": lambda args: exp.not_(exp.Is(this=args[0], expression=exp.null())),
    "EVERY": _logical("BOOL_AND"),
    "SOME": _logical("BOOL_OR"),
    "ANY": _logical("BOOL_OR"),
}
