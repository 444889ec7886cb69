"""A fresh local warehouse for each test, and the oracle: the view's query, run again by Spark."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import deltaic
from deltaic import Report, Warehouse
from tests.lab.oracle import difference


@pytest.fixture
def wh(spark: SparkSession, tmp_path: Path) -> Iterator[Warehouse]:
    with deltaic.open(tmp_path / "wh") as warehouse:
        yield warehouse


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
    """All of them by one query: many small ones cost Spark far more than a large one."""
    wh = views[0].wh
    whole = "to_json(struct(*), map('ignoreNullFields', 'false'))"
    parts = [
        f"SELECT {number} AS view, {side} AS side, {whole} AS row FROM ({query})"
        for number, view in enumerate(views)
        for side, query in enumerate((view.query, f"SELECT * FROM {view.name}"))
    ]
    found: dict[tuple[int, int], list[tuple[object, ...]]] = {}
    for number, side, row in wh.sql(" UNION ALL ".join(parts)).collect():
        found.setdefault((number, side), []).append(tuple(_cell(v) for v in json.loads(row).values()))
    for number, view in enumerate(views):
        wrong = difference(found.get((number, 0), []), found.get((number, 1), []))
        assert wrong is None, f"{view.name} is not its query:\n{view.query}\n{wrong}"


def _cell(value: object) -> object:
    """JSON does not tell 1.0 from 1."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


Keep = Callable[..., Kept]


@pytest.fixture
def keep(wh: Warehouse) -> Keep:
    def kept(query: str, name: str = "v", clauses: str = "") -> Kept:
        return Kept(wh, name, query, clauses)

    return kept
