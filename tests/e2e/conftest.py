"""A fresh local warehouse for each test, and the oracle: the view's query, run again by Spark."""

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
        self.check()

    def check(self) -> None:
        found = difference(rows(self.wh, self.query), rows(self.wh, f"SELECT * FROM {self.name}"))
        assert found is None, f"{self.name} is not its query:\n{self.query}\n{found}"

    def refresh(self, mode: str | None = "incremental") -> Report:
        """`mode` None: incremental, or a noop where the view's sources did not move."""
        report = report_of(self.wh, self.name)
        self.check()
        assert report.mode in ((mode,) if mode else ("incremental", "noop")), report
        return report


Keep = Callable[..., Kept]


@pytest.fixture
def keep(wh: Warehouse) -> Keep:
    def kept(query: str, name: str = "v", clauses: str = "") -> Kept:
        return Kept(wh, name, query, clauses)

    return kept
