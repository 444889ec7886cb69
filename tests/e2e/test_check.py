"""Views beside their queries: right ones, damaged ones, and those of which it cannot be told."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import deltaic
from deltaic import Check, Repair, Warehouse
from deltaic.algebra.nodes import WEIGHT
from deltaic.app.catalogs.folders import set_aside
from deltaic.app.catalogs.local import LocalCatalog
from deltaic.app.terminal.failure import failure_of
from deltaic.app.values.definition import PROPERTY
from deltaic.errors import DefinitionDamaged, ExistsError, MissingError, UnsupportedError
from deltaic.spark.telling import FILE_GONE
from deltaic.store import log_readers
from tests.e2e.conftest import report_of, rows

SETUP = """
CREATE TABLE s (id INT, k INT, name STRING, v DECIMAL(10,2), x DOUBLE);
INSERT INTO s VALUES (1, 1, 'a', 1.50, 0.1), (2, 1, 'b', 2.50, 0.2), (3, 2, 'a', NULL, 0.3), (4, NULL, 'c', 4.00, NULL),
  (4, NULL, 'c', 4.00, NULL), (5, 3, NULL, -1.00, 0.7);
CREATE TABLE u (k INT, w INT);
INSERT INTO u VALUES (1, 10), (1, 20), (2, 30), (NULL, 40)
"""
CHANGE = "INSERT INTO s VALUES (6, 2, 'd', 9.25, 1.1), (7, 1, 'a', 1.00, NULL); DELETE FROM s WHERE id = 2"
BY_K = "SELECT k, count(*) AS n, sum(v) AS t, avg(x) AS a FROM s GROUP BY k"


def check(wh: Warehouse, view: str, sample: int | None = None) -> Check:
    found = wh.check(view, sample=sample)
    assert isinstance(found, Check)
    return found


def folder(wh: Warehouse, view: str) -> Path:
    return Path(str(wh.engine.view_table(wh.definition(view)).ref.path))


def data_files(wh: Warehouse, view: str) -> list[Path]:
    """Of the newest version."""
    relation = wh.engine.view_table(wh.definition(view)).ref.relation
    names = {row[0] for row in wh.spark.sql(f"SELECT DISTINCT _metadata.file_name FROM {relation}").collect()}
    return sorted(file for file in folder(wh, view).rglob("*.parquet") if file.name in names)


VIEWS = {
    "by_k": BY_K,
    "bags": "SELECT name, count(DISTINCT k) AS c, median(id) AS m, collect_list(id) AS l FROM s GROUP BY name",
    "having": "SELECT k, sum(x) AS t FROM s GROUP BY k HAVING sum(x) > 0.2",
    "outer": "SELECT s.id, s.name, u.w FROM s LEFT JOIN u ON s.k = u.k",
    "latest": "SELECT id, k FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY id DESC) = 1",
    "reached": "WITH RECURSIVE r(k) AS (SELECT k FROM u UNION SELECT r.k + 1 FROM r WHERE r.k < 4) SELECT k FROM r",
    "counted": "SELECT DISTINCT name FROM s WHERE k NOT IN (SELECT k FROM u WHERE k IS NOT NULL)",
    "top": "SELECT id, v FROM s ORDER BY v DESC, id LIMIT 2",
}


FEW = ("by_k", "bags", "latest")


@pytest.mark.parametrize("names", [FEW, pytest.param(VIEWS, marks=pytest.mark.long)], ids=["some", "all"])
def test_right_views_are_equal_and_a_stale_one_is_not_wrong(wh: Warehouse, names: Sequence[str]) -> None:
    wh.script(SETUP)
    for name in names:
        clause = "TBLPROPERTIES ('deltaic.technique' = 'counting')" if name == "counted" else ""
        wh.sql(f"CREATE MATERIALIZED VIEW {name} {clause} AS {VIEWS[name]}")
    wh.script(CHANGE)
    wh.refresh()
    wh.sql("INSERT INTO s VALUES (8, 8, 'z', 1, 1)")
    checks = wh.check()
    assert isinstance(checks, list)
    assert {one.view: one.verdict for one in checks} == {f"default.{name}": "equal" for name in names}, checks
    by_k = next(one for one in checks if one.view == "default.by_k")
    assert by_k.commits_behind == {"default.s": 1}
    assert by_k.versions == {"default.s": 3}
    assert (by_k.compared, by_k.state, by_k.rows) == (4, 0, ())
    assert "default.s 1 commits: stale" in str(by_k)


def edited(statement: str, view: str = "v") -> Callable[[Warehouse], None]:
    """A statement over the view's own table."""

    def edit(wh: Warehouse) -> None:
        wh.script(statement.format(t=wh.engine.view_table(wh.definition(view)).ref.relation))

    return edit


