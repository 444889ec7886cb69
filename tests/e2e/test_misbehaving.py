"""Sources that misbehave: each case, for several kinds of views, read and written by delta-rs and by Spark only, with a
change feed and without one. After each the source goes on being kept."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import deltaic
from deltaic import Report, Warehouse
from deltaic.errors import (
    ComputeError,
    DeltaicError,
    DependencyError,
    NameProblem,
    SourceError,
    UnsupportedError,
)
from tests.e2e.conftest import check_queries, rows
from tests.e2e.misfortunes import (
    AFTER,
    BEFORE,
    CASES,
    COLUMNS,
    EDITS,
    INCREMENTAL,
    KINDS,
    LATER,
    NOOP,
    ROWS,
    Case,
    Happening,
    Refused,
    elsewhere,
)


@dataclass(frozen=True)
class Kept:
    """One view: of a kind, and by delta-rs or by Spark only."""

    kind: str
    use_rs: bool = True


@dataclass(frozen=True)
class Lane:
    """A table to which a case happens, and which views are over it. All kinds have their turn, from case to case."""

    table: str
    feed: bool

    def views(self, name: str) -> tuple[Kept, ...]:
        case, turn = CASES[name], list(CASES).index(name)
        kinds = [case.kinds[(turn + step) % len(case.kinds)] for step in range(6)]
        if self.feed:
            found = [Kept("star"), Kept(kinds[1]), *([Kept(kinds[3], use_rs=False)] if turn % 3 == 0 else [])]
        else:
            found = [Kept(kinds[4], use_rs=turn % 3 != 1)]
        return tuple(dict.fromkeys(view for view in found if view.kind in case.kinds))


LANES = (Lane("fed", feed=True), Lane("bare", feed=False))


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_case(wh: Warehouse, name: str) -> None:
    wh.script("CREATE TABLE dim (k INT, name STRING); INSERT INTO dim VALUES (1, 'one'), (2, 'two'), (5, 'five')")
    case = CASES[name]
    tracks = [Track(wh, case, lane, lane.views(name)) for lane in LANES]
    found: list[str] = []
    for track in tracks:
        track.happen()
        found += track.refresh()
    found += compared(wh, tracks)
    for track in tracks:
        found += track.go_on()
    found += compared(wh, tracks)
    assert not found, "\n".join(found)


@dataclass(frozen=True)
class Track:
    """A case in a lane: the table, and some views over it."""

    wh: Warehouse
    case: Case
    lane: Lane
    kept: tuple[Kept, ...]

    def __post_init__(self) -> None:
        case, table = self.case, self.lane.table
        feed = f"delta.enableChangeDataFeed = {str(self.lane.feed).lower()}"
        layout = case.layout.format(place=elsewhere(self.wh, table))
        properties = ", ".join(filter(None, (feed, case.properties)))
        made = f"{table}_cloned" if case.clone else table
        self.wh.sql(f"CREATE TABLE {made} ({case.columns}) {layout} TBLPROPERTIES ({properties})")
        self.wh.script(case.rows.format(s=made))
        if case.clone:
            self.wh.sql(f"CREATE TABLE {table} SHALLOW CLONE {made}")
        for name, query in self.views.items():
            self.wh.sql(f"CREATE MATERIALIZED VIEW {name} REFRESH POLICY INCREMENTAL AS {query}")

    @property
    def views(self) -> dict[str, str]:
        return {self.name(view): KINDS[view.kind].format(s=self.lane.table) for view in self.kept}

    def name(self, view: Kept) -> str:
        return f"{self.lane.table}_{view.kind}{'' if view.use_rs else '_by_spark'}"

    def run(self, what: Happening) -> None:
        if isinstance(what, str):
            self.wh.script(what.format(s=self.lane.table))
        else:
            what(self.wh, self.lane.table)

    def happen(self) -> None:
        for step in (self.case.before, self.case.happens, self.case.after):
            self.run(step)

    def refresh(self) -> list[str]:
        """What differs from what is told of the case."""
        found: list[str] = []
        mends: dict[str, Happening] = {}
        for view in self.kept:
            wanted, told = self.wanted(view), self.outcome(view)
            if isinstance(wanted, Refused):
                mends[repr(wanted.mend)] = wanted.mend
                if not self.is_refused(told, wanted, view):
                    found.append(f"{self.name(view)} should be refused with {wanted}, and is {told!r}")
            elif told != wanted:
                found.append(f"{self.name(view)} should be {wanted}, and is {told!r}")
        for mend in mends.values():
            self.run(mend)
            again = {self.name(view): self.outcome(view) for view in self.kept}
            found += [
                f"{name} was mended, and is {told!r}" for name, told in again.items() if not isinstance(told, str)
            ]
        return found

    def wanted(self, view: Kept) -> str | Refused:
        if self.lane.feed and self.case.fed is not None:
            return self.case.fed
        return self.case.outcomes.get(view.kind, INCREMENTAL)

    def is_refused(self, told: str | Exception, wanted: Refused, view: Kept) -> bool:
        """By an error that says whose it is; the view can be read as it was."""
        assert self.wh.sql(f"SELECT count(*) FROM {self.name(view)}").collect()[0][0] > 0
        words = (*wanted.words, self.name(view))
        return isinstance(told, DeltaicError) and told.code == wanted.code and all(w in str(told) for w in words)

    def outcome(self, view: Kept) -> str | Exception:
        self.wh.engine.use_rs = view.use_rs
        return outcome(self.wh, self.name(view))

    def go_on(self) -> list[str]:
        """An ordinary change after it is refreshed as ever."""
        self.run(self.case.later)
        told = {self.name(view): self.outcome(view) for view in self.kept}
        return [f"later, {name} is {found!r}" for name, found in told.items() if found != INCREMENTAL]


def compared(wh: Warehouse, tracks: Sequence[Track]) -> list[str]:
    try:
        check_queries(wh, {name: query for track in tracks for name, query in track.views.items()})
    except AssertionError as wrong:
        return [str(wrong)]
    return []


@pytest.mark.long
def test_a_view_s_own_table_is_edited(wh: Warehouse) -> None:
    wh.script(f"CREATE TABLE s ({COLUMNS}); {ROWS.format(s='s')}")
    names = {edit: f"v{number}" for number, edit in enumerate(EDITS)}
    for number, name in enumerate(names.values()):
        wh.sql(f"CREATE MATERIALIZED VIEW {name} REFRESH POLICY INCREMENTAL AS {EDITED[number % 2]}")
    wh.script(BEFORE.format(s="s"))
    wh.refresh()
    for edit, name in names.items():
        what, table = EDITS[edit][0], table_of(wh, name)
        if isinstance(what, str):
            wh.spark.sql(what.format(s=table))
        else:
            what(wh, table)
    wh.script(AFTER.format(s="s"))
    told = {edit: code_of(outcome(wh, name)) for edit, name in names.items()}
    wh.spark.sql(f"ALTER TABLE {table_of(wh, names['append only'])} UNSET TBLPROPERTIES (delta.appendOnly)")
    assert outcome(wh, names["append only"]) == INCREMENTAL
    kept = {name: EDITED[number % 2].format(s="s") for number, name in enumerate(names.values())}
    found = [f"{edit}: {told[edit]!r}" for edit, (_, wanted) in EDITS.items() if told[edit] != wanted]
    assert not found, "\n".join(found)
    check_queries(wh, kept)
    wh.script(LATER.format(s="s"))
    again = {edit: outcome(wh, name) for edit, name in names.items()}
    assert set(again.values()) == {INCREMENTAL}, again
    check_queries(wh, kept)


EDITED = ("SELECT k, sum(v) AS t, count(*) AS n FROM s GROUP BY k", "SELECT k, v, note FROM s WHERE v > 3")


def table_of(wh: Warehouse, view: str) -> str:
    return f"delta.`{wh.engine.catalog.view_ref('default', view).path}`"


def code_of(told: str | Exception) -> str:
    return told.code if isinstance(told, DeltaicError) else repr(told) if isinstance(told, Exception) else told


def outcome(wh: Warehouse, view: str) -> str | Exception:
    """The mode of a refresh, the first reason's code of a full one, or what was raised."""
    try:
        report = wh.refresh(view)
    except Exception as error:
        return error
    assert isinstance(report, Report)
    return report.reasons[0].split(":")[0] if report.mode == "full" else report.mode


