"""DuckDB as a stand-in for Spark: holds a case's tables now and as they were, and runs Spark SQL on them.

duck = Duck(case)                     tables with their initial rows
duck.store("v0", case.views[0].sql)   keep a query's answer as a table
duck.snapshot()                       t0__old, t1__old, ... are the tables as they are now
duck.apply(case.history[0])
duck.change("t0")                     t0__change: signed, netted difference of t0 and t0__old
duck.rows("SELECT ... FROM t0__change LEFT SEMI JOIN t1__old ...")
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import duckdb
import sqlglot
from sqlglot import exp

from tests.lab.case import Batch, Case, Row, Statement, Table, Type
from tests.lab.dialect import duckdb_tree, to_duckdb

COUNT = "__deltaic_d"
SchemaField: TypeAlias = tuple[str, str, bool]


class Duck:
    """One in-memory database. Names of relations are free to choose; all SQL that comes in is Spark SQL."""

    def __init__(self, case: Case | None = None) -> None:
        self._connection = duckdb.connect(config={"threads": 1})
        # DuckDB 2.0 drops rows of: SELECT a, sum(w) FROM x LEFT JOIN empty ON b > 1 GROUP BY a HAVING sum(w) <> 0
        self._connection.execute("SET disabled_optimizers = 'statistics_propagation'")
        self._tables: dict[str, Table] = {}
        for table in case.tables if case else ():
            self.create(table)

    def close(self) -> None:
        self._connection.close()

    def reset(self, case: Case | None = None) -> None:
        """An empty database again, or one with the case's tables: far cheaper than a new connection."""
        listing = "SELECT table_type, table_name FROM information_schema.tables WHERE table_schema = 'main'"
        for kind, name in self._run(f"{listing} ORDER BY 1 DESC"):
            self._run(f"DROP {'VIEW' if kind == 'VIEW' else 'TABLE'} IF EXISTS {_quoted(str(name))}")
        self._tables = {}
        for table in case.tables if case else ():
            self.create(table)

    # ------------------------------------------------------------------------------------------- relations

    def create(self, table: Table) -> None:
        columns = ", ".join(f"{_quoted(c.name)} {_DUCK_TYPES[c.type]}" for c in table.columns)
        self._run(f"CREATE TABLE {_quoted(table.name)} ({columns})")
        if table.rows:
            self._insert(table, table.rows)
        self._tables[table.name] = table

    def _insert(self, table: Table, rows: Sequence[Row]) -> None:
        """By one list per column: binding a literal per value would take most of a case's time."""
        lists = ", ".join(f"UNNEST(?::{_DUCK_TYPES[c.type]}[])" for c in table.columns)
        columns = [list(column) for column in zip(*rows, strict=True)]
        self._run(f"INSERT INTO {_quoted(table.name)} SELECT {lists}", columns)

    def store(self, name: str, sql: str) -> None:
        """Keeps the answer of a query as a table (again: it is replaced, and may read itself)."""
        self._run(f"CREATE OR REPLACE TABLE {_quoted(name)} AS {to_duckdb(sql)}")

    def define(self, name: str, sql: str) -> None:
        """Gives a query a name; it is run whenever it is read."""
        self._run(f"CREATE OR REPLACE VIEW {_quoted(name)} AS {to_duckdb(sql)}")

    def snapshot(self, suffix: str = "old", names: Iterable[str] | None = None) -> None:
        """Copies tables (all of the case's, unless named) to <name>__<suffix>."""
        for name in self._tables if names is None else names:
            self._run(f"CREATE OR REPLACE TABLE {_quoted(f'{name}__{suffix}')} AS FROM {_quoted(name)}")

    def change(self, name: str, suffix: str = "old") -> str:
        """Makes <name>__change, the difference of now and then, and says what it is called.

        As in every change, each row counts 1 or -1; equal rows stand there several times. A change is not netted:
        one row of the table comes and goes again in it.
        """
        new, old, made = name, f"{name}__{suffix}", f"{name}__change"
        columns = ", ".join(_quoted(column) for column, _, _ in self._described(f"FROM {_quoted(new)}"))
        self._run(
            f"CREATE OR REPLACE TABLE {_quoted(made)} AS"
            f" SELECT {columns}, SIGN(__sum)::BIGINT AS {COUNT} FROM"
            f" (SELECT {columns}, SUM(__sign) AS __sum FROM"
            f" (SELECT {columns}, 1 AS __sign FROM {_quoted(new)}"
            f" UNION ALL SELECT {columns}, -1 FROM {_quoted(old)})"
            f" GROUP BY {columns} HAVING SUM(__sign) <> 0), RANGE(1, ABS(__sum)::BIGINT + 1)"
        )
        self._run(
            f"INSERT INTO {_quoted(made)} SELECT {columns}, sign FROM (FROM {_quoted(new)} ORDER BY ALL LIMIT 1),"
            f" (VALUES (1), (-1)) AS signs(sign) WHERE EXISTS (FROM {_quoted(made)})"
        )
        return made

    def only_grew(self, name: str) -> bool:
        """Whether the change of <name>, once netted, deletes nothing."""
        made = f"{name}__change"
        columns = ", ".join(_quoted(column) for column, _, _ in self._described(f"FROM {_quoted(name)}"))
        gone = f"SELECT 1 FROM {_quoted(made)} GROUP BY {columns} HAVING SUM({COUNT}) < 0 LIMIT 1"
        return not self._run(gone)

    def apply(self, batch: Batch) -> None:
        for statement in batch:
            self._apply(statement)

    def _apply(self, statement: Statement) -> None:
        if statement.inserts:  # the same as its SQL, without the cost of translating it
            self._insert(self._tables[statement.table], statement.inserts)
        else:
            self.execute(statement.sql)

    # --------------------------------------------------------------------------------------------- queries

    def execute(self, sql: str) -> None:
        """Runs a statement of Spark SQL: DML, or anything whose answer is not needed."""
        tree = sqlglot.parse_one(sql, read="spark") if "OVERWRITE" in sql.upper() else None
        if isinstance(tree, exp.Insert) and tree.args.get("overwrite"):
            self._overwrite(tree)
        else:
            self._run(to_duckdb(sql))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The answer of a query in Spark SQL."""
        return self._run(to_duckdb(sql))

    def schema(self, sql: str) -> list[SchemaField]:
        """Name, Spark type and nullability (always True) of each column that a query in Spark SQL gives."""
        return self._described(to_duckdb(sql))

    def _overwrite(self, insert: exp.Insert) -> None:
        """The new rows may be computed from the old ones, so they are put aside first."""
        target = insert.this.sql(dialect="duckdb")
        rows = duckdb_tree(insert.expression).sql(dialect="duckdb")
        self._run(f"CREATE OR REPLACE TEMP TABLE __overwrite AS {rows}")
        self._run(f"DELETE FROM {target}")
        self._run(f"INSERT INTO {target} FROM __overwrite")
        self._run("DROP TABLE __overwrite")

    def _described(self, text: str) -> list[SchemaField]:
        return [(name, spark_type(kind), True) for name, kind, *_ in self._run(f"DESCRIBE {text}")]

    def _run(self, text: str, parameters: object = None) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(text, parameters).fetchall()
        except duckdb.Error as error:
            raise DuckFailed(text, error) from error


class DuckFailed(Exception):
    """DuckDB refused a text; the text stands in the message."""

    def __init__(self, text: str, error: duckdb.Error) -> None:
        super().__init__(f"{error}\n{text}")
        self.text = text
        self.error = error


_DUCK_TYPES = {
    Type.INT: "INTEGER",
    Type.BIGINT: "BIGINT",
    Type.STRING: "VARCHAR",
    Type.DECIMAL: "DECIMAL(10,2)",
    Type.DATE: "DATE",
    Type.BOOLEAN: "BOOLEAN",
    Type.DOUBLE: "DOUBLE",
}


def spark_type(text: str) -> str:
    """Spark's name of a DuckDB type. HUGEINT, which DuckDB's sums have, is Spark's bigint."""
    name = sqlglot.exp.DataType.build(text.replace("HUGEINT", "BIGINT"), dialect="duckdb").sql(dialect="spark")
    return name.lower().replace(", ", ",").replace(": ", ":")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