def file_removed(wh: Warehouse) -> None:
    data_files(wh, "v")[0].unlink()


def file_cut(wh: Warehouse) -> None:
    file = data_files(wh, "v")[0]
    file.write_bytes(file.read_bytes()[:-1])


DAMAGES: dict[str, tuple[Callable[[Warehouse], None], str, tuple[int, int, int | None]]] = {
    "row deleted": (edited("DELETE FROM {t} WHERE k = 1"), "differs", (1, 0, 1)),
    "row doubled": (edited("INSERT INTO {t} SELECT * FROM {t} WHERE k IS NULL"), "differs", (0, 1, 1)),
    "value edited": (edited("UPDATE {t} SET t = t + 0.01 WHERE k = 1"), "differs", (1, 1, 2)),
    "float edited": (edited("UPDATE {t} SET a = a * 1.000001 WHERE k = 2"), "differs", (1, 1, 2)),
    "count edited": (edited("UPDATE {t} SET __deltaic_s4 = __deltaic_s4 + 1 WHERE k = 1"), "differs", (0, 0, 2)),
    "column dropped": (edited("ALTER TABLE {t} DROP COLUMN a"), "damaged", (0, 0, None)),
    "file removed": (file_removed, "damaged", (0, 0, None)),
    "file cut": (file_cut, "damaged", (0, 0, None)),
}


QUICK = ("value edited", "file removed")
OTHERS = [name for name in DAMAGES if name not in QUICK]


@pytest.mark.parametrize("names", [QUICK, pytest.param(OTHERS, marks=pytest.mark.long)], ids=["some", "others"])
def test_damage_is_found_and_repaired(wh: Warehouse, names: Sequence[str]) -> None:
    wh.script(SETUP)
    wh.sql(f"CREATE MATERIALIZED VIEW v AS {BY_K}")
    for number, name in enumerate(names):
        damage, verdict, counts = DAMAGES[name]
        damage(wh)
        found = check(wh, "v")
        assert (found.verdict, (found.missing, found.extra, found.state)) == (verdict, counts), f"{name}: {found}"
        assert bool(found.rows) == (verdict == "differs"), name
        done = wh.repair("v")
        assert (done.action, done.before.verdict, done.after.verdict) == ("recomputed", verdict, "equal"), name
        wh.sql(f"INSERT INTO s VALUES ({number + 10}, 1, 'r', 0.25, 0.5)")
        assert report_of(wh, "v").mode == "incremental", name
    assert wh.repair("v").action == "none"


@pytest.mark.local
def test_files_that_are_cut_off(wh: Warehouse) -> None:
    """Others are checked all the same; a refresh computes anew; views above go on."""
    wh.script(SETUP)
    above = "SELECT n, count(*) AS m FROM by_k GROUP BY n"
    for name, query in {"by_k": BY_K, "same": BY_K, "above": above}.items():
        wh.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    for file in (file for name in ("by_k", "same") for file in data_files(wh, name)):
        file.write_bytes(file.read_bytes()[:10])
    found = wh.check()
    assert isinstance(found, list)
    verdicts = {one.view: one.verdict for one in found}
    assert verdicts == {"default.by_k": "damaged", "default.same": "damaged", "default.above": "uncertain"}
    wh.script(CHANGE)
    assert report_of(wh, "same").reasons[0].startswith("HISTORY_GONE")
    assert wh.repair("by_k").action == "recomputed"
    assert check(wh, "above").verdict == "uncertain"
    assert report_of(wh, "above").reasons[0].startswith("HISTORY_GONE")
    assert check(wh, "above").right
    for file in (folder(wh, "same").parent / "s").glob("*.parquet"):
        file.unlink()
    with pytest.raises(Exception, match="FAILED_READ_FILE") as raised:
        wh.sql("SELECT * FROM s").collect()
    assert "FAILED_READ_FILE" in failure_of(raised.value).message
    assert check(wh, "same").hint == FILE_GONE


