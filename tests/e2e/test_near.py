"""Large tables are read near the keys that a change meets them by: here every table is large."""

import pytest

from deltaic import Warehouse
from deltaic.delta import near
from deltaic.store.state import why_no_rs_state
from tests.e2e.conftest import Kept

SETUP = """
CREATE TABLE a (k INT, s STRING, v INT); CREATE TABLE b (k INT, n BIGINT, w STRING); CREATE TABLE c (n BIGINT, x INT);
INSERT INTO a VALUES (1, 'x', 1), (2, 'it''s', 2), (2, 'it''s', 2), (NULL, 'y', 3), (4, concat('a$', '{x}b'), 4);
INSERT INTO b VALUES (1, 10, 'x'), (1, 5000000000, 'y'), (2, -9223372036854775808, 'it''s'), (NULL, 20, NULL),
  (4, 10, concat('a$', '{x}b'));
INSERT INTO c VALUES (10, 1), (10, 1), (5000000000, 2), (-9223372036854775808, 3), (NULL, 4)
"""
HISTORY = [
    "INSERT INTO a VALUES (1, 'y', 9), (3, 'z', 3); INSERT INTO a SELECT k, s, 5 FROM a WHERE k = 4;"
    " INSERT INTO b VALUES (99, 99, 'gone'); DELETE FROM b WHERE k = 99",
    "DELETE FROM c WHERE x = 1; UPDATE b SET n = 10 WHERE n = 5000000000; INSERT INTO c VALUES (10, 7)",
    "UPDATE a SET s = 'it''s' WHERE k = 1; DELETE FROM b WHERE w = 'x'; INSERT INTO b VALUES (3, 10, 'z')",
    "INSERT INTO a VALUES (NULL, NULL, 0)",
]
QUERIES = {
    "chain": "SELECT a.v, b.w, c.x FROM a JOIN b ON a.k = b.k JOIN c ON b.n = c.n",
    "comma": "SELECT a.v, c.x FROM a, b, c WHERE a.s = b.w AND b.n = c.n AND a.v < 9",
    "renamed": "SELECT a.v, x.w, c.x FROM a JOIN (SELECT k AS kk, n AS nn, w FROM b WHERE n > 0) x ON a.k = x.kk"
    " JOIN c ON x.nn = c.n",
    "summed": "SELECT a.k, sum(c.x) AS t, count(*) AS n FROM a JOIN b ON a.k = b.k JOIN c ON b.n = c.n GROUP BY a.k",
}


@pytest.mark.long
@pytest.mark.parametrize("use_rs", [True, False])
def test_reads_near_the_change(
    wh: Warehouse, use_rs: bool, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    wh.engine.use_rs = use_rs
    monkeypatch.setattr(near, "LARGE", 1)
    defaults = why_no_rs_state.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "most_rows", 0)
    wh.script(SETUP)
    views = [Kept(wh, name, query) for name, query in QUERIES.items()]
    for number, batch in enumerate(HISTORY if pytestconfig.getoption("--fuzz") else HISTORY[:2]):
        wh.script(batch)
        if number == 0:
            told = wh.explain("chain")
            assert "near the values of k in" in told
            assert "delta propagation tree" in told
        for view in views:
            view.refresh()