@pytest.mark.local
def test_a_table_that_spark_made_itself_stays_when_the_warehouse_is_closed(spark: SparkSession, tmp_path: Path) -> None:
    with deltaic.open(tmp_path) as wh:
        wh.spark.range(3).write.format("delta").saveAsTable("made")
        wh.sql("CREATE MATERIALIZED VIEW v AS SELECT id FROM made")
    with deltaic.open(tmp_path) as wh:
        wh.sql("INSERT INTO made VALUES (7)")
        assert outcome(wh, "v") == INCREMENTAL
        check_queries(wh, {"v": "SELECT id FROM made"})


@pytest.mark.local
def test_a_source_whose_folder_is_gone_and_comes_back_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    query = "SELECT k, sum(v) AS t FROM s GROUP BY k"
    folder, away = tmp_path / "wh" / "default" / "s", tmp_path / "away"
    with deltaic.open(tmp_path / "wh") as wh:
        wh.script("CREATE TABLE s (k INT, v INT); INSERT INTO s VALUES (1, 1), (2, 2)")
        wh.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
        with pytest.raises(DependencyError, match=r"default\.s is read by default\.v"):
            wh.sql("DROP TABLE s")
        with pytest.raises(UnsupportedError, match="a folder of the warehouse"):
            wh.sql(f"ALTER TABLE s SET LOCATION '{away}'")
        folder.rename(away)
        with pytest.raises(NameProblem, match=r"default\.v: there is no table or view s") as gone:
            wh.refresh("v")
        assert "ALTER MATERIALIZED VIEW" in str(gone.value.hint)
        assert sorted(rows(wh, "SELECT * FROM v")) == [(1, 1), (2, 2)]
        wh.sql(f"CREATE TABLE s USING delta LOCATION '{away}'")
        wh.sql("INSERT INTO s VALUES (2, 5)")
        assert outcome(wh, "v") == INCREMENTAL
        check_queries(wh, {"v": query})
        away.rename(tmp_path / "further")
        wh.sql(f"ALTER TABLE s SET LOCATION '{tmp_path / 'further'}'")
    with deltaic.open(tmp_path / "wh") as wh:
        wh.sql("INSERT INTO s VALUES (3, 3)")
        assert outcome(wh, "v") == INCREMENTAL
        check_queries(wh, {"v": query})
        shutil.rmtree(tmp_path / "further")
        wh.script("CREATE OR REPLACE TABLE s (k INT, v INT); INSERT INTO s VALUES (9, 9)")
        assert outcome(wh, "v") == "SOURCE_REPLACED"
        check_queries(wh, {"v": query})
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(tmp_path / "further", ignore_errors=True)
    with deltaic.open(tmp_path / "other") as wh:
        wh.sql("CREATE TABLE s (k INT)")


