"""Cases for the reducing algorithms: sets of rows chosen from joins of one to four relations.

Joins go along chains, around stars and back to a table that is there already, by equality or not; selections look at
one relation or at two. Some relations are groups, whose key the algebra knows. Values are few, so that most rows of a
set are derived several times.
"""

from tests.lab.case import Batch, Case, Column, Table, Type, View
from tests.lab.choice import Choice, SeededChoice
from tests.lab.histories import random_history, random_row

_COLUMNS = {
    "r": (Column("a", Type.INT), Column("b", Type.INT)),
    "s": (Column("b", Type.INT), Column("c", Type.INT), Column("d", Type.INT)),
    "t": (Column("d", Type.INT), Column("e", Type.INT)),
    "q": (Column("a", Type.INT), Column("e", Type.STRING)),
}


def set_view_of(seed: int) -> Case:
    choice = SeededChoice(seed)
    tables = tuple(
        Table(name, columns, tuple(random_row(choice, columns) for _ in range(choice.integer(0, 12))))
        for name, columns in _COLUMNS.items()
    )
    sql, shown = _Query(choice).sql()
    view = View("v0", sql, tuple(Column(name, Type.INT) for name in shown))
    read = [name for name in _COLUMNS if f" {name} " in sql]
    changed = [choice.pick(read)] if choice.chance(50) else read
    history = random_history(choice, tables, changed)
    if choice.chance(30):
        history = tuple(tuple(statement for statement in batch if statement.inserts) for batch in history)
    if choice.chance(50):
        history = tuple(_only(batch, changed) for batch in history)
    return Case(tables, (view,), history, seed)


def _only(batch: Batch, tables: list[str]) -> Batch:
    return tuple(statement for statement in batch if statement.table in tables)


class _Query:
    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.columns: list[str] = []

    def sql(self) -> tuple[str, list[str]]:
        text = self.relation(0)
        joined = list(self.columns)
        for number in range(1, self.choice.weighted([(2, 1), (3, 2), (5, 3), (2, 4)])):
            before = list(self.columns)
            relation = self.relation(number)
            own = [column for column in self.columns if column not in before]
            text += f" JOIN {relation} ON {self.condition(before, own)}"
            joined += own
        shown = list(self.choice.sample(joined, self.choice.integer(1, min(4, len(joined)))))
        items = [f"{self.expression(column)} AS c{n}" for n, column in enumerate(shown)]
        where = f" WHERE {self.selection(joined)}" if self.choice.chance(40) else ""
        return f"SELECT DISTINCT {', '.join(items)} FROM {text}{where}", [f"c{n}" for n in range(len(items))]

    def relation(self, number: int) -> str:
        table = self.choice.pick(tuple(_COLUMNS))
        names = [column.name for column in _COLUMNS[table] if column.type is Type.INT]
        own = [f"x{number}.{name}" for name in names]
        self.columns += own
        if self.choice.chance(20) and len(names) > 1:
            calls = ", ".join(f"max({name}) AS {name}" for name in names[1:])
            return f"(SELECT {names[0]}, {calls} FROM {table} GROUP BY {names[0]}) AS x{number}"
        if self.choice.chance(10):
            return f"(SELECT * FROM {table} WHERE {names[0]} IS NOT NULL) AS x{number}"
        return f"{table} AS x{number}"

    def condition(self, before: list[str], own: list[str]) -> str:
        sign = self.choice.weighted([(8, "="), (1, "<=>"), (1, "<")])
        first = f"{self.choice.pick(before)} {sign} {self.choice.pick(own)}"
        if self.choice.chance(20):
            first += f" AND {self.choice.pick(before)} = {self.choice.pick(own)}"
        return first

    def selection(self, columns: list[str]) -> str:
        one, two = self.choice.pick(columns), self.choice.pick(columns)
        return self.choice.pick((f"{one} > 1", f"{one} IS NULL", f"{one} + {two} > 2", f"{one} <= 1 OR {two} IS NULL"))

    def expression(self, column: str) -> str:
        return self.choice.weighted([
            (8, column),
            (1, f"coalesce({column}, 0) % 2"),
            (1, f"{column} + {self.choice.pick(self.columns)}"),
        ])  # fmt: skip


