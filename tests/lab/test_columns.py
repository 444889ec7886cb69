"""Views whose columns change: where the rows that a view has tell its new ones, they are the same as computed anew."""

from collections.abc import Iterator

import pytest

from deltaic.algebra.nodes import Field, Scan
from deltaic.algebra.trees import walk
from deltaic.plan.columns import AlteredColumns, altered_columns
from deltaic.plan.maintain import VIEW, Maintenance
from deltaic.sql.render import render
from tests.lab.case import Column, Table, Type, View
from tests.lab.duck import Duck
from tests.lab.keeper import DuckCatalog, KeptView
from tests.lab.oracle import difference

S = Table(
    "s",
    (Column("id", Type.INT), Column("k", Type.INT), Column("v", Type.BIGINT), Column("name", Type.STRING)),
    (
        (1, 1, 10, "a"),
        (1, 1, 10, "a"),
        (2, 1, None, "b"),
        (3, 2, 5, None),
        (4, None, 7, "a"),
        (5, None, -7, "c"),
    ),
)
U = Table("u", (Column("k", Type.INT), Column("w", Type.INT)), ((1, 100), (1, 101), (2, 200), (None, 300)))

TOLD = {
    "fewer": ("SELECT id, k, v FROM s", "SELECT id, v FROM s"),
    "other order": ("SELECT id, k, v FROM s", "SELECT v, id, k FROM s"),
    "other names": ("SELECT id, k AS a FROM s", "SELECT id AS b, k AS c FROM s"),
    "computed from shown ones": ("SELECT id, v FROM s", "SELECT id, v, v + id AS more, upper('x') AS x FROM s"),
    "a computed one stays": ("SELECT id, k + v AS kv, name FROM s", "SELECT id, k + v AS kv FROM s"),
    "of a join": (
        "SELECT s.id, u.w, s.name FROM s JOIN u ON s.k = u.k",
        "SELECT s.id, u.w + 1 FROM s JOIN u ON s.k = u.k",
    ),
    "of an outer join": (
        "SELECT s.id, u.w, s.k FROM s LEFT JOIN u ON s.k = u.k",
        "SELECT s.id, u.w FROM s LEFT JOIN u ON s.k = u.k",
    ),
    "of a union": (
        "SELECT id, v FROM s UNION ALL SELECT k, w FROM u",
        "SELECT id FROM s UNION ALL SELECT k FROM u",
    ),
    "fewer sums": (
        "SELECT k, sum(v) AS t, count(*) AS n FROM s GROUP BY k",
        "SELECT k, count(*) AS n FROM s GROUP BY k",
    ),
    "sums in another order": (
        "SELECT k, sum(v) AS t, count(*) AS n, max(v) AS m FROM s GROUP BY k",
        "SELECT max(v) AS m, count(*) AS n, k FROM s GROUP BY k",
    ),
    "computed from sums": (
        "SELECT k, sum(v) AS t, count(*) AS n FROM s GROUP BY k",
        "SELECT k, sum(v) AS t, count(*) AS n, sum(v) + count(*) AS both FROM s GROUP BY k",
    ),
    "with HAVING": (
        "SELECT k, sum(v) AS t, count(*) AS n FROM s GROUP BY k HAVING count(*) > 1",
        "SELECT k, sum(v) AS t FROM s GROUP BY k HAVING count(*) > 1",
    ),
    "fewer window functions": (
        "SELECT id, k, rank() OVER (PARTITION BY k ORDER BY v, id) AS r, count(*) OVER (PARTITION BY k) AS n FROM s",
        "SELECT id, k, count(*) OVER (PARTITION BY k) AS n FROM s",
    ),
}
NOT_TOLD = {
    "a mean, whose sum is of doubles": (
        "SELECT k, sum(v) AS t, count(v) AS n FROM s GROUP BY k",
        "SELECT k, sum(v) AS t, avg(v) AS mean FROM s GROUP BY k",
    ),
    "rows of groups": ("SELECT k, sum(v) AS t FROM s GROUP BY k", "SELECT k, v AS t FROM s WHERE v > 0"),
    "a column that is not shown": ("SELECT id, k FROM s", "SELECT id, v FROM s"),
    "a part of a computed one": ("SELECT id, k + v AS kv FROM s", "SELECT id, k FROM s"),
    "another filter": ("SELECT id, k FROM s WHERE k > 0", "SELECT id FROM s WHERE k > 1"),
    "another condition": (
        "SELECT s.id, u.w FROM s JOIN u ON s.k = u.k",
        "SELECT s.id FROM s JOIN u ON s.k = u.k AND s.id < u.w",
    ),
    "another sum": ("SELECT k, sum(v) AS t FROM s GROUP BY k", "SELECT k, sum(id) AS t FROM s GROUP BY k"),
    "fewer groups": ("SELECT k, id, sum(v) AS t FROM s GROUP BY k, id", "SELECT k, sum(v) AS t FROM s GROUP BY k"),
    "a set": ("SELECT DISTINCT k, id FROM s", "SELECT DISTINCT k FROM s"),
    "a set of a bag": ("SELECT k, id FROM s", "SELECT DISTINCT k FROM s"),
    "another table": ("SELECT k FROM s", "SELECT k FROM u"),
    "another window": (
        "SELECT id, k, rank() OVER (PARTITION BY k ORDER BY v, id) AS r FROM s",
        "SELECT id, k, rank() OVER (PARTITION BY k ORDER BY id) AS r FROM s",
    ),
}


