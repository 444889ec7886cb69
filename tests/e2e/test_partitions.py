"""Views partitioned by columns of every type: what stands in the log of a partition is a text, which writers must write
alike."""

import pytest

from deltaic import Warehouse
from deltaic.errors import UnsupportedError
from tests.e2e.conftest import check_queries, report_of

TYPES = {
    "money": "DECIMAL(10, 2)",
    "at": "TIMESTAMP",
    "clock": "TIMESTAMP_NTZ",
    "ratio": "DOUBLE",
    "sure": "BOOLEAN",
}
ROWS = (
    "(1, -1.50, '2024-01-01 13:30:00', '2024-01-01 13:30:00', 0.5, TRUE)",
    "(1, 0.05, '2024-07-01 00:00:00.25', '1582-10-10 00:00:00', -1.5E300, FALSE)",
    "(2, NULL, NULL, NULL, NULL, NULL)",
)
CHANGES = (
    f"INSERT INTO s VALUES {ROWS[0]}, {ROWS[1].replace('0.05', '-0.05')}",
    "DELETE FROM s WHERE money = -1.50",
    f"UPDATE s SET k = k + 1 WHERE at IS NULL; INSERT INTO s VALUES {ROWS[0]}",
)


@pytest.mark.long
@pytest.mark.parametrize(
    "names", [("money",), pytest.param(("at", "clock", "ratio", "sure"), marks=pytest.mark.long)], ids=["one", "others"]
)
def test_views_partitioned_by_odd_types(wh: Warehouse, names: tuple[str, ...]) -> None:
    wh.sql("SET spark.sql.session.timeZone = Europe/Berlin")
    wh.sql(f"CREATE TABLE s (k INT, {', '.join(f'{name} {kind}' for name, kind in TYPES.items())}) USING delta")
    wh.sql(f"INSERT INTO s VALUES {', '.join(ROWS)}")
    queries = {f"by_{name}": f"SELECT {name}, count(*) AS n, sum(k) AS t FROM s GROUP BY {name}" for name in names}
    for name in names:
        wh.sql(f"CREATE MATERIALIZED VIEW by_{name} PARTITIONED BY ({name}) AS {queries[f'by_{name}']}")
    for change in CHANGES:
        wh.script(change)
        assert {report_of(wh, view).mode for view in queries} == {"incremental"}
        check_queries(wh, queries)
    for view in queries:
        report_of(wh, view, full=True)
    check_queries(wh, queries)


def test_bytes_do_not_come_back_from_partitions(wh: Warehouse) -> None:
    wh.sql("CREATE TABLE b (k INT, x BINARY) USING delta")
    with pytest.raises(UnsupportedError, match="partitioned by x"):
        wh.sql("CREATE MATERIALIZED VIEW v PARTITIONED BY (x) AS SELECT x, count(*) AS n FROM b GROUP BY x")
    assert wh.views() == []
