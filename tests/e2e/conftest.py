"""A fresh local warehouse for each test, and the oracle: the view's query, run again by Spark."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import deltaic
from deltaic import Report, Warehouse
from tests.conftest import new_client
from tests.lab.oracle import difference


@pytest.fixture
def wh(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Warehouse]:
    if request.config.getoption("--connect"):
        with over_connect(spark, tmp_path) as warehouse:
            yield warehouse
        return
    with deltaic.open(tmp_path / "wh") as warehouse:
        yield warehouse


@pytest.fixture
def remote(spark: SparkSession, tmp_path: Path) -> Iterator[Warehouse]:
    """On a Spark Connect session, whatever the others are on."""
    with over_connect(spark, tmp_path) as warehouse:
        yield warehouse


@contextmanager
def over_connect(spark: SparkSession, folder: Path) -> Iterator[Warehouse]:
    """A session of its own, whose default schema is empty and in a folder of its own."""
    session = new_client(spark)
    session.sql(f"ALTER DATABASE default SET LOCATION '{folder / 'schema'}'")
    try:
        yield deltaic.open(spark=session)
    finally:
        empty_catalog(session)
        session.stop()


def empty_catalog(session: SparkSession) -> None:
    for schema in [str(row[0]) for row in session.sql("SHOW SCHEMAS").collect()]:
        for table in session.catalog.listTables(schema):
            kind = "VIEW" if table.tableType in ("VIEW", "TEMPORARY") else "TABLE"
            session.sql(f"DROP {kind} IF EXISTS {'' if table.isTemporary else f'`{schema}`.'}`{table.name}`")
        if schema != "default":
            session.sql(f"DROP SCHEMA `{schema}` CASCADE")


def rows(wh: Warehouse, query: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in wh.sql(query).collect()]


def report_of(wh: Warehouse, view: str, *, full: bool = False) -> Report:
    report = wh.refresh(view, full=full)
    assert isinstance(report, Report)
    return report


class Kept:
    """A view beside its query: every refresh is compared with a recompute."""

    def __init__(self, wh: Warehouse, name: str, query: str, clauses: str = "") -> None:
        self.wh, self.name, self.query = wh, name, query
        wh.sql(f"CREATE MATERIALIZED VIEW {name} {clauses} AS {query}")

    def check(self) -> None:
        found = difference(rows(self.wh, self.query), rows(self.wh, f"SELECT * FROM {self.name}"))
        assert found is None, f"{self.name} is not its query:\n{self.query}\n{found}"

    def refresh(self, mode: str | None = "incremental") -> Report:
        """`mode` None: incremental, or a noop where the view's sources did not move."""
        report = self.refresh_only(mode)
        self.check()
        return report

    def refresh_only(self, mode: str | None = "incremental") -> Report:
        report = report_of(self.wh, self.name)
        assert report.mode in ((mode,) if mode else ("incremental", "noop")), report
        return report


def check_all(views: list[Kept]) -> None:
    check_queries(views[0].wh, {view.name: view.query for view in views})


def check_queries(wh: Warehouse, queries: Mapping[str, str]) -> None:
    """All of them by one query: many small ones cost Spark far more than a large one."""
    whole = "to_json(struct(*), map('ignoreNullFields', 'false'))"
    parts = [
        f"SELECT '{name}' AS view, {side} AS side, {whole} AS row FROM ({query})"
        for name, anew in queries.items()
        for side, query in enumerate((anew, f"SELECT * FROM {name}"))
    ]
    found: dict[tuple[str, int], list[tuple[object, ...]]] = {}
    for name, side, row in wh.sql(" UNION ALL ".join(parts)).collect():
        found.setdefault((name, side), []).append(tuple(_cell(v) for v in json.loads(row).values()))
    for name, query in queries.items():
        wrong = difference(found.get((name, 0), []), found.get((name, 1), []))
        assert wrong is None, f"{name} is not its query:\n{query}\n{wrong}"


def _cell(value: object) -> object:
    """JSON does not tell 1.0 from 1."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Killed(BaseException):
    """Stands for the end of the process at a point inside it."""


@contextmanager
def killed_in(*methods: tuple[type, str]) -> Iterator[None]:
    """The process ends where one of these is called, before it does anything."""

    def dies(*_: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in methods:
            patch.setattr(owner, name, dies)
        with pytest.raises(Killed):
            yield


Keep = Callable[..., Kept]


@pytest.fixture
def keep(wh: Warehouse) -> Keep:
    def kept(query: str, name: str = "v", clauses: str = "") -> Kept:
        return Kept(wh, name, query, clauses)

    return kept
