"""Reads what a refresh needs: changes, states, and only what is near a change where that is less."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from deltaic.algebra.nodes import WEIGHT, Node, Scan
from deltaic.algebra.quoting import quote
from deltaic.app.catalogs.live import LiveTable
from deltaic.app.refresh.decide import few
from deltaic.app.refresh.desk import Desk
from deltaic.app.refresh.reach import reach
from deltaic.app.refresh.shared import Shared
from deltaic.delta.flags import FLAGS
from deltaic.delta.timed import TIME
from deltaic.errors import HistoryGone
from deltaic.plan.kept import KEPT
from deltaic.plan.maintain import VIEW
from deltaic.plan.refreshing import without
from deltaic.plan.steps import RS_ROWS, STATE_ROWS, Compute, ReadChange, ReadCounts, ReadState, Step, relation_name
from deltaic.store.arrow import arrow_to_spark, has_arrow_types, repeated, without_views
from deltaic.store.change import plan_change, read_change_rs
from deltaic.store.literals import among
from deltaic.store.log import Log
from deltaic.store.lookup import find_rows
from deltaic.store.state import read_counts_rs, read_interval_rs
from deltaic.store.table import TableRef

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def _sizes(rows: pa.Table) -> tuple[int, int, int]:
    """How many rows may come, may go and stay."""
    if FLAGS[0] in rows.column_names:
        comes, goes, stays = (pc.sum(rows[flag]).as_py() or 0 for flag in FLAGS)
        return comes, goes, stays
    comes, goes = (pc.sum(test(rows[WEIGHT], 0)).as_py() or 0 for test in (pc.greater, pc.less))
    return comes, goes, 0


class Reading:
    def __init__(self, desk: Desk, shared: Shared) -> None:
        self.desk, self.shared = desk, shared
        self.held: dict[str, pa.Table] = {}
        """What was read into this process, under the names of the relations that Spark has it by."""
        self.nodes: dict[str, Node] = {}

    def read_change(self, step: ReadChange) -> None:
        if step.source == KEPT:
            self.read_kept(step)
            return
        if step.times:
            self.read_timed(step)
            return
        source, read = self.desk.compiled.sources[step.source], self.desk.plan.reads[step.source]
        assert read.change_from is not None
        assert read.change_upto is not None
        if step.sql:
            together, frame = self.shared.together, None
            if together is not None and source.live is None:  # a captured log has signs of its own
                span = read.change_from, read.change_upto
                frame = together.change(self.desk.session, step.source, source.ref, *span, step.columns)
            if frame is None:
                frame = self.desk.session.sql(step.sql)
                frame = self.desk.keep(frame) if self.desk.uses(step) > 1 else frame
            self.desk.named(frame, step)
            return
        # A step may want the keys only. Were the change netted over those, an update of another column would vanish.
        used = {name: None for name, _ in self.desk.compiled.used_columns[step.source]} | dict.fromkeys(step.columns)
        rows, fresh = self.shared.change(source.ref, read.change_kind, read.change_from, read.change_upto, list(used))
        wanted = self.schema(source.ref, read.new, [(name, name) for name in step.columns])
        self.named_arrow(rows, fresh, wanted.add(StructField(WEIGHT, LongType(), False)), source.ref, step)

    def read_kept(self, step: ReadChange) -> None:
        """The rows of the kept delta that are applied; in this process, where they are few."""
        read = self.desk.plan.reads[KEPT]
        assert self.desk.plan.kept is not None
        if not step.sql:
            assert read.change_from is not None
            assert read.change_upto is not None
            (kept, version), columns = self.desk.plan.kept, [*step.columns, WEIGHT]
            rows = without_views(read_interval_rs(kept, version, columns, TIME, read.change_from, read.change_upto))
            signs = pc.sign(rows[WEIGHT]).cast(pa.int64())
            rows = repeated(rows.set_column(rows.num_columns - 1, WEIGHT, signs), pc.abs(rows[WEIGHT]))
            wanted = self.schema(kept, version, [(name, name) for name in columns])
            self.named_arrow(rows, True, wanted, kept, step)
            return
        frame = self.desk.session.sql(step.sql)
        self.desk.named(self.desk.keep(frame) if self.desk.uses(step) > 1 else frame, step)

    def read_timed(self, step: ReadChange) -> None:
        """The change of each commit, with its time: by delta-rs where all of them can be."""
        source, read = self.desk.compiled.sources[step.source], self.desk.plan.reads[step.source]
        log, columns = Log(source.ref, self.desk.session), [name for name in step.columns if name != TIME]
        wanted = self.schema(source.ref, read.new, [(name, name) for name in columns])
        wanted = wanted.add(StructField(WEIGHT, LongType(), False)).add(StructField(TIME, LongType(), False))
        here: list[pa.Table] = []
        frames: list[DataFrame] = []
        for version, time in step.times:
            if source.live is not None:
                changes = source.live.change_sql(version - 1, version, columns)
                frames.append(self.desk.session.sql(f"SELECT *, {time}L AS `{TIME}` FROM ({changes})"))
                continue
            change = plan_change(
                log, version - 1, version, columns, allow_rs=self.desk.use_rs, allow_feed=not read.by_files
            )
            if change.kind == "none":
                continue
            if change.sql:
                frames.append(self.desk.session.sql(f"SELECT *, {time}L AS `{TIME}` FROM ({change.sql})"))
                continue
            rows = read_change_rs(source.ref, change.kind, change.after, change.upto, columns)
            here.append(rows.append_column(TIME, pa.array([time] * rows.num_rows, pa.int64())))
        whole = pa.concat_tables(here, promote_options="permissive") if here else None
        if whole is not None and not frames:
            self.named_arrow(whole, True, wanted, source.ref, step)
            return
        if whole is not None:
            self.desk.scanned(source.ref, whole.num_rows, 0)
            frames.append(arrow_to_spark(self.desk.session, whole, wanted))
        frame = reduce(lambda one, two: one.unionByName(two), frames)
        self.desk.named(self.desk.keep(frame) if self.desk.uses(step) > 1 else frame, step)

    def frame_of(self, step: Compute) -> DataFrame:
        """What a step computes; what views refreshed together have in common, the first of them."""
        if step.common is None or self.shared.together is None:
            return self.desk.session.sql(step.sql)
        frame = self.shared.together.delta(self.desk.session, self.desk.common_key(step.common), step.sql)
        self.desk.borrowed.append(frame)
        return frame

    def steps(self) -> list[Step]:
        """The steps of the plan, without what serves only a delta that is there already."""
        together = self.shared.together
        if together is None:
            return self.desk.plan.steps

        def done(step: Step) -> bool:
            shape = step.common if isinstance(step, Compute) else None
            return shape is not None and together.has(self.desk.common_key(shape))

        return without(self.desk.plan.steps, done)

    def compute_keys(self, step: Compute) -> None:
        """A relation whose values another read is narrowed by; into this process, if it is as small as was thought."""
        assert step.relation is not None
        assert step.node is not None
        frame = self.frame_of(step)
        asked = {
            s.near.value
            for s in self.desk.plan.steps
            if isinstance(s, ReadState) and s.near and s.near.binding == step.relation
        }
        self.nodes[step.relation] = step.node
        told = reach(step.node, frozenset(asked), self.here, self.nodes)
        if told is not None and told.num_rows <= RS_ROWS:
            self.desk.near[step.relation] = told
            self.desk.named(self.desk.keep(frame) if self.desk.uses(step) > 1 else frame, step)
            return
        if not few(self.desk.plan.reads) or not has_arrow_types(frame.schema):
            # counted, so that Spark knows its size when it plans a join with it
            self.desk.keep(frame).count()
            self.desk.named(frame, step)
            return
        rows = self.desk.collected(frame.limit(RS_ROWS + 1))
        if rows.num_rows > RS_ROWS:
            self.desk.named(self.desk.keep(frame), step)
            return
        self.desk.near[step.relation] = rows
        self.desk.named(arrow_to_spark(self.desk.session, rows, frame.schema), step)

    def reduce(self, step: Compute) -> tuple[int, int, int]:
        """A relation whose rows may come, may go or stay, and how many; into this process, if it is small."""
        assert step.relation is not None
        frame = self.desk.session.sql(step.sql)
        if few(self.desk.plan.reads) and has_arrow_types(frame.schema):
            rows = self.desk.collected(frame.limit(RS_ROWS + 1))
            if rows.num_rows <= RS_ROWS:
                self.desk.near[step.relation] = rows
                frame = arrow_to_spark(self.desk.session, rows, frame.schema)
                self.desk.named(frame, step)
                return _sizes(rows)
        self.desk.named(self.desk.keep(frame), step)
        flagged = FLAGS[0] in frame.columns
        parts = FLAGS if flagged else (f"{WEIGHT} > 0", f"{WEIGHT} < 0", "FALSE")
        rows = self.desk.collected(frame.selectExpr(*(f"count_if({part}) AS n{n}" for n, part in enumerate(parts))))
        comes, goes, stays = (rows[n][0].as_py() for n in range(len(parts)))
        return comes, goes, stays

    def read_live(self, step: ReadState, live: LiveTable) -> None:
        """A source that is read now, as of a version, or what of it is near some rows."""
        assert step.version is not None
        rows = self.desk.near.get(step.near.binding) if step.near else None
        keys = None
        if rows is not None and step.near is not None:
            values = rows[step.near.value].unique()
            keys = pa.table({step.near.column: values if step.near.nulls else pc.drop_null(values)})
        names = [name for name, _ in step.columns]
        frame = self.desk.live.frame(live, step.version, names, keys)
        given = [frame[quote(name)].alias(shown) for name, shown in step.columns]
        frame = frame.select(*given) if given else frame
        self.desk.named(self.desk.keep(frame) if self.desk.uses(step) > 1 else frame, step)

    def read_state(self, step: ReadState) -> None:
        source = self.desk.compiled.sources.get(step.source)
        if source is not None and source.live is not None:
            self.read_live(step, source.live)
            return
        if self.find_rows(step):
            return
        if step.sql:
            self.desk.named(self.desk.session.sql(step.sql + self.near_only(step)), step)
            return
        assert step.version is not None
        ref = self.desk.table.ref if step.source == VIEW else self.desk.compiled.sources[step.source].ref
        rows, fresh = self.shared.state(ref, step.version, dict(step.columns), step.shown)
        files = Log(ref).snapshot(step.version).files if fresh else 0
        self.named_arrow(rows, fresh, self.schema(ref, step.version, step.columns), ref, step, files)

    def find_rows(self, step: ReadState) -> bool:
        """Find the rows that a read is narrowed to in the files; False if Spark must."""
        rows = self.desk.near.get(step.near.binding) if step.near else None
        if rows is None or step.near is None or step.version is None or not step.rs_finds:
            return False
        ref = self.desk.table.ref if step.source == VIEW else self.desk.compiled.sources[step.source].ref
        values = rows[step.near.value].unique()
        keys = pa.table({step.near.column: values if step.near.nulls else pc.drop_null(values)})
        snapshot = Log(ref).snapshot(step.version)
        try:
            found = find_rows(str(ref.path), snapshot, keys, dict(step.columns), step.shown, STATE_ROWS)
        except (LookupError, HistoryGone, FileNotFoundError):  # of a form that only Spark reads, or gone
            found = None
        if found is None:
            return False
        self.desk.scanned(ref, found.looked_at, found.files)
        assert step.relation is not None
        self.held[step.relation] = found.rows
        wanted = self.schema(ref, step.version, step.columns)
        self.desk.named(arrow_to_spark(self.desk.session, found.rows, wanted), step)
        return True

    def near_only(self, step: ReadState) -> str:
        """The condition, with its values written out, that keeps Spark from reading what no join will meet."""
        rows = self.desk.near.get(step.near.binding) if step.near else None
        if rows is None or step.near is None:
            return ""
        try:
            condition = among(step.near.column, rows[step.near.value], step.near.nulls)
        except UnicodeDecodeError:  # no literal has such a text, and files are skipped by what they are not
            return ""
        return f"{' AND' if step.shown else ' WHERE'} {condition}"

    def read_counts(self, step: ReadCounts) -> None:
        rows, counts, ref = None, step.counts, self.desk.table.ref
        assert counts is not None
        assert step.version is not None
        if step.by_rs:
            rows = read_counts_rs(ref, step.version, counts.marker, counts.keys, step.names, counts.only_true)
        if rows is None:
            self.desk.named(self.desk.session.sql(step.sql), step)
            return
        there = self.desk.table.log.snapshot(step.version)
        self.desk.scanned(ref, there.rows, there.files)
        fields = self.schema(ref, step.version, zip(counts.keys, step.names, strict=False)).fields
        keys = fields or [StructField(step.names[0], IntegerType(), False)]
        wanted = StructType([*keys, *(StructField(name, LongType(), False) for name in step.names[-2:])])
        self.desk.named(arrow_to_spark(self.desk.session, rows, wanted), step)

    def schema(self, ref: TableRef, version: int, columns: Iterable[tuple[str, str]]) -> StructType:
        """The log's own schema, which is Spark's: asking Spark would cost as much as the read."""
        stored = StructType.fromJson(json.loads(Log(ref).snapshot(version).schema_json))
        return StructType([StructField(given, stored[name].dataType, stored[name].nullable) for name, given in columns])

    def named_arrow(
        self, rows: pa.Table, fresh: bool, schema: StructType, ref: TableRef, step: Step, files: int | None = 0
    ) -> None:
        self.desk.scanned(ref, rows.num_rows if fresh else 0, files)
        assert step.relation is not None
        self.held[step.relation] = without_views(rows)
        self.desk.named(arrow_to_spark(self.desk.session, rows, schema), step)

    def here(self, scan: Scan) -> pa.Table | None:
        return self.held.get(relation_name(scan, {name: n for n, name in enumerate(self.desk.plan.reads)}))
