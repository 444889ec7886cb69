"""The FROM clause: relations, derived tables, VALUES, joins of every kind, LATERAL VIEW."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.lab.case import Column, Grade, Row, Type, identifier, values_sql
from tests.lab.context import Context, Query, Ref, Relation, keyable
from tests.lab.scalars import predicate, random_value, scalar

LARGEST = 1500.0  # rows that a FROM clause may be guessed to give


@dataclass(frozen=True)
class Source:
    """A FROM clause and the columns it brings into scope.

    `stars` are the aliases whose `alias.*` can be written; `plain_star` says that `*` gives the same columns
    in the same order in every engine.
    """

    sql: str
    scope: tuple[Ref, ...]
    size: float
    stars: tuple[tuple[str, tuple[Ref, ...]], ...]
    plain_star: bool = True
    lone_alias: str | None = None
    reads: frozenset[str] = frozenset()


def source(ctx: Context, depth: int, *, aliased: bool = False, joins: bool = True) -> Source:
    """`aliased` is for subqueries: every relation gets an alias of its own, so outer names stay in reach."""
    one = _relation(ctx, depth, aliased=aliased)
    count = ctx.choice.weighted([(50, 0), (38, 1), (12, 2)]) if joins and ctx.budget > 0 else 0
    for _ in range(count):
        if ctx.budget > 0 and one.plain_star:
            one = _join(ctx, one, _relation(ctx, depth, aliased=True))
    if ctx.choice.chance(6):
        one = _lateral_view(ctx, one)
    return _unqualified(ctx, one) if count == 0 and not aliased else one


def _unqualified(ctx: Context, one: Source) -> Source:
    if one.lone_alias is None or ctx.choice.chance(50):
        return one
    return replace(one, scope=tuple(replace(ref, sql=identifier(ref.name)) for ref in one.scope))


# ---------------------------------------------------------------------------------------------- one relation


def _relation(ctx: Context, depth: int, *, aliased: bool) -> Source:
    ctx.budget -= 1
    if depth > 1 and ctx.budget > 0 and ctx.choice.chance(45):
        return _derived_table(ctx, depth)
    if ctx.reads and ctx.choice.chance(6):
        return _values(ctx)
    relation = _pick_relation(ctx)
    ctx.reads[relation.name] += 1
    alias = ctx.fresh("r") if aliased or ctx.choice.chance(60) else relation.name
    sql = relation.name if alias == relation.name else f"{relation.name} {'AS ' * ctx.choice.chance(50)}{alias}"
    one = _aliased(sql, alias, relation.columns, relation.size)
    return replace(one, reads=frozenset({relation.name}))


def _pick_relation(ctx: Context) -> Relation:
    """CTEs first: one that is written should be read, often twice."""
    if ctx.ctes and ctx.choice.chance(70):
        relation = ctx.choice.pick(ctx.ctes)
        ctx.note("cte.read")
        if ctx.reads[relation.name]:
            ctx.note("cte.twice")
        return relation
    relation = ctx.choice.pick(ctx.relations)
    if relation.name.startswith("v"):
        ctx.note("view_over_view")
    return relation


def _derived_table(ctx: Context, depth: int) -> Source:
    ctx.note("derived_table")
    query = ctx.query(depth - 1)
    alias = ctx.fresh("q")
    columns = query.columns
    renamed = ""
    if ctx.choice.chance(8):
        ctx.note("derived_table.column_list")
        columns = tuple(replace(column, name=ctx.fresh("m")) for column in columns)
        renamed = "(" + ", ".join(column.name for column in columns) + ")"
    return _aliased(f"({query.sql}) AS {alias}{renamed}", alias, columns, query.size)


def _values(ctx: Context) -> Source:
    ctx.note("values")
    query = values_query(ctx)
    alias = ctx.fresh("w")
    names = ", ".join(column.name for column in query.columns)
    text = f"({query.sql})" if ctx.choice.chance(30) else query.sql
    return _aliased(f"{text} AS {alias}({names})", alias, query.columns, query.size)


def values_query(ctx: Context) -> Query:
    types = [ctx.choice.pick(tuple(Type)) for _ in range(ctx.choice.integer(1, 3))]
    columns = tuple(Column(ctx.fresh("m"), type_) for type_ in types)
    rows: list[Row] = [
        tuple(None if ctx.choice.chance(15) else random_value(ctx.choice, type_) for type_ in types)
        for _ in range(ctx.choice.integer(1, 4))
    ]
    return Query(values_sql(columns, rows), columns, len(rows))


def _aliased(sql: str, alias: str, columns: Sequence[Column], size: float) -> Source:
    def ref(column: Column) -> Ref:
        sql = f"{alias}.{identifier(column.name)}"
        return Ref(sql, sql, column.name, column.type, column.grade)

    scope = tuple(ref(column) for column in columns)
    return Source(sql, scope, size, ((alias, scope),), lone_alias=alias)


# ---------------------------------------------------------------------------------------------------- joins


def _join(ctx: Context, left: Source, right: Source) -> Source:
    if left.reads & right.reads:
        ctx.note("self_join")
    reads = left.reads | right.reads
    shared = _shared_names(left, right)
    if shared and ctx.choice.chance(25):
        return _named_join(ctx, left, right, shared)
    kind = ctx.choice.weighted(
        [(30, "inner"), (16, "left"), (8, "right"), (9, "full"), (9, "semi"), (10, "anti"), (8, "cross")]
    )
    if kind == "cross" and left.size * right.size > LARGEST:
        kind = "semi"
    on, selectivity = ("", 1.0) if kind == "cross" else _condition(ctx, left, right)
    ctx.note(f"join.{kind}")
    keyword = _KEYWORDS[kind]
    if kind == "inner" and ctx.choice.chance(50):
        keyword = "INNER JOIN"
    if kind == "cross" and ctx.choice.chance(30) and "JOIN" not in left.sql:
        keyword = ","
    sql = f"{left.sql}{' ' * (keyword != ',')}{keyword} {right.sql}{on}"
    if kind in ("semi", "anti"):
        return replace(left, sql=sql, size=left.size / 2, lone_alias=None, reads=reads)
    size = left.size * right.size * selectivity + (left.size + right.size) * (kind in ("left", "right", "full"))
    return Source(sql, left.scope + right.scope, size, left.stars + right.stars, reads=reads)


_KEYWORDS = {
    "inner": "JOIN",
    "cross": "CROSS JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT OUTER JOIN",
    "full": "FULL OUTER JOIN",
    "semi": "LEFT SEMI JOIN",
    "anti": "LEFT ANTI JOIN",
}


def _condition(ctx: Context, left: Source, right: Source) -> tuple[str, float]:
    """An ON clause and its guessed selectivity: equalities, <=>, other comparisons, one-sided conditions."""
    pairs = [
        (one, two)
        for one in keyable(left.scope)
        for two in keyable(right.scope)
        if one.type is two.type and one.type is not Type.BOOLEAN
    ]
    crowded = left.size * right.size / 5 > LARGEST
    parts, selectivity = [], 1.0
    equal = crowded or ctx.choice.chance(85)
    for one, two in ctx.choice.sample(pairs, 1 + (crowded or ctx.choice.chance(12))) if equal else []:
        operator = "<=>" if ctx.choice.chance(15) else "="
        ctx.note("join.null_safe" if operator == "<=>" else "join.equal")
        parts.append(f"{one.sql} {operator} {two.sql}")
        selectivity /= 5
    if pairs and not parts:
        ctx.note("join.unequal")
        one, two = ctx.choice.pick(pairs)
        parts.append(f"{one.sql} {ctx.choice.pick(('<', '>=', '<>', '<='))} {two.sql}")
        selectivity /= 2
    if not parts or ctx.choice.chance(20):
        ctx.note("join.residual")
        side = ctx.choice.pick((left.scope, right.scope, left.scope + right.scope))
        parts.append(predicate(ctx, side, 1))
    return " ON " + " AND ".join(parts), selectivity


def _shared_names(left: Source, right: Source) -> list[tuple[Ref, Ref]]:
    """The pairs of columns that USING or NATURAL could join, where the left side is one relation."""
    if left.lone_alias is None or right.lone_alias is None:
        return []
    names = {ref.name.lower(): ref for ref in right.scope}
    pairs = [(ref, names[ref.name.lower()]) for ref in left.scope if ref.name.lower() in names]
    fits = all(one.type is two.type and max(one.grade, two.grade) < Grade.ROUNDED for one, two in pairs)
    return pairs if fits else []


def _named_join(ctx: Context, left: Source, right: Source, shared: list[tuple[Ref, Ref]]) -> Source:
    """JOIN ... USING, or NATURAL JOIN: the shared columns come out once, before the others."""
    kind = ctx.choice.weighted([(5, "inner"), (3, "left"), (2, "right"), (3, "full"), (1, "semi"), (1, "anti")])
    natural = kind not in ("semi", "anti") and ctx.choice.chance(35)
    keys = shared if natural else ctx.choice.sample(shared, ctx.choice.integer(1, 2))
    ctx.note(f"join.{kind}")
    ctx.note("join.natural" if natural else "join.using")
    using = "" if natural else " USING (" + ", ".join(identifier(one.name) for one, _ in keys) + ")"
    sql = f"{left.sql} {'NATURAL ' * natural}{_KEYWORDS[kind]} {right.sql}{using}"
    if kind in ("semi", "anti"):
        # Spark's star then has the keys first, DuckDB's has not
        return replace(left, sql=sql, size=left.size / 2, lone_alias=None, plain_star=False)
    merged = {ref.name.lower() for ref, _ in keys}
    sides = [ref for ref in left.scope + right.scope if ref.name.lower() not in merged]
    ahead = [replace(one, sql=identifier(one.name), outer=None, grade=max(one.grade, two.grade)) for one, two in keys]
    size = left.size * right.size / 5 ** len(keys) + (left.size + right.size) * (kind != "inner")
    return Source(sql, tuple(ahead + sides), size, (), plain_star=False)


# --------------------------------------------------------------------------------------------- lateral view


def _lateral_view(ctx: Context, one: Source) -> Source:
    """LATERAL VIEW over an array, a sequence or rows that are written out."""
    alias, name = ctx.fresh("l"), ctx.fresh("m")
    kind = ctx.choice.weighted([(5, "explode"), (2, "sequence"), (2, "outer"), (2, "posexplode"), (1, "stack")])
    type_ = Type.INT if kind == "sequence" else ctx.choice.pick([ref.type for ref in one.scope])
    items = [scalar(ctx, one.scope, type_, 1) for _ in range(ctx.choice.integer(1, 3))]
    grade = max(item.grade for item in items)
    array = "ARRAY(" + ", ".join(item.sql for item in items) + ")"
    columns = [Ref(name, None, name, type_, grade)]
    ctx.note(f"lateral_view.{kind}")
    if kind == "sequence":
        function = f"EXPLODE(SEQUENCE(0, ABS({items[0].sql}) % 3))"
    elif kind == "outer":
        function = f"EXPLODE(CASE WHEN {predicate(ctx, one.scope, 0)} THEN {array} END)"
    elif kind == "posexplode":
        function = f"POSEXPLODE({array})"
        columns.insert(0, Ref(name + "p", None, name + "p", Type.INT, Grade.EXACT))
    elif kind == "stack":
        function = f"STACK({len(items)}, {', '.join(item.sql for item in items)})"
    else:
        function = f"EXPLODE({array})"
    names = ", ".join(column.name for column in columns)
    sql = f"{one.sql} LATERAL VIEW {'OUTER ' * (kind == 'outer')}{function} {alias} AS {names}"
    scope = one.scope + tuple(columns)
    return Source(sql, scope, one.size * 2, one.stars, one.plain_star, lone_alias=None)
