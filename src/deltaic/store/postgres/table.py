"""A table in PostgreSQL: which columns it has, and what they are to Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltaic.algebra.quoting import double_quoted
from deltaic.errors import MissingError, SourceError
from deltaic.store.postgres.server import PATIENT, Retry, Server, connect, problems_of
from deltaic.store.postgres.types import Column, column_of

if TYPE_CHECKING:
    from deltaic.store.postgres.server import Connection

__all__ = ["PATIENT", "Described", "PostgresTable", "Retry", "Server", "connect", "describe"]


@dataclass(frozen=True)
class PostgresTable:
    """A table of a server; `only` names the columns that are used of it, where not all of them are.

    Leaving columns out is always exact: what is captured and read is then the projection on the others.
    """

    server: Server
    schema: str
    name: str
    only: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def relation(self) -> str:
        """Its name in PostgreSQL's SQL."""
        return f"{double_quoted(self.schema)}.{double_quoted(self.name)}"

    def columns(self, retry: Retry = PATIENT) -> tuple[Column, ...]:
        """Its columns with their Spark types; an error names the first one that has none."""
        with problems_of(self.server), connect(self.server, retry) as connection:
            return describe(connection, self).columns


@dataclass(frozen=True)
class Described:
    """A table as pg_catalog has it now. `oid` tells it from another one made under its name."""

    oid: int
    columns: tuple[Column, ...]
    full_identity: bool
    logged: bool


_TABLE = """
SELECT c.oid::int8, c.relkind::text, c.relpersistence::text, c.relreplident::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s
"""
# The type under a domain has the domain's values; its modifier (a precision, say) may be the domain's.
_COLUMNS = """
WITH RECURSIVE columns AS (
    SELECT attnum, attname, attnotnull, attgenerated, atttypid, atttypmod, format_type(atttypid, atttypmod) AS shown
    FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
), based AS (
    SELECT attnum, atttypid AS type, atttypmod AS modifier FROM columns
    UNION ALL
    SELECT b.attnum, t.typbasetype, t.typtypmod FROM based b JOIN pg_type t ON t.oid = b.type WHERE t.typtype = 'd'
)
SELECT c.attname::text, t.typname::text, b.modifier, c.shown, c.attnotnull, c.attgenerated <> ''
FROM columns c JOIN based b USING (attnum) JOIN pg_type t ON t.oid = b.type
WHERE t.typtype <> 'd' ORDER BY c.attnum
"""
_NOT_A_TABLE = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "p": "a partitioned table; name its partitions, and UNION ALL them",
}


def describe(connection: Connection, table: PostgresTable) -> Described:
    found = connection.execute(_TABLE, (table.schema, table.name)).fetchone()
    if found is None:
        raise MissingError(f"{table.server} has no table {table}, or {table.server.user} may not see it")
    oid, kind, persistence, identity = found
    if kind != "r":
        raise SourceError(f"{table} is not a plain table but {_NOT_A_TABLE.get(kind, 'something else')}")
    rows = connection.execute(_COLUMNS, (oid,)).fetchall()
    wanted = _wanted(table, [row[0] for row in rows])
    columns = tuple(column_of(str(table), *row) for row in rows if row[0] in wanted)
    return Described(oid, columns, identity == "f", persistence == "p")


def _wanted(table: PostgresTable, present: Sequence[str]) -> Sequence[str]:
    missing = [name for name in table.only or () if name not in present]
    if missing:
        raise MissingError(f"{table} has no column {', '.join(missing)}; it has {', '.join(present)}")
    wanted = present if table.only is None else table.only
    lowered = [name.lower() for name in wanted]
    twice = [name for name in wanted if lowered.count(name.lower()) > 1]
    if twice:
        what = f"{table}: to Spark the columns {', '.join(twice)} have one name"
        raise SourceError(what, hint="Name the columns to use of it (only=...).")
    return wanted