def test_rows_that_differ_are_shown(wh: Warehouse) -> None:
    wh.script(SETUP)
    wh.sql("CREATE MATERIALIZED VIEW v AS SELECT id, name FROM s")
    edited("DELETE FROM {t} WHERE id = 4; INSERT INTO {t} SELECT 9, 'new', __deltaic_row FROM {t} WHERE id = 1")(wh)
    found = check(wh, "v")
    assert (found.columns, found.rows) == ((WEIGHT, "id", "name"), ((2, 4, "c"), (-1, 9, "new")))
    assert "+2 id = 4, name = c" in str(found)
    (less,) = [wh.check("v", rows=1)]
    assert isinstance(less, Check)
    assert len(less.rows) == 1


@pytest.mark.local
def test_a_view_that_lost_its_definition_is_named(wh: Warehouse, tmp_path: Path) -> None:
    wh.script("CREATE TABLE s (k INT); INSERT INTO s VALUES (1)")
    for name in ("bare", "made", "kept"):
        wh.sql(f"CREATE MATERIALIZED VIEW {name} AS SELECT k, count(*) AS n FROM s GROUP BY k")
    edited(f"ALTER TABLE {{t}} UNSET TBLPROPERTIES ('{PROPERTY}')", "bare")(wh)
    edited("CREATE OR REPLACE TABLE {t} USING delta AS SELECT 7 AS k", "made")(wh)
    wh.sql("INSERT INTO s VALUES (1)")
    with pytest.raises(DefinitionDamaged, match=r"default\.(bare|made) has lost"):
        wh.refresh()
    assert rows(wh, "SELECT * FROM kept") == [(1, 2)]
    checks = wh.check()
    assert isinstance(checks, list)
    assert {c.view: c.verdict for c in checks} == {
        "default.bare": "damaged", "default.made": "damaged", "default.kept": "equal",
    }  # fmt: skip
    assert check(wh, "bare").verdict == "damaged"
    with pytest.raises(ExistsError) as told:
        wh.sql("CREATE OR REPLACE MATERIALIZED VIEW bare AS SELECT k FROM s")
    assert "deltaic repair" in str(told.value)
    assert wh.repair("bare").action == "rebuilt"
    assert sorted(rows(wh, "SELECT * FROM bare")) == [(1, 2)]
    wh.sql("DROP MATERIALIZED VIEW made")
    assert {told["view"] for told in wh.views()} == {"default.bare", "default.kept"}


@pytest.mark.long
def test_a_sample_is_a_part_of_the_keys(wh: Warehouse) -> None:
    wh.sql("CREATE TABLE t (k INT, v INT)")
    wh.sql("INSERT INTO t SELECT id % 100, id FROM range(400)")
    wh.sql("CREATE MATERIALIZED VIEW v AS SELECT k, sum(v) AS s FROM t GROUP BY k")
    found = check(wh, "v", sample=20)
    assert found.right
    assert found.sample == "bucket 1 of 5, by a hash of k"
    assert 5 < (found.compared or 0) < 50
    edited("UPDATE {t} SET s = s + 1")(wh)
    found = check(wh, "v", sample=20)
    assert found.missing == found.extra == found.compared
    assert check(wh, "v", sample=1000).missing == 100


TYPES = """
SELECT id, map('b', id, 'a', NULL) AS m, parse_json(concat('{"x": [1, ', id, ']}')) AS j, array(map(1, x)) AS am,
  named_struct('p', name, 'q', CAST(X'00ff' AS BINARY)) AS st, -0.0D AS z, double('nan') AS nan
FROM s"""


@pytest.mark.long
def test_every_type_can_be_compared(wh: Warehouse) -> None:
    wh.script(SETUP)
    wh.sql(f"CREATE MATERIALIZED VIEW v AS {TYPES}")
    assert check(wh, "v").right
    edited("UPDATE {t} SET m = map('b', id, 'a', 1), j = parse_json('null'), z = 0.0D WHERE id = 1")(wh)
    found = check(wh, "v")
    assert (found.verdict, found.missing, found.extra) == ("differs", 1, 1)
    assert {tuple(sorted(row[2])) for row in found.rows} == {("a", "b")}