def test_sources_that_are_no_delta_tables(wh: Warehouse, tmp_path: Path) -> None:
    wh.spark.range(2).write.parquet(str(tmp_path / "p"))
    wh.script(f"CREATE TABLE d (id INT); CREATE TABLE p USING parquet LOCATION '{tmp_path / 'p'}'")
    wh.sql("CREATE VIEW w AS SELECT * FROM d")
    wh.spark.range(1).createOrReplaceTempView("passing")
    refused = {
        "p": ("is not a Delta table but parquet", "CONVERT TO DELTA"),
        f"parquet.`{tmp_path / 'p'}`": ("is not a Delta table", "CONVERT TO DELTA"),
        f"delta.`{tmp_path / 'p'}`": ("is not a Delta table", "CONVERT TO DELTA"),
        "w": ("is a view of Spark's", "materialized view"),
        "passing": ("is not a Delta table or a materialized view", "materialized view"),
    }
    for source, (what, advice) in refused.items():
        with pytest.raises(SourceError) as error:
            wh.sql(f"CREATE MATERIALIZED VIEW v AS SELECT id FROM {source}")
        assert what in error.value.what
        assert advice in str(error.value.hint)
        assert "\n" not in error.value.what


@pytest.mark.long
def test_a_query_that_fails_on_the_rows_that_are_there(wh: Warehouse) -> None:
    wh.script("CREATE TABLE s (k INT, v INT); INSERT INTO s VALUES (1, 1), (2, 2)")
    wh.sql("CREATE MATERIALIZED VIEW v AS SELECT k, 10 / v AS t FROM s")
    wh.sql("INSERT INTO s VALUES (3, 0)")
    with pytest.raises(ComputeError, match=r"default\.v could not be computed: \[DIVIDE_BY_ZERO\]") as failed:
        wh.refresh("v")
    assert "\n" not in failed.value.what
    with pytest.raises(ComputeError, match="DIVIDE_BY_ZERO"):
        wh.sql("CREATE MATERIALIZED VIEW w AS SELECT k, 10 / v AS t FROM s")
    wh.sql("DELETE FROM s WHERE v = 0")
    assert outcome(wh, "v") == "EVALUATION", "the row came and went between two refreshes"
    check_queries(wh, {"v": "SELECT k, 10 / v AS t FROM s"})
    wh.sql("DELETE FROM s WHERE k = 1")
    assert outcome(wh, "v") == INCREMENTAL
    check_queries(wh, {"v": "SELECT k, 10 / v AS t FROM s"})
    wh.script("CREATE TABLE r (k INT, v INT); INSERT INTO r VALUES (1, 1), (2, 2)")
    wh.sql("CREATE MATERIALIZED VIEW u AS SELECT k, 10 % v AS t, element_at(array(7, 8), v) AS e FROM r")
    for value in (0, 9):  # no remainder, no element
        wh.script(f"INSERT INTO r VALUES (3, {value}); DELETE FROM r WHERE k = 3")
        assert outcome(wh, "u") == "EVALUATION"


