"""The commit that ends a refresh, by Spark, by delta-rs, or by marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from deltaic.algebra.quoting import quote
from deltaic.app.refresh.desk import Desk
from deltaic.app.refresh.stored import with_depth
from deltaic.app.values.report import Reduced
from deltaic.plan.cost import WHOLE_ROWS
from deltaic.plan.program import ARTIFACT, OP
from deltaic.plan.rounds import RoundsFound
from deltaic.plan.steps import Write, WriteView
from deltaic.store.commit import Commit
from deltaic.store.marks import Found
from deltaic.store.own_table import plain_timestamps
from deltaic.store.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STAGES = "stages"
"""Among the figures of a commit."""


class Writing:
    def __init__(self, desk: Desk, progress: Progress) -> None:
        self.desk, self.progress = desk, progress
        self.by = ""
        """Who wrote."""
        self.whole_rows: int | None = None
        """How many rows a view has that was written whole, if they were here."""

    def tell(self, stages: Sequence[Reduced], rounds: Sequence[RoundsFound]) -> None:
        """The sizes of the relations that led to this commit, into it: explain shows them next time. And how deep the
        recursion was."""
        self.progress = with_depth(self.progress, rounds)
        if stages:
            figures = {**self.progress.figures, STAGES: [str(stage) for stage in stages]}
            self.progress = replace(self.progress, figures=figures)

    def write(self, step: WriteView, arrow: pa.Table | None, found: Found | None) -> Commit:
        """Write what is here, or what Spark has under the name of the artifact."""
        plan, table = self.desk.plan, self.desk.table
        if not step.whole and plan.writer == "marks":
            return self.write_marked(step, arrow, found)
        if not step.whole and arrow is not None:
            return self.write_arrow(arrow, step)
        if step.query is not None and table.can_use_rs(table.log.snapshot()):
            query = f"SELECT * FROM (\n{step.query}\n) LIMIT {WHOLE_ROWS + 1}"
            rows = self.desk.collected(self.desk.session.sql(query))
            if rows.num_rows <= WHOLE_ROWS:
                self.by, self.whole_rows = "delta-rs", rows.num_rows
                return table.overwrite_rs(rows, self.progress)
        return self.write_spark(step)

    def write_spark(self, step: WriteView) -> Commit:
        self.by = "spark"
        if step.whole:
            return self.desk.table.apply_spark(self.desk.session, step.sql, self.progress)
        missing = " OR ".join(f"{quote(name)} IS NULL" for name in step.key) or "FALSE"
        artifact = self.desk.session.table(ARTIFACT)
        counts = artifact.selectExpr("count(*)", f"count_if(`{OP}` = -1 AND ({missing}))").first()
        assert counts is not None
        if not counts[0]:
            return self.desk.table.commit_progress_only(self.progress, self.desk.session)
        if step.kind is not Write.MERGE:
            return self.desk.table.apply_spark(self.desk.session, step.sql, self.progress)
        vectors = step.all_there or not counts[1]
        return self.desk.table.merge_spark(self.desk.session, step.sql, self.progress, vectors=vectors)

    def write_marked(self, step: WriteView, arrow: pa.Table | None, found: Found | None) -> Commit:
        """Rows that go are marked in their files, rows that come are new files."""
        self.by = "deletion vectors"
        rows = arrow if arrow is not None else self.desk.session.table(ARTIFACT)
        found, told = found or self.find(rows, step.key), self.desk.plan.properties
        if isinstance(rows, pa.Table):
            rows = rows.filter(pc.equal(rows[OP], 1)).drop_columns([OP])
            if not found.rows and not rows.num_rows and told is None:
                return self.desk.table.commit_progress_only(self.progress, self.desk.session)
            return self.desk.table.apply_marked(found, rows, self.progress, told)
        names = self.desk.table.physical_names
        new = rows.filter(f"`{OP}` = 1").selectExpr(*(f"{quote(name)} AS {quote(names[name])}" for name in names))

        partitions = [names[name] for name in self.desk.table.partition_columns]

        def write(folder: str) -> None:
            with plain_timestamps(self.desk.session):
                new.write.parquet(folder, compression="snappy", partitionBy=partitions or None)

        return self.desk.table.apply_marked(found, write, self.progress, told)

    def find(self, artifact: pa.Table | DataFrame, key: tuple[str, ...]) -> Found:
        """Where the rows are that an artifact takes out."""
        if isinstance(artifact, pa.Table):
            gone = artifact.filter(pc.equal(artifact[OP], -1)).select(list(key))
        else:
            gone = self.desk.collected(artifact.filter(f"`{OP}` = -1").selectExpr(*map(quote, key)))
        found = self.desk.table.find(gone)
        self.desk.scanned(self.desk.table.ref, found.looked_at, found.files)
        return found

    def write_arrow(self, rows: pa.Table, step: WriteView) -> Commit:
        """By delta-rs, unless something about these very rows forbids it."""
        key = list(step.key)
        self.by = "delta-rs"
        if rows.num_rows == 0:
            return self.desk.table.commit_progress_only(self.progress, self.desk.session)
        if self.desk.table.why_not_rs(rows, key) is None:
            return self.desk.table.apply_rs(rows, key, self.progress)
        self.desk.table.lend(self.desk.session, rows, ARTIFACT)
        return self.write_spark(step)


def number_in(commit: Commit, *names: str) -> int | None:
    """The first of these metrics that a commit tells; Spark and delta-rs name them differently."""
    for name in names:
        if commit.operation_metrics.get(name) is not None:
            return int(commit.operation_metrics[name])
    return None


def rows_changed(commit: Commit) -> int | None:
    """Rows deleted and inserted, as the commit counts them."""
    deleted = number_in(commit, "numTargetRowsDeleted", "num_target_rows_deleted")
    inserted = number_in(commit, "numTargetRowsInserted", "num_target_rows_inserted", "numOutputRows", "num_added_rows")
    if deleted is None and inserted is None:
        rows = [file.rows for file in commit.adds]
        return None if None in rows else sum(count or 0 for count in rows)
    return (deleted or 0) + (inserted or 0)
