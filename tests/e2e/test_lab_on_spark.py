"""Some dozens of the property lab's cases through real Spark and real Delta tables."""

import os

import pytest

from deltaic import Warehouse
from tests.e2e.conftest import rows
from tests.lab.case import Case
from tests.lab.generate import case_of
from tests.lab.oracle import difference

CASES = int(os.environ.get("SPARK_CASES", "24"))
START = int(os.environ.get("SPARK_START", "5000"))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(START, START + CASES))
def test_a_case_of_the_lab(wh: Warehouse, seed: int) -> None:
    case = case_of(seed)
    for table in case.tables:
        wh.sql(f"{table.create_sql()} TBLPROPERTIES (delta.columnMapping.mode = 'name')")
        if table.rows:
            wh.sql(table.insert_sql(table.rows))
    for view in case.views:
        wh.sql(f"CREATE MATERIALIZED VIEW {view.name} AS {view.sql}")
    for batch in case.history[:2]:
        for statement in batch:
            wh.sql(statement.sql)
        wh.refresh()
        for view in case.views:
            _check(wh, case, view.name, view.sql)


def _check(wh: Warehouse, case: Case, name: str, sql: str) -> None:
    found = difference(rows(wh, sql), rows(wh, f"SELECT * FROM {name}"))
    assert found is None, f"{name}:\n{found}\n{case.script()}"