def strata_of(seed: int) -> Case:
    """Sets inside sets: DISTINCT, UNION, INTERSECT, EXCEPT, IN, EXISTS and their negations, three deep."""
    choice = SeededChoice(seed)
    tables = tuple(
        Table(name, columns, tuple(random_row(choice, columns) for _ in range(choice.integer(0, 10))))
        for name, columns in _COLUMNS.items()
    )
    sql = _Sets(choice).query(choice.integer(1, 3))
    kind = choice.weighted([(3, "bag"), (3, "set"), (2, "group"), (1, "distinct")])
    whole = {
        "bag": f"SELECT x, y FROM ({sql}) AS w",
        "set": f"SELECT DISTINCT x, y FROM ({sql}) AS w",
        "group": f"SELECT x, count(*) AS y, min(y) AS z FROM ({sql}) AS w GROUP BY x",
        "distinct": f"SELECT x, count(DISTINCT y) AS y, count(DISTINCT x + y) AS z FROM ({sql}) AS w GROUP BY x",
    }[kind]
    view = View("v0", whole, tuple(Column(name, Type.INT) for name in "xyz"[: 2 if kind in ("bag", "set") else 3]))
    read = [name for name in _COLUMNS if f" {name} " in sql]
    return Case(tables, (view,), random_history(choice, tables, read), seed)


class _Sets:
    """Queries with the columns x and y, both numbers."""

    def __init__(self, choice: Choice) -> None:
        self.choice, self.number = choice, 0

    def name(self) -> str:
        self.number += 1
        return f"w{self.number}"

    def table(self) -> str:
        table, x, y = self.choice.pick((("r", "a", "b"), ("s", "b", "c"), ("s", "c", "d"), ("t", "d", "e")))
        return f"SELECT {x} AS x, {y} AS y FROM {table} "

    def query(self, depth: int) -> str:
        if depth == 0:
            return self.table()
        one, two = self.query(depth - 1), self.query(self.choice.integer(0, depth - 1))
        a, b = self.name(), self.name()
        both = f"FROM ({one}) AS {a} JOIN ({two}) AS {b} ON {a}.y = {b}.x"
        test = self.choice.pick(
            (f"{b}.x = {a}.x", f"{b}.x = {a}.y AND {b}.y > {a}.x", f"{b}.x = {a}.x AND {b}.y = {a}.y")
        )
        column, null = self.choice.pick(("x", "y")), self.choice.pick(("", "", f"WHERE {b}.x IS NOT NULL"))
        return self.choice.weighted([
            (4, f"SELECT DISTINCT {a}.x, {b}.y {both}"),
            (2, f"SELECT {a}.x, {b}.y {both}"),
            (2, f"SELECT DISTINCT x, y FROM ({one}) AS {a}"),
            (2, f"({one}) {self.choice.pick(('UNION', 'INTERSECT', 'EXCEPT', 'UNION ALL'))} ({two})"),
            (2, f"SELECT * FROM ({one}) AS {a} WHERE EXISTS (SELECT 1 FROM ({two}) AS {b} WHERE {test})"),
            (2, f"SELECT * FROM ({one}) AS {a} WHERE NOT EXISTS (SELECT 1 FROM ({two}) AS {b} WHERE {test})"),
            (2, f"SELECT * FROM ({one}) AS {a} WHERE {a}.x IN (SELECT {column} FROM ({two}) AS {b})"),
            (3, f"SELECT * FROM ({one}) AS {a} WHERE {a}.x NOT IN (SELECT {column} FROM ({two}) AS {b} {null})"),
            (1, f"SELECT * FROM ({one}) AS {a} WHERE {a}.x = 1 OR {a}.y IN (SELECT {column} FROM ({two}) AS {b})"),
        ])  # fmt: skip