@pytest.mark.long
def test_numbers_that_were_added_up_in_another_order_are_equal(wh: Warehouse) -> None:
    """Large numbers that cancel out leave noise that is large beside what is left, and small beside them."""
    wh.sql("CREATE TABLE t (k INT, x DOUBLE)")
    wh.sql("INSERT INTO t SELECT 0, 1e9 * sin(id) FROM range(1000)")
    wh.sql(
        "CREATE MATERIALIZED VIEW v AS SELECT k, sum(x) AS s, round(avg(x), 1) AS r, var_pop(x) AS w FROM t GROUP BY k"
    )
    wh.sql("INSERT INTO t SELECT 0, -x FROM t WHERE x > 0")
    wh.sql("INSERT INTO t SELECT 0, 1e9 * cos(id) FROM range(1000)")
    assert report_of(wh, "v").mode == "incremental"
    assert check(wh, "v").right


@pytest.mark.long
def test_where_rows_tie_it_is_not_told(wh: Warehouse) -> None:
    wh.script(SETUP)
    wh.sql(
        "CREATE MATERIALIZED VIEW v AS SELECT k, id, v FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY v) = 1"
    )
    edited("UPDATE {t} SET id = 99 WHERE k = 1")(wh)
    assert check(wh, "v").verdict == "uncertain", "the two rows without a k tie"
    assert wh.repair("v").action == "none"
    assert wh.repair("v", force=True).after.right
    wh.sql("DELETE FROM s WHERE k IS NULL")
    wh.refresh("v")
    edited("UPDATE {t} SET id = 99 WHERE k = 1")(wh)
    assert check(wh, "v").verdict == "differs", "no rows tie, so there is one right answer"


@pytest.mark.long
def test_what_cannot_be_checked_says_why(wh: Warehouse) -> None:
    wh.script(SETUP)
    wh.sql("CREATE MATERIALIZED VIEW drawn AS SELECT id, rand() AS r FROM s")
    wh.sql(f"CREATE MATERIALIZED VIEW v AS {BY_K}")
    found = check(wh, "drawn")
    assert (found.verdict, found.compared) == ("uncertain", None)
    assert "another one each time" in found.notes[0]
    wh.sql("UPDATE s SET v = v + 1")
    wh.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    wh.spark.sql("VACUUM s RETAIN 0 HOURS")
    found = check(wh, "v")
    assert (found.verdict, found.commits_behind) == ("uncertain", {"default.s": 3})
    assert "vacuumed" in found.notes[0]
    assert "Refresh it" in (found.hint or "")
    wh.sql("CREATE OR REPLACE TABLE s AS SELECT 1 AS id, 2 AS k, 'a' AS name, 1.5 AS v, 0.5D AS x")
    assert "another table" in check(wh, "v").notes[0] or "columns of default.s" in check(wh, "v").notes[0]
    with pytest.raises(MissingError):
        wh.check("nothing")


@pytest.mark.long
def test_a_source_that_has_other_columns_since(wh: Warehouse) -> None:
    """They are no part of the version that the view was made of, and it does not depend on them."""
    wh.script("CREATE TABLE s (k INT, v INT); INSERT INTO s VALUES (1, 1), (1, 2), (NULL, 3)")
    wh.sql("CREATE MATERIALIZED VIEW below AS SELECT k, sum(v) AS t FROM s GROUP BY k")
    wh.sql("CREATE MATERIALIZED VIEW above AS SELECT t, count(*) AS n FROM below GROUP BY t")
    wh.sql("CREATE MATERIALIZED VIEW beside AS SELECT k FROM s WHERE v > 1")
    wh.script("ALTER TABLE s ADD COLUMN x STRING; INSERT INTO s VALUES (1, 5, 'x')")
    wh.sql("ALTER MATERIALIZED VIEW below AS SELECT k, sum(v) AS t, max(x) AS x FROM s GROUP BY k")
    assert {name: check(wh, name).verdict for name in ("below", "above", "beside")} == dict.fromkeys(
        ("below", "above", "beside"), "equal"
    )


# a table that cannot be read


def root_of(wh: Warehouse) -> Path:
    assert isinstance(wh.engine.catalog, LocalCatalog)
    return wh.engine.catalog.root


def reopened(wh: Warehouse) -> Warehouse:
    wh.close()
    return deltaic.open(root_of(wh))


