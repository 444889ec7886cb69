"""Writing a table of Deltaic's own, by Spark or by delta-rs: a refresh is one commit that carries its progress."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import IntegerType, StructField, StructType

from deltaic.errors import (
    ConcurrentRefresh,
    DeltaicError,
    ExistsError,
    HistoryGone,
    MissingError,
    SourceError,
    UnsupportedError,
)
from deltaic.plan.program import OP
from deltaic.store import marks, rs_write, write_sql
from deltaic.store.arrow import arrow_to_spark
from deltaic.store.commit import Commit
from deltaic.store.lock import refresh_lock
from deltaic.store.log import Log, OwnCommit, last_commit_with_marker
from deltaic.store.progress import Progress
from deltaic.store.table import Snapshot, TableRef, first_line, physical_name
from deltaic.store.torn import files_in, is_torn, own_files, sweep, take_back

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRANSACTION_APP = "deltaic"
"""Transaction numbers are a table's own, so one name serves all views."""


TRY_AGAIN = "Nothing was changed here. Do the same again to go on from there."
"""What a loser is told to do."""
_WRITTEN = "__deltaic_written"


class OwnTable:
    """A Delta table that only Deltaic writes: a view's and, by the same means, its kept delta and the order of commits.

    `lock` is the file that excludes other writers of a local warehouse; without one only Delta's own checks
    do. `spark` is needed to read the log of a table that is not on this machine.
    """

    def __init__(
        self,
        ref: TableRef,
        lock: str | Path | None = None,
        spark: SparkSession | None = None,
        clustered_by: Sequence[str] = (),
    ) -> None:
        self.ref, self.lock, self.clustered_by = ref, lock, clustered_by
        self.log = Log(ref, spark)
        self.id: str | None = None
        """Of the table that was looked at: one that is made anew under the same name is not written in its place."""
        self.at: int | None = None
        """Its version then."""

    # --- the statements, for explain ---

    def merge_sql(self, artifact: str, key: Sequence[str], columns: Sequence[str]) -> str:
        return write_sql.merge_sql(self.ref.relation, artifact, key, columns)

    def append_sql(self, artifact: str, columns: Sequence[str]) -> str:
        return write_sql.append_sql(self.ref.relation, artifact, columns)

    def overwrite_sql(self, query: str, columns: Sequence[str]) -> str:
        return write_sql.overwrite_sql(self.ref.relation, query, columns)

    # --- by Spark ---

    def apply_spark(self, session: SparkSession, sql: str, progress: Progress) -> Commit:
        """Run one writing statement, any but a MERGE, as refresh number `progress.refresh`.

        The session must be this refresh's own: what its commits say is a setting of the session.
        ConcurrentRefresh if another refresh took the number; then nothing was changed.
        """
        return self._committed(progress, lambda: _run(session, sql, progress), by_spark=True)

    def merge_spark(self, session: SparkSession, sql: str, progress: Progress, *, vectors: bool = True) -> Commit:
        """Run a MERGE in the same way.

        Without `vectors` files are rewritten. A MERGE of Delta 4.4 that may use deletion vectors fails ("did not match
        any merge clause") over a row to take out that has NULL in its key and is not there.
        """
        # Delta 4.4 fails over a CHAR column in the condition that Spark pads as it reads. The view's are stored padded.
        settings = {"spark.sql.readSideCharPadding": "false"}
        if not vectors:
            settings["spark.databricks.delta.merge.deletionVectors.persistent"] = "false"
        return self._committed(progress, lambda: _run(session, sql, progress, settings), by_spark=True)

    # --- by delta-rs ---

    def can_use_rs(self, snapshot: Snapshot) -> bool:
        """Whether delta-rs may write this table at all."""
        return rs_write.why_not_table(self.ref.path, snapshot) is None

    def why_not_rs(self, artifact: pa.Table, key: Sequence[str]) -> str | None:
        """Why delta-rs must not apply this artifact to this table; None if it may."""
        table = rs_write.why_not_table(self.ref.path, self.log.snapshot())
        return table or rs_write.why_not_artifact(str(self.ref.path), artifact, key)

    def apply_rs(self, artifact: pa.Table, key: Sequence[str], progress: Progress) -> Commit:
        """Apply a small artifact without Spark: the same commit, thirty times cheaper."""
        reason = self.why_not_rs(artifact, key)
        if reason is not None:
            raise UnsupportedError(f"{self.ref.name} cannot be written by delta-rs: {reason}")
        path = str(self.ref.path)
        return self._committed(progress, lambda: rs_write.apply(path, artifact, key, self._transaction(progress)))

    def overwrite_rs(self, rows: pa.Table, progress: Progress) -> Commit:
        """Replace all rows by these few, without Spark."""
        reason = rs_write.why_not_table(self.ref.path, self.log.snapshot())
        if reason is not None:
            raise UnsupportedError(f"{self.ref.name} cannot be written by delta-rs: {reason}")
        path = str(self.ref.path)
        return self._committed(progress, lambda: rs_write.overwrite(path, rows, self._transaction(progress)))

    # --- by marking rows ---

    def why_not_marked(self, key: Sequence[str]) -> str | None:
        """Why rows of this table cannot be marked as deleted by Deltaic itself; None if they can."""
        return marks.why_not(self.ref.path, self.log.snapshot(), key, self.clustered_by)

    def find(self, keys: pa.Table) -> marks.Found:
        """Where the rows of these keys are."""
        return marks.find(str(self.ref.path), self.log.snapshot(), keys)

    def apply_marked(
        self,
        found: marks.Found,
        rows: pa.Table | Callable[[str], None],
        progress: Progress,
        properties: Mapping[str, str] | None = None,
    ) -> Commit:
        """Take out what was found and put in these rows: at hand, or written by a function into a folder it is given,
        under the names that columns have in files (`physical_names`). The same commit may set properties."""
        path, snapshot = str(self.ref.path), self.log.snapshot(found.version)

        def write() -> None:
            if isinstance(rows, pa.Table):
                files = marks.new_files(path, snapshot, rows)
            else:
                files = marks.written_by(path, rows)
            marks.apply(path, found, files, self._transaction(progress), properties)

        return self._committed(progress, write)

    def redefine(self, properties: Mapping[str, str], progress: Progress, version: int) -> Commit:
        """Set properties of the table that a version is, and nothing else, as a refresh with a number."""
        path, nothing = str(self.ref.path), marks.Found.nothing(version)
        return self._committed(
            progress, lambda: marks.apply(path, nothing, [], self._transaction(progress), properties)
        )

    @property
    def physical_names(self) -> dict[str, str]:
        return {field["name"]: physical_name(field) for field in self.log.snapshot().fields}

    @property
    def partition_columns(self) -> list[str]:
        return list(self.log.snapshot().partition_columns)

    # --- either way ---

    @property
    def exists(self) -> bool:
        return self._newest() >= 0

    def append(self, rows: pa.Table, progress: Progress, session: SparkSession) -> Commit:
        """Rows that are here, of a table that loses none."""
        if self.why_not_rs(rows, []) is None:
            return self.apply_rs(rows, [], progress)
        return self.apply_spark(session, self.append_sql(_WRITTEN, self.lend(session, rows, _WRITTEN)), progress)

    def overwrite(self, rows: pa.Table, progress: Progress, session: SparkSession) -> Commit:
        """Rows that are here, instead of all there are."""
        if self.can_use_rs(self.log.snapshot()):
            return self.overwrite_rs(rows, progress)
        columns = self.lend(session, rows, _WRITTEN)
        return self.apply_spark(session, self.overwrite_sql(f"SELECT * FROM {_WRITTEN}", columns), progress)

    def lend(self, session: SparkSession, rows: pa.Table, name: str) -> list[str]:
        """Rows that are here, under a name of Spark's and with the types of this table. Its columns."""
        schema = session.sql(f"SELECT * FROM {self.ref.relation}").schema
        op = [StructField(OP, IntegerType(), False)] if OP in rows.column_names else []
        arrow_to_spark(session, rows, StructType([*op, *schema.fields])).createOrReplaceTempView(name)
        return list(schema.names)

    def commit_progress_only(self, progress: Progress, session: SparkSession | None = None) -> Commit:
        """A delta that nets to nothing still moves the view to its sources' new versions."""
        if self.can_use_rs(self.log.snapshot()):
            path = str(self.ref.path)
            return self._committed(progress, lambda: rs_write.commit_nothing(path, self._transaction(progress)))
        if session is None:
            raise UnsupportedError(f"{self.ref.name} can be written by Spark only, and there is no session")
        return self.apply_spark(session, write_sql.nothing_sql(self.ref.relation), progress)

    def last_refresh(self) -> OwnCommit | None:
        """The newest commit of Deltaic's. From here on this is the table that was looked at, and no other."""
        marked = last_commit_with_marker(self.log)
        self.at = marked.version if marked else self.log.version()
        self.id = self.log.snapshot(self.at).table_id
        return marked

    def check_not_lost(self, progress: Progress) -> None:
        """ConcurrentRefresh, or MissingError, if this refresh cannot be committed any more."""
        try:
            if self._found(progress, -1 if self.at is None else self.at) is None:
                self._refuse_if_lost(progress, self._newest())
        except (HistoryGone, SourceError):  # no more can be told of it
            return

    def _committed(self, progress: Progress, write: Callable[[], None], *, by_spark: bool = False) -> Commit:
        """Write, then find the commit in the log: Spark passes over a number it has seen without a word."""
        with refresh_lock(self.lock) if self.lock else contextlib.nullcontext():
            before = self._newest()
            self._refuse_if_lost(progress, before)
            path = None if by_spark or self.lock else self.ref.path  # under the lock nobody drops it
            there = files_in(path)
            try:
                write()
            except Exception as error:  # classic, Connect and delta-rs raise from different class trees
                made = None
                with contextlib.suppress(Exception):  # the first error tells more
                    made = self._found(progress, before)
                if made is None:
                    told = self._translated(error, progress, before)
                    if path is not None and isinstance(told, MissingError):
                        sweep(path, own_files(path, files_in(path) - there))
                    if told is error:
                        raise
                    raise told from error
                # what failed came after the commit: a connection, or housekeeping; unless it is wrong in itself
                self.log.snapshot(made.version)
            return self._own_commit(progress, before)

    def next_refresh(self) -> int:
        """The number of the next refresh: one more than the last one's or, if no commit tells that, one that none can
        have had. A refresh is a commit, and the first, of version 0, has number 1."""
        last = self.newest_progress()
        return last.refresh + 1 if last else self._newest() + 2

    def newest_progress(self) -> Progress | None:
        """What the newest commit of Deltaic's says, whoever looks at the table next."""
        marked = last_commit_with_marker(self.log) if self._newest() >= 0 else None
        return Progress.of(marked.commit) if marked else None

    def _newest(self) -> int:
        try:
            return self.log.version()
        except SourceError:
            return -1  # about to be created

    def _refuse_if_lost(self, progress: Progress, before: int) -> None:
        """Somebody else may have made this refresh, edited the view, dropped it, or dropped it and made another."""
        if before < 0:
            if progress.refresh > 1:
                raise self._dropped()
            return
        last = last_commit_with_marker(self.log)
        done = Progress.of(last.commit) if last else None
        if done is not None and done.refresh >= progress.refresh:
            raise self._lost(progress)
        if self.id is not None and self.log.snapshot(before).table_id != self.id:
            raise self._lost(progress)
        edits = [foreign.commit.version for foreign in last.later if foreign.harmful] if last else []
        if self.at is not None and any(version > self.at for version in edits):
            raise self._lost(progress)

    def _own_commit(self, progress: Progress, before: int) -> Commit:
        commit = self._found(progress, before)
        if commit is None:
            raise self._dropped() if self._newest() < 0 else self._lost(progress)
        if not self.lock and self.ref.path is not None and is_torn(self.ref.path, commit.version):
            take_back(self.ref.path, commit)
            raise self._dropped()
        return commit

    def _found(self, progress: Progress, before: int) -> Commit | None:
        """The commit of this refresh, if it was made since a version."""
        newest = self._newest()
        for commit in reversed(self.log.commits(before, newest) if newest > before else []):
            found = Progress.of(commit)
            if found is not None and found.id == progress.id:
                return commit
        return None

    def _lost(self, progress: Progress) -> ConcurrentRefresh:
        """What somebody else did, as far as the newest commit of ours tells."""
        last = None
        with contextlib.suppress(DeltaicError):
            marked = last_commit_with_marker(self.log)
            last = Progress.of(marked.commit) if marked else None
        what = "was written by another process or thread meanwhile"
        if last is not None and last.refresh >= progress.refresh:
            altered = last.figures.get("definition") != progress.figures.get("definition")
            what = "was given another query meanwhile" if altered else f"has had its refresh {last.refresh} meanwhile"
        return ConcurrentRefresh(f"{self.ref.name} {what}", hint=TRY_AGAIN)

    def _dropped(self) -> MissingError:
        return MissingError(f"{self.ref.name} was dropped meanwhile", hint="Nothing that was written here can be read.")

    def _translated(self, error: Exception, progress: Progress, before: int) -> Exception:
        text = f"{type(error).__name__}: {error}"
        if before >= 0 and self._newest() < 0:
            return self._dropped()
        if isinstance(error, ConcurrentRefresh) or _CONFLICT.search(text):
            return self._lost(progress)
        if _EXISTS.search(text):
            hint = f"Another process may be making it. If none is, something else is in its place: {first_line(error)}"
            return ExistsError(f"{self.ref.name} is already there", hint=hint)
        try:
            self._refuse_if_lost(progress, before)
        except DeltaicError as lost:  # what failed, failed because the table is another one by now
            return lost
        return error

    def _transaction(self, progress: Progress) -> rs_write.Transaction:
        return rs_write.Transaction(TRANSACTION_APP, progress.refresh, progress.to_json(), self.id)