@pytest.fixture(scope="module")
def duck() -> Iterator[Duck]:
    duck = Duck()
    duck.create(S)
    duck.create(U)
    yield duck
    duck.close()


def kept(duck: Duck, name: str, query: str) -> KeptView:
    tables = {t.name: tuple(Field(c.name, c.type.value.lower(), True) for c in t.columns) for t in (S, U)}
    view = KeptView(duck, View(name, query, ()), DuckCatalog(duck, tables))
    assert isinstance(view.way, Maintenance)
    view.create()
    return view


def alteration(old: KeptView, new: KeptView) -> AlteredColumns | None:
    assert isinstance(old.way, Maintenance)
    assert isinstance(new.way, Maintenance)
    return altered_columns(old.way, new.way)


@pytest.mark.parametrize("name", TOLD)
def test_columns_that_the_view_tells(duck: Duck, name: str) -> None:
    old, new = (kept(duck, side, query) for side, query in zip(("old", "new"), TOLD[name], strict=True))
    found = alteration(old, new)
    assert found is not None
    read = [node.source for node in walk(found.node) if isinstance(node, Scan)]
    assert read == [VIEW]
    stored = ", ".join(f"`{own}` AS `{name}`" for name, own in old.stored().items())
    duck.store("@view", f"SELECT {stored} FROM `{old.table}`")
    assert isinstance(new.way, Maintenance)
    columns = ", ".join(f"`{name}` AS `{own}`" for name, own in new.stored().items())
    told = duck.rows(f"SELECT {columns} FROM ({render(found.node, lambda _: '`@view`')})")
    assert difference(duck.rows(f"SELECT * FROM `{new.table}`"), told) is None


@pytest.mark.parametrize("name", NOT_TOLD)
def test_columns_that_it_does_not_tell(duck: Duck, name: str) -> None:
    old, new = (kept(duck, side, query) for side, query in zip(("old", "new"), NOT_TOLD[name], strict=True))
    assert alteration(old, new) is None


def test_how_many_columns_go_and_come(duck: Duck) -> None:
    old, new = kept(duck, "old", "SELECT id, k, v FROM s"), kept(duck, "new", "SELECT v, id, id * 2 AS twice FROM s")
    found = alteration(old, new)
    assert found is not None
    assert (found.removed, found.added) == (1, 1)
