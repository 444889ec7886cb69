"""Reading PostgreSQL tables as they are now: one exported snapshot serves every connection, partition and retry."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltaic.algebra.quoting import double_quoted, quote
from deltaic.errors import ConfigurationError, SourceError
from deltaic.store.postgres.server import problems_of
from deltaic.store.postgres.snapshot import Visibility, end_of_records, lsn_number
from deltaic.store.postgres.table import PATIENT, PostgresTable, Retry, Server, connect, describe
from deltaic.store.postgres.texts import PLACE, among, chosen_of, jdbc_source
from deltaic.store.postgres.types import Column, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deltaic.store.postgres.captured_log import CapturePoint
    from deltaic.store.postgres.server import Connection

_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_ROWS = 50_000
_BLOCKS = 4_096
"""Fewer blocks of a table than this, 32 MB, are not worth a partition of their own."""


class LiveRead:
    """A state of the database that stays readable while the block runs, however much is written meanwhile.

    `visibility` says which transactions it saw, exactly. `lsn` is a position in the write-ahead log taken after the
    snapshot was: a transaction is made visible after its commit record is written, so the records of all that the
    snapshot saw are before it (and perhaps of some that it did not see).
    """

    def __init__(self, server: Server, tables: Sequence[PostgresTable] = (), retry: Retry = PATIENT) -> None:
        self.server, self.tables = server, tuple(tables)
        self.snapshot, self.visibility, self.lsn = "", Visibility(0, 0), 0
        self._retry, self._stack = retry, ExitStack()
        self._holder: Connection | None = None

    def __enter__(self) -> LiveRead:
        try:
            return self.locked().frozen()
        except BaseException:
            self._stack.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def close(self) -> None:
        """End it; the readers that have joined already may go on."""
        self._stack.close()

    def locked(self) -> LiveRead:
        """Begin, and keep the tables from being truncated or rewritten, but hold no snapshot yet.

        In this order, since a TRUNCATE between snapshot and lock would show the table empty to the snapshot.
        """
        self._holder = self._stack.enter_context(connect(self.server, self._retry))
        with problems_of(self.server):
            self._holder.execute(_BEGIN)
            for table in self.tables:
                self._holder.execute(f"LOCK TABLE ONLY {table.relation} IN ACCESS SHARE MODE".encode())
        return self

    def frozen(self, snapshot: str | None = None) -> LiveRead:
        """Take a snapshot, or join the one that is given, and offer it to others."""
        with problems_of(self.server):
            return self._frozen(self.holder, snapshot)

    def _frozen(self, holder: Connection, snapshot: str | None) -> LiveRead:
        if snapshot is not None:
            holder.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'".encode())
        row = holder.execute("SELECT pg_export_snapshot(), pg_current_snapshot()::text").fetchone()
        assert row is not None
        self.snapshot, self.visibility = row[0], Visibility.parse(row[1])
        row = holder.execute(
            "SELECT pg_current_wal_insert_lsn()::text, current_setting('wal_block_size')::int8, "
            "pg_size_bytes(current_setting('wal_segment_size'))"
        ).fetchone()
        assert row is not None
        self.lsn = end_of_records(lsn_number(row[0]), row[1], row[2])
        return self

    @property
    def holder(self) -> Connection:
        if self._holder is None or self._holder.closed:
            raise SourceError(f"{self.server}: this read is not open", hint="Use it as a context manager.")
        return self._holder

    def _columns(self, table: PostgresTable) -> Sequence[Column]:
        if table.relation not in {locked.relation for locked in self.tables}:
            what = f"{table} is not among the tables of this read, so nothing keeps it from being truncated meanwhile"
            raise ConfigurationError(what, hint="Name it when the read is begun.")
        with problems_of(self.server):
            return describe(self.holder, table).columns

    def saw(self, xid: int) -> bool:
        return self.visibility.saw(xid)

    def passed_by(self, mark: CapturePoint) -> bool:
        """Whether everything that this read saw is in the captured log that is so far."""
        return mark.lsn >= self.lsn if mark.seen is None else mark.complete and mark.seen.covers(self.visibility)

    # --- through this process -----------------------------------------------------------------------

    def joined(self) -> Connection:
        """One more connection in the same state; its owner closes it."""
        connection = connect(self.server, self._retry)
        try:
            with problems_of(self.server):
                connection.execute(_BEGIN)
                connection.execute(f"SET TRANSACTION SNAPSHOT '{self.snapshot}'".encode())
        except BaseException:
            connection.close()
            raise
        return connection

    def arrow(
        self,
        table: PostgresTable,
        columns: Sequence[str] | None = None,
        keys: pa.Table | None = None,
    ) -> pa.Table:
        """The rows, or those whose columns of the names in `keys` are as in one of its rows, NULL as NULL."""
        present = self._columns(table)
        chosen = chosen_of(present, table, columns)
        where = "" if keys is None else f" WHERE {among(present, table, keys)}"
        names = ", ".join(double_quoted(column.name) for column in chosen)
        query = f"COPY (SELECT {names} FROM ONLY {table.relation}{where}) TO STDOUT"
        with problems_of(self.server):
            return self._copied(table, chosen, query)

    def _copied(self, table: PostgresTable, columns: Sequence[Column], query: str) -> pa.Table:
        schema = pa.schema([column.field for column in columns])
        batches: list[pa.RecordBatch] = []
        rows: list[tuple[Any, ...]] = []

        def close_batch() -> None:
            texts = zip(*rows, strict=True) if rows else [()] * len(columns)
            arrays = [to_arrow(str(table), *pair) for pair in zip(columns, texts, strict=True)]
            batches.append(pa.record_batch(arrays, schema=schema))
            rows.clear()

        with self.joined() as connection, connection.cursor() as cursor, cursor.copy(query.encode()) as copy:
            for row in copy.rows():
                rows.append(row)
                if len(rows) >= _ROWS:
                    close_batch()
        close_batch()
        return pa.Table.from_batches(batches, schema)

    # --- through Spark ------------------------------------------------------------------------------

    def frame(
        self,
        spark: SparkSession,
        table: PostgresTable,
        columns: Sequence[str] | None = None,
        partitions: int | None = None,
    ) -> DataFrame:
        """The rows as a DataFrame, read over JDBC by as many connections at once as there are partitions.

        The session needs the driver's jar (`add_postgres_driver`). The rows are read whenever Spark runs the frame, so
        run it before this block ends: later its connections find no snapshot to join, and fail. Every one of them
        checks that the state it reads is this one.
        """
        chosen = chosen_of(self._columns(table), table, columns)
        options = {
            "user": self.server.user,
            "password": self.holder.info.password,  # whichever way libpq found it
            "driver": "org.postgresql.Driver",
            "sslmode": self.server.sslmode,
            "ApplicationName": "deltaic",
            # Spark's dialect begins a transaction only where it fetches in portions; else each statement, the one
            # that joins the snapshot too, would be a transaction of its own.
            "fetchsize": "10000",
            "sessionInitStatement": self._init(),
            "queryTimeout": "0",
        }
        rows = spark.read.jdbc(
            self._url(), jdbc_source(table, chosen), predicates=self._ranges(table, partitions), properties=options
        )
        named = ((quote(column.name), column.spark) for column in chosen)
        return rows.selectExpr(*(f"CAST({name} AS {kind}) AS {name}" for name, kind in named))

    def _url(self) -> str:
        if re.search(r"[/?#&\s]", f"{self.server.host}{self.server.database}"):
            raise ConfigurationError(f"{self.server}: JDBC takes no socket folder, and no such name of a database")
        host = f"[{self.server.host}]" if ":" in self.server.host else self.server.host
        return f"jdbc:postgresql://{host}:{self.server.port}/{self.server.database}"

    def _init(self) -> str:
        """The statements that come first in every connection's transaction."""
        return (
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY; "
            f"SET TRANSACTION SNAPSHOT '{self.snapshot}'; "
            "SET LOCAL row_security = off; SET LOCAL search_path = pg_catalog"
        )

    def _ranges(self, table: PostgresTable, partitions: int | None) -> list[str]:
        """A condition for each partition: that it is in this state, or fails, and a range of places in the table.

        A row version that the snapshot sees stays in its place. The check is not in the subquery, since Spark asks
        that for its columns outside of any snapshot.
        """
        told = "('this connection is not in the snapshot but in ' || now.text)::boolean"
        here = f"CASE WHEN now.text = '{self.visibility}' THEN true ELSE {told} END"
        check = f"(SELECT {here} FROM (SELECT pg_catalog.pg_current_snapshot()::text AS text OFFSET 0) AS now)"
        size = "SELECT pg_relation_size(%s::regclass) / current_setting('block_size')::int8"
        row = self.holder.execute(size, (table.relation,)).fetchone()
        blocks = row[0] if row else 0
        count = max(1, min(partitions or blocks // _BLOCKS, blocks or 1))
        starts = [blocks * part // count for part in range(count)]
        ends = [f" AND {PLACE} < '({start},0)'::tid" for start in starts[1:]] + [""]
        return [f"{check} AND {PLACE} >= '({start},0)'::tid{end}" for start, end in zip(starts, ends, strict=True)]