NO_ROWS = (
    "ALTER TABLE s ADD COLUMN fresh STRING",
    "COMMENT ON TABLE s IS 'other'",
    "ALTER TABLE s ALTER COLUMN v COMMENT 'value'",
    "ALTER TABLE s SET TBLPROPERTIES (mine = 'yes', delta.enableChangeDataFeed = false)",
    "ALTER TABLE s ADD CONSTRAINT positive CHECK (v > 0)",
    "ALTER TABLE s SET TBLPROPERTIES (delta.columnMapping.mode = 'name')",
    "ALTER TABLE s RENAME COLUMN spare TO other",
    "ALTER TABLE s DROP COLUMN other",
    "ALTER TABLE s CLUSTER BY (k)",
    "OPTIMIZE s",
    "VACUUM s",
)


@pytest.mark.long
def test_what_changes_no_rows_is_no_work(wh: Warehouse) -> None:
    wh.script(f"CREATE TABLE s ({COLUMNS}); {ROWS.format(s='s')}; {BEFORE.format(s='s')}")
    wh.sql("CREATE MATERIALIZED VIEW v AS SELECT k, sum(v) AS t FROM s GROUP BY k")
    told = {}
    for statement in NO_ROWS:
        wh.sql(statement)
        told[statement] = outcome(wh, "v")
    assert set(told.values()) == {NOOP}, told
    wh.script(LATER.format(s="s"))
    assert outcome(wh, "v") == INCREMENTAL
    check_queries(wh, {"v": "SELECT k, sum(v) AS t FROM s GROUP BY k"})
