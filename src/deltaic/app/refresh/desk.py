"""What the parts of a refresh share while it runs: the session, what was kept, and what was counted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from deltaic.app.catalogs.live import LiveStates
from deltaic.app.refresh.compile import Compiled
from deltaic.app.refresh.decide import Plan, evaluated_under
from deltaic.delta.common import Shape
from deltaic.plan.steps import Step
from deltaic.spark.metrics import Measurement
from deltaic.spark.session import tidying
from deltaic.store.table import TableRef

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Desk:
    def __init__(
        self,
        session: SparkSession,
        compiled: Compiled,
        plan: Plan,
        measured: Measurement,
        live: LiveStates,
        *,
        use_rs: bool,
    ) -> None:
        self.session, self.compiled, self.plan, self.measured = session, compiled, plan, measured
        self.use_rs, self.live = use_rs, live
        self.table = plan.table
        self.kept: list[DataFrame] = []
        self.borrowed: list[DataFrame] = []
        """Kept for other views too, by others."""
        self.rs_rows: dict[str, int] = {}
        self.rs_files: dict[str, int] = {}
        self.near: dict[str, pa.Table] = {}
        """Relations that are here, for reads to be narrowed by."""

    def named(self, frame: DataFrame, step: Step) -> None:
        assert step.relation is not None
        frame.createOrReplaceTempView(step.relation)

    def keep(self, frame: DataFrame) -> DataFrame:
        """Cached lazily: computed inside the first job that needs it, and by no other."""
        if not any(frame is other for other in self.borrowed):
            self.kept.append(frame.persist())
        return frame

    def uses(self, step: Step) -> int:
        """How often the steps look at what this one leaves behind."""
        name = rf"\b{step.relation}\b"
        return sum(len(re.findall(name, other.sql)) for other in self.plan.steps)

    def common_key(self, shape: Shape) -> tuple[object, ...]:
        """A join's delta between two times, with the columns that all views want."""
        reads = self.plan.reads
        known = self.plan.known
        assert known is not None
        spans = tuple((reads[table].old, reads[table].new) for table in shape.tables)
        return (shape, spans, known.common[shape], evaluated_under(self.plan.definition))

    def collected(self, frame: DataFrame) -> pa.Table:
        rows = frame.toArrow()
        self.measured.note(frame)
        return rows

    def scanned(self, ref: TableRef, rows: int | None, files: int | None) -> None:
        """Count what was read without Spark."""
        path = ref.place
        self.rs_rows[path] = self.rs_rows.get(path, 0) + (rows or 0)
        self.rs_files[path] = self.rs_files.get(path, 0) + (files or 0)

    def rows_by_path(self) -> dict[str, int] | None:
        return _added(self.measured.rows_by_relation(), self.rs_rows)

    def files_by_path(self) -> dict[str, int] | None:
        return _added(self.measured.files_by_relation(), self.rs_files)

    def clear(self) -> None:
        for frame in self.kept:
            with tidying("what a refresh kept was not let go"):
                frame.unpersist()
        with tidying("a snapshot of live sources was not closed"):
            self.live.close()


def _added(measured: dict[str, int] | None, more: Mapping[str, int]) -> dict[str, int] | None:
    if measured is None:
        return None
    return {path: measured.get(path, 0) + more.get(path, 0) for path in {**measured, **more}}
