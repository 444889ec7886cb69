"""Cases for change tables: aggregates over joins over aggregates, several levels deep.

The general generator makes such towers now and then; here every view is one. Most levels can be carried through,
some are singular on purpose (a filter or a join on a sum, a count of groups, an extreme).
"""

from dataclasses import dataclass

from tests.lab.case import Batch, Case, Column, Table, Type, View
from tests.lab.choice import Choice, SeededChoice
from tests.lab.histories import random_history, random_row

_FACTS = (
    Column("a", Type.INT),
    Column("b", Type.INT),
    Column("s", Type.STRING),
    Column("v", Type.DECIMAL),
    Column("n", Type.BIGINT),
    Column("x", Type.DOUBLE),
)
_ONE = (Column("a", Type.INT), Column("g", Type.STRING), Column("w", Type.INT))
_TWO = (Column("b", Type.INT), Column("h", Type.INT))


@dataclass(frozen=True)
class _Level:
    """A query with columns to group by and columns to add up."""

    sql: str
    keys: tuple[str, ...]
    sums: tuple[str, ...]


def tables_and_history(seed: int) -> tuple[tuple[Table, ...], tuple[Batch, ...]]:
    choice = SeededChoice(seed)
    tables = _tables(choice)
    return tables, random_history(choice, tables, [table.name for table in tables])


def _tables(choice: Choice) -> tuple[Table, ...]:
    return tuple(
        Table(name, columns, tuple(random_row(choice, columns) for _ in range(choice.integer(0, most))))
        for name, columns, most in (("facts", _FACTS, 30), ("one", _ONE, 8), ("two", _TWO, 8))
    )


def tower_of(seed: int) -> Case:
    choice = SeededChoice(seed)
    tables = _tables(choice)
    level = _facts(choice)
    for _ in range(choice.weighted([(3, 1), (4, 2), (2, 3)])):
        for _ in range(choice.integer(0, 2)):
            level = _between(choice, level)
        level = _grouped(choice, level)
    if choice.chance(15):
        level = _between(choice, level)
    columns = tuple(Column(name, Type.INT) for name in (*level.keys, *level.sums))
    view = View("v0", f"SELECT {', '.join((*level.keys, *level.sums))} FROM ({level.sql}) AS top", columns)
    read = [table.name for table in tables if f" {table.name}" in level.sql]
    return Case(tables, (view,), random_history(choice, tables, read), seed)


def _facts(choice: Choice) -> _Level:
    where = " WHERE b IS NOT NULL" if choice.chance(20) else ""
    sql = f"SELECT a, b, s, v, n, x FROM facts{where}"
    if choice.chance(15):
        sql = f"{sql} UNION ALL SELECT a + 1, b, s, v, w, CAST(w AS DOUBLE) FROM facts JOIN one USING (a)"
        sql = f"SELECT a, b, s, v, n, x FROM ({sql}) AS u"
    return _Level(sql, ("a", "b", "s"), ("v", "n", "x"))


def _grouped(choice: Choice, below: _Level) -> _Level:
    keys = tuple(choice.sample(below.keys, choice.weighted([(1, 0), (5, 1), (6, 2), (2, 3)])))
    items = [_aggregate(choice, below) for _ in range(choice.integer(0 if keys else 1, 3))]
    # what is added up of floats rounds: it is shown at the top, never summed up in different orders below
    named = [(f"m{number}", item) for number, item in enumerate(items)]
    listed = ", ".join([*keys, *(f"{item} AS {name}" for name, item in named)])
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    return _Level(f"SELECT {listed} FROM ({below.sql}) AS q{group}", keys, tuple(name for name, _ in named))


def _aggregate(choice: Choice, below: _Level) -> str:
    if not below.sums:
        return "count(*)"
    column = choice.pick(below.sums)
    form = choice.weighted([(10, "sum({})"), (4, "count(*)"), (2, "count({})"), (2, "min({})"), (2, "max({})"),
                            (2, "avg({})"), (1, "sum(DISTINCT {})")])  # fmt: skip
    where = f" FILTER (WHERE {below.keys[0]} IS NOT NULL)" if below.keys and choice.chance(10) else ""
    return form.format(column) + where


def _between(choice: Choice, below: _Level) -> _Level:
    kind = choice.weighted([(5, "join"), (3, "left"), (2, "filter"), (1, "filter sum"), (2, "semi"), (1, "join sum")])
    everything = ", ".join(f"q.{name}" for name in (*below.keys, *below.sums))
    if kind == "filter" and below.keys:
        key = choice.pick(below.keys)
        return _Level(f"SELECT {everything} FROM ({below.sql}) AS q WHERE {key} IS NOT NULL", below.keys, below.sums)
    if kind == "filter sum" and below.sums:
        column = choice.pick(below.sums)
        return _Level(f"SELECT {everything} FROM ({below.sql}) AS q WHERE {column} > 1", below.keys, below.sums)
    if kind == "join sum" and below.sums:
        sql = f"SELECT {everything}, two.h FROM ({below.sql}) AS q JOIN two ON two.b < q.{choice.pick(below.sums)}"
        return _Level(sql, (*below.keys, "h"), below.sums) if "h" not in below.keys else below
    table, key, more = choice.pick((("one", "a", "g"), ("two", "b", "h")))
    if key not in below.keys or more in below.keys:
        return below
    word = {"left": "LEFT JOIN", "semi": "LEFT SEMI JOIN"}.get(kind, "JOIN")
    shown = everything if kind == "semi" else f"{everything}, {table}.{more}"
    sql = f"SELECT {shown} FROM ({below.sql}) AS q {word} {table} ON {table}.{key} = q.{key}"
    return _Level(sql, below.keys if kind == "semi" else (*below.keys, more), below.sums)