_CONFLICT = re.compile(
    r"DELTA_CONCURRENT_|DELTA_METADATA_CHANGED|DELTA_PROTOCOL_CHANGED|Concurrent\w+Exception"
    r"|Failed to commit transaction"
)
_EXISTS = re.compile(
    r"TABLE_OR_VIEW_ALREADY_EXISTS|DELTA_TABLE_ALREADY_EXISTS|DELTA_PATH_EXISTS|LOCATION_ALREADY_EXISTS"
    r"|DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
)


# As INT96, the default, delta-rs misreads instants before 1677 and after 2262.
PLAIN_TIMESTAMPS = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}


def plain_timestamps(session: SparkSession) -> contextlib.AbstractContextManager[None]:
    """Files that Spark writes in this block have timestamps that everyone reads alike."""
    return with_settings(session, PLAIN_TIMESTAMPS)


def _run(session: SparkSession, sql: str, progress: Progress, more: Mapping[str, str] | None = None) -> None:
    settings = {
        "spark.databricks.delta.commitInfo.userMetadata": progress.to_json(),
        "spark.databricks.delta.write.txnAppId": TRANSACTION_APP,
        "spark.databricks.delta.write.txnVersion": str(progress.refresh),
        **PLAIN_TIMESTAMPS,
        # Under DYNAMIC, INSERT OVERWRITE leaves partitions that the new rows do not touch.
        "spark.sql.sources.partitionOverwriteMode": "STATIC",
        **(more or {}),
    }
    with with_settings(session, settings):
        session.sql(sql)


@contextlib.contextmanager
def with_settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings for one statement. Left set, they would land on the session's next one too."""
    before = {name: session.conf.get(name, None) for name in settings}
    before = {name: old for name, old in before.items() if old != settings[name]}
    try:
        for name in before:
            session.conf.set(name, settings[name])
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)
