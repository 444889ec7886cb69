"""Every stored part of an aggregate through random histories: inserted only, and all kinds of changes."""

import pytest

from deltaic.plan.maintain import Maintenance, Way
from tests.lab.case import Case, View
from tests.lab.duck import Duck
from tests.lab.keeper import keep_case
from tests.lab.test_views import problem
from tests.lab.towers import tables_and_history

# DuckDB refuses a variance that meets NaN, its corr is NaN where Spark's is NULL, and its arg_min passes over rows
# whose value is NULL
ROW = "n * 10000 + a * 100 + b"
NAN = "CAST('NaN' AS DOUBLE)"
PARTS = {
    "variances": "var_pop(n) AS p1, var_samp(n) AS p2, variance(v) AS p3, stddev(n) AS p4, stddev_pop(v) AS p5",
    "filtered": "var_pop(n) FILTER (WHERE b > 0) AS p1, stddev(n) FILTER (WHERE b IS NULL) AS p2, count(n) AS p3",
    "covariances": f"covar_pop(n, v) AS p1, covar_samp(v, n) AS p2, nullif(corr(n, b), {NAN}) AS p3, var_pop(n) AS p4",
    "of one's own": f"covar_pop(n, n) AS p1, nullif(corr(b, b), {NAN}) AS p2",
    "beside an extreme": f"min_by(concat(a, b, n), {ROW}) AS p1, max_by(concat(n, a, b), {ROW}) AS p2, max(n) AS p3",
    "bits": "bit_xor(n) AS p1, bit_or(n) AS p2, bit_and(b) AS p3, bit_xor(b) FILTER (WHERE n > 0) AS p4",
    "sums beside variances": "sum(v) AS p1, avg(n) AS p2, var_pop(n) AS p3, min(n) AS p4, count(*) AS p5",
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("groups", ["a", "s, b", ""])
def test_parts(name: str, groups: str, duck: Duck, pytestconfig: pytest.Config) -> None:
    source = "(SELECT DISTINCT * FROM facts)" if name == "beside an extreme" else "facts"
    listed, group = (f"{groups}, ", f" GROUP BY {groups}") if groups else ("", "")
    query = f"SELECT {listed}{PARTS[name]} FROM {source}{group}"
    for seed in range(40 if pytestconfig.getoption("--fuzz") else 1):
        for inserts_only in (True, False):
            tables, history = tables_and_history(seed)
            if inserts_only:
                history = tuple(tuple(s for s in batch if s.inserts) for batch in history)
            case = Case(tables, (View("v0", query, ()),), history, seed)
            assert problem(duck, case) is None
    way = keep_case(duck, case)[0][-1].way
    assert isinstance(way, Maintenance)
    assert way.way is Way.CHANGES
