"""Histories: batches of statements that change the tables between two refreshes."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from tests.lab.case import Batch, Column, Grade, Row, Statement, Table, Type, Value, identifier, literal
from tests.lab.choice import Choice
from tests.lab.context import Context, Query, Ref
from tests.lab.scalars import predicate, random_value, scalar


def random_row(choice: Choice, columns: tuple[Column, ...]) -> Row:
    def value(column: Column) -> Value:
        if choice.chance(14):
            return None
        return random_value(choice, column.type, tenths=column.grade > Grade.EXACT)

    return tuple(value(column) for column in columns)


def random_history(choice: Choice, tables: tuple[Table, ...], read: Collection[str]) -> tuple[Batch, ...]:
    """Tables that a view reads change more often than the others."""
    writers = [_Writer(choice, table, list(table.rows)) for table in tables]
    writers += [writer for writer in writers if writer.table.name in read] * 2
    return tuple(_batch(choice, writers) for _ in range(choice.integer(3, 6)))


def _batch(choice: Choice, writers: list["_Writer"]) -> Batch:
    """Statements on none, one or several tables."""
    touched = choice.weighted([(5, 1), (1, 0), (4, 2), (2, 3), (1, 4)])
    statements: list[Statement] = []
    for writer in choice.sample(writers, touched):
        for _ in range(choice.weighted([(5, 1), (3, 2), (1, 3)])):
            statements += writer.change()
    return tuple(statements)


@dataclass
class _Writer:
    """Writes the changes of one table; remembers the rows it once put there, to aim at them later."""

    choice: Choice
    table: Table
    known: list[Row]
    copies: int = 0

    def change(self) -> list[Statement]:
        kinds: list[tuple[int, Callable[[], list[Statement]]]] = [
            (30, self._insert),
            (8, self._insert_again),
            (14, self._delete_where),
            (10, self._delete_rows),
            (20, self._update),
            (6, self._undone),
            (3, self._delete_all),
            (4, self._overwrite),
            (4, self._drop_one_of_equals),
            (6, self._merge),
            (2, self._copy),
        ]
        return self.choice.weighted(kinds)()

    def _statement(self, kind: str, sql: str) -> Statement:
        return Statement(self.table.name, kind, sql)

    def _inserted(self, kind: str, rows: list[Row]) -> list[Statement]:
        return [Statement(self.table.name, kind, self.table.insert_sql(rows), tuple(rows))]

    def _insert(self) -> list[Statement]:
        rows = [random_row(self.choice, self.table.columns) for _ in range(self.choice.integer(1, 6))]
        if self.choice.chance(25):
            rows.append(rows[0])
        self.known += rows
        return self._inserted("insert", rows)

    def _insert_again(self) -> list[Statement]:
        if not self.known:
            return self._insert()
        return self._inserted("insert_again", self.choice.sample(self.known, 2))

    def _delete_where(self) -> list[Statement]:
        return [self._statement("delete", f"DELETE FROM {self.table.name} WHERE {self._predicate()}")]

    def _delete_rows(self) -> list[Statement]:
        if not self.known:
            return self._delete_where()
        where = " OR ".join(f"({self._is(row)})" for row in self.choice.sample(self.known, 2))
        return [self._statement("delete_rows", f"DELETE FROM {self.table.name} WHERE {where}")]

    def _update(self) -> list[Statement]:
        columns = self.choice.sample(self.table.columns, self.choice.weighted([(3, 1), (1, 2)]))
        changes = ", ".join(f"{identifier(column.name)} = {self._value(column)}" for column in columns)
        where = f" WHERE {self._predicate()}" if self.choice.chance(85) else ""
        return [self._statement("update", f"UPDATE {self.table.name} SET {changes}{where}")]

    def _undone(self) -> list[Statement]:
        """A change and its opposite: together, nothing."""
        numbers = [c for c in self.table.columns if c.type in (Type.INT, Type.BIGINT, Type.DECIMAL)]
        if numbers:
            name = identifier(self.choice.pick(numbers).name)
            there, back = (f"UPDATE {self.table.name} SET {name} = {name} {sign} 7" for sign in "+-")
            return [self._statement("undone", there), self._statement("undone", back)]
        everywhere = f"INSERT INTO {self.table.name} SELECT * FROM {self.table.name} WHERE FALSE"
        return [self._statement("undone", everywhere)]

    def _delete_all(self) -> list[Statement]:
        sql = f"TRUNCATE TABLE {self.table.name}" if self.choice.chance(30) else f"DELETE FROM {self.table.name}"
        return [self._statement("delete_all", sql)]

    def _overwrite(self) -> list[Statement]:
        rows = [random_row(self.choice, self.table.columns) for _ in range(self.choice.integer(1, 8))]
        self.known += rows
        into = self.table.insert_sql(rows).replace("INSERT INTO", "INSERT OVERWRITE", 1)
        return [self._statement("overwrite", into)]

    def _drop_one_of_equals(self) -> list[Statement]:
        """Takes one of n equal rows, which no DELETE can say."""
        names = ", ".join(identifier(column.name) for column in self.table.columns)
        numbered = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {names} ORDER BY 1) AS rn FROM {self.table.name}"
        kept = f"rn > 1 OR NOT COALESCE({self._predicate()}, FALSE)"
        sql = f"INSERT OVERWRITE {self.table.name} SELECT {names} FROM ({numbered}) WHERE {kept}"
        return [self._statement("drop_one_of_equals", sql)]

    def _merge(self) -> list[Statement]:
        columns = self.table.columns
        keys = [c for c in columns if c.type in (Type.INT, Type.STRING)]
        if not keys:
            return self._insert()
        key = self.choice.pick(keys)
        at = columns.index(key)
        by_key = {row[at]: row for row in (random_row(self.choice, columns) for _ in range(4)) if row[at] is not None}
        if not by_key:
            return self._insert()
        self.known += by_key.values()
        values = self.table.insert_sql(by_key.values()).split(" ", 3)[3]
        names = ", ".join(identifier(column.name) for column in columns)
        sets = ", ".join(f"{identifier(c.name)} = u.{identifier(c.name)}" for c in columns if c is not key)
        matched = "DELETE" if self.choice.chance(25) or not sets else f"UPDATE SET {sets}"
        shown = ", ".join(f"u.{identifier(column.name)}" for column in columns)
        sql = (
            f"MERGE INTO {self.table.name} USING (SELECT * FROM {values} AS w({names})) AS u"
            f" ON {self.table.name}.{identifier(key.name)} = u.{identifier(key.name)}"
            f" WHEN MATCHED THEN {matched} WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({shown})"
        )
        return [self._statement("merge", sql)]

    def _copy(self) -> list[Statement]:
        """Doubles some rows; once per table, or they would grow without end."""
        if self.copies:
            return self._insert()
        self.copies += 1
        sql = f"INSERT INTO {self.table.name} SELECT * FROM {self.table.name} WHERE {self._predicate()}"
        return [self._statement("copy", sql)]

    def _is(self, row: Row) -> str:
        pairs = zip(self.table.columns, row, strict=True)
        return " AND ".join(f"{identifier(c.name)} <=> {literal(value, c.type)}" for c, value in pairs)

    def _predicate(self) -> str:
        return predicate(self._context(), self._scope(), 1)

    def _value(self, column: Column) -> str:
        if self.choice.chance(15):
            return "NULL"
        return scalar(self._context(), self._scope(), column.type, self.choice.chance(50), column.grade).sql

    def _scope(self) -> list[Ref]:
        return [Ref(identifier(c.name), None, c.name, c.type, c.grade) for c in self.table.columns]

    def _context(self) -> Context:
        return Context(self.choice, [], _no_query)


def _no_query(ctx: Context, depth: int) -> Query:
    raise AssertionError("a history has no subqueries")
