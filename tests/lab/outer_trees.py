"""Cases for outer-join change tables: trees of left, right, full and other joins, with filters and unions between.

Keys are few and may be NULL, so that rows get their first match and lose their last one all the time. Some histories
change one table only, some only add rows: there the view itself tells who stood alone.
"""

from dataclasses import dataclass

from tests.lab.case import Batch, Case, Column, Table, Type, View
from tests.lab.choice import Choice, SeededChoice
from tests.lab.histories import random_history, random_row

_COLUMNS = {
    "r": (Column("a", Type.INT), Column("b", Type.INT), Column("v", Type.BIGINT)),
    "s": (Column("a", Type.INT), Column("c", Type.INT)),
    "t": (Column("b", Type.INT), Column("c", Type.INT), Column("w", Type.STRING)),
    "z": (Column("c", Type.INT),),
}

_CALLS = ("sum", "sum", "count", "min", "max")


@dataclass(frozen=True)
class _Tree:
    sql: str
    columns: tuple[str, ...]
    """All of them numbers, each with a name of its own."""


def outer_tables(seed: int, inserts_only: bool = False) -> tuple[tuple[Table, ...], tuple[Batch, ...]]:
    choice = SeededChoice(seed)
    tables = _tables(choice)
    return tables, _history(choice, tables, list(_COLUMNS), inserts_only)


def _tables(choice: Choice) -> tuple[Table, ...]:
    return tuple(
        Table(name, columns, tuple(random_row(choice, columns) for _ in range(choice.integer(0, 7))))
        for name, columns in _COLUMNS.items()
    )


def _history(choice: Choice, tables: tuple[Table, ...], read: list[str], inserts_only: bool) -> tuple[Batch, ...]:
    history = random_history(choice, tables, read)
    if inserts_only:
        history = tuple(tuple(statement for statement in batch if statement.inserts) for batch in history)
    return history


def outer_tree_of(seed: int) -> Case:
    choice = SeededChoice(seed)
    tables = _tables(choice)
    tree = _Grower(choice).tree(choice.weighted([(3, 1), (4, 2), (3, 3)]))
    shown = list(choice.sample(tree.columns, choice.integer(1, len(tree.columns))))
    sql = f"SELECT {', '.join(shown)} FROM ({tree.sql}) AS top"
    if choice.chance(25):
        calls = [f"{choice.pick(_CALLS)}({choice.pick(tree.columns)}) AS t{n}" for n in range(choice.integer(1, 3))]
        calls += ["count(*) AS n"] if choice.chance(40) else []
        sql = f"SELECT {', '.join((shown[0], *calls))} FROM ({tree.sql}) AS top GROUP BY {shown[0]}"
        shown = [shown[0], *(call.split(" AS ")[1] for call in calls)]
    view = View("v0", sql, tuple(Column(name, Type.INT) for name in shown))
    read = [name for name in _COLUMNS if f" FROM {name}" in tree.sql]
    if choice.chance(50):
        read = [choice.pick(read)]
    return Case(tables, (view,), _history(choice, tables, read, choice.chance(35)), seed)


class _Grower:
    def __init__(self, choice: Choice) -> None:
        self.choice, self.number = choice, 0

    def tree(self, depth: int) -> _Tree:
        if depth == 0:
            return self.leaf()
        kind = self.choice.weighted([(8, "join"), (1, "union"), (1, "apply")])
        if kind == "union":
            return self.union(self.tree(depth), self.leaf())
        tree = self.join(self.tree(depth - 1), self.tree(self.choice.integer(0, depth - 1)))
        if kind == "apply":
            column = self.choice.pick(tree.columns)
            tree = _Tree(f"SELECT * FROM ({tree.sql}) AS q WHERE {column} IN (SELECT c FROM z)", tree.columns)
        if self.choice.chance(25):
            tree = self.filtered(tree)
        return self.narrowed(tree) if self.choice.chance(25) else tree

    def leaf(self) -> _Tree:
        table = self.choice.pick(tuple(_COLUMNS))
        self.number += 1
        names = [c.name for c in _COLUMNS[table] if c.type is not Type.STRING]
        own = tuple(f"{name}{self.number}" for name in names)
        listed = ", ".join(f"{name} AS {new}" for name, new in zip(names, own, strict=True))
        return _Tree(f"SELECT {listed} FROM {table}", own)

    def join(self, left: _Tree, right: _Tree) -> _Tree:
        kind = self.choice.weighted([(5, "FULL"), (4, "LEFT"), (2, "RIGHT"), (2, "INNER"), (1, "LEFT SEMI"),
                                     (1, "LEFT ANTI")])  # fmt: skip
        on = f"x.{self.choice.pick(left.columns)} = y.{self.choice.pick(right.columns)}"
        if self.choice.chance(20):
            side, of = self.choice.pick((("x", left), ("y", right)))
            on = f"{on} AND {side}.{self.choice.pick(of.columns)} > 1"
        elif self.choice.chance(15) and kind != "FULL":
            on = on.replace("=", self.choice.pick(("<", "<=>")))
        columns = left.columns if kind in ("LEFT SEMI", "LEFT ANTI") else (*left.columns, *right.columns)
        return _Tree(f"SELECT * FROM ({left.sql}) AS x {kind} JOIN ({right.sql}) AS y ON {on}", columns)

    def filtered(self, tree: _Tree) -> _Tree:
        test = self.choice.pick(("IS NULL", "IS NOT NULL", "> 1", "<= 1"))
        return _Tree(f"SELECT * FROM ({tree.sql}) AS q WHERE {self.choice.pick(tree.columns)} {test}", tree.columns)

    def narrowed(self, tree: _Tree) -> _Tree:
        names = tuple(self.choice.sample(tree.columns, self.choice.integer(1, len(tree.columns))))
        return _Tree(f"SELECT {', '.join(names)} FROM ({tree.sql}) AS q", names)

    def union(self, left: _Tree, right: _Tree) -> _Tree:
        count = min(len(left.columns), len(right.columns))
        names = left.columns[:count]
        other = ", ".join(right.columns[:count])
        sql = f"SELECT {', '.join(names)} FROM ({left.sql}) AS q UNION ALL SELECT {other} FROM ({right.sql}) AS q"
        return _Tree(f"SELECT * FROM ({sql}) AS q", names)