@pytest.mark.long
def test_a_broken_log_concerns_nobody_else(wh: Warehouse) -> None:
    wh.script(SETUP)
    wh.sql(f"CREATE MATERIALIZED VIEW v AS {BY_K}")
    wh.sql("CREATE MATERIALIZED VIEW w AS SELECT id FROM s")
    wh.sql("CREATE MATERIALIZED VIEW above AS SELECT max(n) AS m FROM v")
    place = folder(wh, "v")
    wh.script(CHANGE)
    wh.refresh("v")
    (place / "_delta_log" / f"{0:020}.json").unlink()
    log_readers._rs_snapshot.cache_clear()  # as in another process
    with reopened(wh) as again:
        assert [view["view"] for view in again.views()] == ["default.above", "default.w"]
        report_of(again, "w")
        checks = again.check()
        assert isinstance(checks, list)
        assert {one.view: one.verdict for one in checks} == {
            "default.v": "damaged",
            "default.above": "uncertain",
            "default.w": "equal",
        }
        with pytest.raises(ExistsError, match="a table that cannot be read"):
            again.sql("CREATE MATERIALIZED VIEW v AS SELECT 1 AS one")
        done = again.repair("v")
        assert (done.action, done.after.verdict) == ("rebuilt", "equal")
        again.sql("INSERT INTO s VALUES (20, 1, 'r', 0.25, 0.5)")
        assert report_of(again, "v").mode == "incremental"
        assert check(again, "v").right
        report_of(again, "above")
        assert check(again, "above").right


@pytest.mark.long
def test_a_rebuild_that_is_killed_leaves_what_was_there(wh: Warehouse) -> None:
    wh.script(SETUP)
    wh.sql(f"CREATE MATERIALIZED VIEW v AS {BY_K}")
    place, root = folder(wh, "v"), root_of(wh)
    aside = root / ".deltaic" / "aside" / "default" / "v" / "1"
    with set_aside(root, place):
        assert not place.exists()
    assert check(wh, "v").right
    aside.parent.mkdir(parents=True, exist_ok=True)
    place.rename(aside)  # a process that was killed before the new table was there
    with reopened(wh) as again:
        assert check(again, "v").right
        shutil.copytree(place, aside)  # and one that was killed after that
    with deltaic.open(root) as again:
        assert not aside.exists()
        assert check(again, "v").right


@pytest.mark.long
@pytest.mark.local
def test_a_damaged_definition_is_found_in_the_log(wh: Warehouse) -> None:
    wh.script(SETUP)
    wh.sql(f"CREATE MATERIALIZED VIEW v AS {BY_K}")
    for statement in (
        "ALTER TABLE {t} SET TBLPROPERTIES ('deltaic.definition' = '{{\"format\": 2')",
        "ALTER TABLE {t} SET TBLPROPERTIES ('deltaic.definition' = '{{}}')",
        "ALTER TABLE {t} UNSET TBLPROPERTIES ('deltaic.definition')",
        "CREATE OR REPLACE TABLE {t} USING delta AS SELECT 1 AS mine",
    ):
        relation = wh.engine.view_table(wh.definition("v")).ref.relation
        wh.spark.sql(statement.format(t=relation))
        if " SET " in statement:
            assert check(wh, "v").verdict == "damaged"
        else:
            with pytest.raises(MissingError) as missing:
                wh.refresh("v")
            assert "deltaic repair" in str(missing.value.hint)
        done: Repair = wh.repair("v")
        assert (done.action, done.after.verdict) == ("rebuilt", "equal"), statement
        assert rows(wh, "SELECT count(*) FROM v") == [(4,)]


@pytest.mark.long
def test_a_view_of_which_nothing_is_left_is_refused(wh: Warehouse) -> None:
    wh.script(SETUP)
    wh.sql(f"CREATE MATERIALIZED VIEW v AS {BY_K}")
    for file in [file for file in (folder(wh, "v") / "_delta_log").iterdir() if file.is_file()]:
        if file.suffix == ".json":
            file.write_text(json.dumps({"commitInfo": {}}))
        else:
            file.unlink()
    with pytest.raises(UnsupportedError, match="nothing in its log says what its query was"):
        wh.repair("v")
    with pytest.raises(MissingError):
        wh.repair("nothing")
