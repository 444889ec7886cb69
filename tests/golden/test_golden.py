"""Lowering, delta rules and steps as text, one file a query, without Spark.

UPDATE_GOLDEN=1 writes the files anew; the difference is then read in review.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from deltaic.algebra.nodes import WEIGHT, Field
from deltaic.algebra.printer import print_tree
from deltaic.algebra.prune import prune
from deltaic.algebra.reasons import NotLowered, Reason
from deltaic.algebra.simplify import simplify
from deltaic.algebra.trees import sources as sources_of
from deltaic.plan.choose import choose
from deltaic.plan.maintain import VIEW
from deltaic.plan.program import AGAIN_KEYS
from deltaic.plan.refreshing import refresh_steps
from deltaic.plan.steps import ComputeAgain, ReadChange, ReadCounts, ReadState, SourceRead, StoredView
from deltaic.sql.lower import lower
from deltaic.sql.parse import parse_query
from deltaic.sql.render import render
from tests.e2e.test_view_kinds import KINDS
from tests.lab.duck import Duck
from tests.lab.keeper import DuckCatalog

FOLDER = Path(__file__).parent
TABLES = {
    "s": (("id", "int"), ("k", "int"), ("name", "string"), ("v", "decimal(10,2)"), ("x", "double"), ("d", "date")),
    "u": (("k", "int"), ("w", "int"), ("tag", "string")),
    "q": (("m", "map<string,int>"),),
}
MORE = {
    "unstable filter inside": "SELECT t.k, u.w FROM (SELECT k, sum(x) AS t FROM s GROUP BY k) t JOIN u ON t.t = u.w",
    "limit": "SELECT id FROM s ORDER BY id LIMIT 3",
    "no partition": "SELECT id, rank() OVER (ORDER BY v) AS r FROM s",
    "time": "SELECT id, current_date() AS today FROM s",
    "correlated two levels": "SELECT id FROM s WHERE EXISTS (SELECT 1 FROM u WHERE EXISTS"
    " (SELECT 1 FROM u v WHERE v.k = s.k))",
    "pipe": "FROM s |> WHERE k > 1 |> RIGHT JOIN u ON s.k = u.k |> SELECT s.id, u.tag",
    "in below not": "SELECT id FROM s WHERE NOT ((k IN (SELECT w FROM u)) IS NULL)",
    "exists over a generator": "SELECT id FROM s WHERE EXISTS (SELECT explode(array(w)) FROM u WHERE u.k = s.k)",
    "group by all correlated": "SELECT id FROM s WHERE EXISTS (SELECT count(*) FROM u WHERE u.k = s.k GROUP BY ALL)",
    "grouping of an expression": "SELECT k + 1 AS k1, grouping(k + 1) AS g FROM s GROUP BY ROLLUP (k + 1)",
    "grouping of another expression": "SELECT k + 1 AS k1, grouping(1 + k) AS g FROM s GROUP BY ROLLUP (k + 1)",
    "qualify by a name of two": "SELECT id, k - 5 AS k, rank() OVER (PARTITION BY d ORDER BY v) AS r FROM s"
    " QUALIFY r < 3 AND k > 0",
    "comparison before in": "SELECT id FROM s WHERE k > 1 = (k > 2) IN (SELECT w > 1 FROM u)",
    "comparison of in": "SELECT id FROM s WHERE (k = 1) = (k IN (SELECT w FROM u))",
    "keys of a map": "SELECT m.A AS x, m.a AS y, count(*) AS n FROM q GROUP BY m.A, m.a",
    "names of a struct": "SELECT k, to_json(struct(k, s.NAME, (v), count(*), max(x) AS m)) AS j FROM s"
    " GROUP BY k, NAME, v",
    "names of a row in parentheses": "SELECT to_json((id, k)) AS j FROM s",
    "names of zipped arrays": "SELECT to_json(arrays_zip(t.l, t.l)) AS j"
    " FROM (SELECT k, collect_list(id) AS l FROM s GROUP BY k) t",
    "a column called user": "SELECT t.k, max(t.user) AS m FROM (SELECT k, name AS user FROM s) t GROUP BY t.k",
    "like any": "SELECT k, count(*) AS n FROM s GROUP BY k, name HAVING name LIKE ANY ('a%', 'b')",
    "a number in a bag": "SELECT k, median(4) AS m, count(DISTINCT 1) AS n, count(*) AS c FROM s GROUP BY k",
    "a number as a group": "SELECT 7 AS a, k, count(*) AS n FROM s GROUP BY 1, 2",
    "window by an expression": "SELECT id, rank() OVER (PARTITION BY k % 2 ORDER BY v) AS r FROM s",
    "window by a constant": "SELECT id, rank() OVER (PARTITION BY NULL ORDER BY v) AS r FROM s",
    "window distributed and sorted": "SELECT id, rank() OVER (DISTRIBUTE BY k SORT BY v) AS r FROM s",
    "star without a field": "SELECT * EXCEPT (s.k) FROM s JOIN u ON s.k = u.k",
    "alias beside an aggregate": "SELECT k, sum(v) AS t, count(*) + t AS both FROM s GROUP BY k",
    "join without on": "SELECT s.id, u.tag FROM s JOIN u WHERE s.k < u.w",
    "comments and case": "select S.ID /* the ' key */ , -- comment\n S.`k` + 1 as K1 from S where s.V > 1 -- end",
}


@pytest.fixture(scope="module")
def catalog() -> Iterator[DuckCatalog]:
    duck = Duck()
    yield DuckCatalog(duck, {n: tuple(Field(*c) for c in columns) for n, columns in TABLES.items()})
    duck.close()


OUTER = {
    "extremes above an outer join": "SELECT s.name, max(u.w) AS m, count(*) AS c FROM s LEFT JOIN u ON s.k = u.k"
    " GROUP BY s.name",
    "extremes above a full join": "SELECT coalesce(s.k, u.k) AS k, min(u.w) AS lo, max(s.d) AS hi, count(u.tag) AS n"
    " FROM s FULL JOIN u ON s.k = u.k GROUP BY coalesce(s.k, u.k)",
}
PINNED = {
    "reduce plus": ("reduce+", "SELECT DISTINCT s.name, u.tag FROM s JOIN u ON s.k = u.k WHERE u.w > 1"),
    "reduce": ("reduce", "SELECT DISTINCT s.name, u.tag FROM s JOIN u ON s.k = u.k WHERE u.w > 1"),
    "counting strata": (
        "counting",
        "SELECT DISTINCT t.name FROM (SELECT DISTINCT k, name FROM s) t WHERE t.k NOT IN (SELECT k FROM u)",
    ),
}


def explained(query: str, catalog: DuckCatalog, technique: str = "auto") -> str:
    """Everything that is decided before Spark is asked to run anything."""
    tree, text = parse_query(query)
    parts = [query, ""]
    try:
        lowered = lower(tree, text, catalog)
    except NotLowered as refusal:
        return "\n".join([*parts, f"not lowered: {refusal.reason}", ""])
    parts += [print_tree(simplify(prune(lowered.node))), ""]
    way = choose(lowered.node, technique)
    if isinstance(way, Reason):
        return "\n".join([*parts, f"recomputed: {way}", ""])
    stored = dict(zip(way.root.columns, (*lowered.names, *way.hidden), strict=True))
    parts.append(f"kept by {way.way.value}: {', '.join(stored[name] for name in way.key)}")
    reads = {
        name: SourceRead(name, f"delta.`/{name}`", 1, 2, "feed", f"SELECT * FROM table_changes('{name}', 2, 2)")
        for name in sources_of(way.root)
    }
    for step in refresh_steps(way, reads, StoredView("delta.`/v`", 7, stored)):
        parts += ["", f"-- {step.title} -> {step.relation}", step.sql]
    return "\n".join([*parts, ""])


@pytest.mark.parametrize("name", [*KINDS, *MORE, *PINNED])
def test_golden(name: str, catalog: DuckCatalog) -> None:
    technique, query = PINNED[name] if name in PINNED else ("auto", {**KINDS, **MORE}[name])
    found = explained(query, catalog, technique)
    file = FOLDER / f"{name.replace(' ', '_')}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(found, encoding="utf-8")
    assert found == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("changed", ["s", "u", "su"])
@pytest.mark.parametrize("name", [*KINDS, *MORE, *OUTER])
def test_each_step_finds_what_it_reads(name: str, changed: str, catalog: DuckCatalog) -> None:
    """Relations as the steps read them, without rows: each has the columns that later steps want of it."""
    try:
        lowered = lower(*parse_query({**KINDS, **MORE, **OUTER}[name]), catalog)
    except NotLowered:
        return
    way = choose(lowered.node)
    if isinstance(way, Reason):
        return
    stored = dict(zip(way.root.columns, (*lowered.names, *way.hidden), strict=True))
    reads = {
        source: SourceRead(source, source, 1, 2, "feed", "")
        if source in changed
        else SourceRead(source, source, 2, 2, "none")
        for source in sources_of(way.root)
    }
    duck = catalog.duck
    duck.reset()
    types = {source: dict(columns) for source, columns in TABLES.items()}
    types[VIEW] = {stored[f.name]: f.type for f in way.whole.schema if f.name in stored}

    def there(relation: str, columns: dict[str, str]) -> None:
        listed = ", ".join(f"CAST(NULL AS {kind}) AS `{column}`" for column, kind in columns.items())
        duck.store(relation, f"SELECT {listed} WHERE FALSE")

    for source in reads:
        there(source, types[source])
    duck.store("made", render(way.whole, lambda scan: scan.source))
    for step in refresh_steps(way, reads, StoredView("v", 7, stored)):
        if isinstance(step, ReadState) and step.relation:
            there(step.relation, {given: types[step.source][own] for own, given in step.columns})
        elif isinstance(step, ReadChange) and step.relation:
            there(step.relation, {c: types[step.source][c] for c in step.columns} | {WEIGHT: "bigint"})
        elif isinstance(step, ReadCounts):
            return  # of the view's own table, in a form of its own
        elif isinstance(step, ComputeAgain):
            there(AGAIN_KEYS, {f"{n}_again": way.root.fields[n].type for n in way.key})
            duck.store("again", step.sql)
        else:
            duck.store(step.relation or "last", step.sql.replace("raise_error(", "error("))
