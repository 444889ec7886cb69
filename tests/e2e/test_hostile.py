"""Input made to do harm: names, texts, paths, definitions and commits that somebody else wrote, secrets."""

import json
import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import deltaic
from deltaic import Warehouse
from deltaic.algebra.quoting import quote, text_literal
from deltaic.app.catalogs.live import LiveTable
from deltaic.app.values.definition import PROPERTY
from deltaic.errors import (
    DefinitionDamaged,
    DeltaicError,
    MissingError,
    NameProblem,
    ParseError,
    UnsupportedError,
)
from deltaic.store.postgres.read import LiveRead
from deltaic.store.postgres.table import PostgresTable, Server
from tests.e2e.conftest import report_of, rows
from tests.store.postgres_server import PASSWORD, Database, postgres

BREAKS_OUT = "x'); DROP TABLE t; --` /* \\ \" ${env:HOME} %"


def table_of(wh: Warehouse, name: str) -> Path:
    return Path(str(wh.engine.catalog.view_ref("default", name).path))


@pytest.fixture
def t(wh: Warehouse) -> Warehouse:
    wh.sql("CREATE TABLE t (k INT, s STRING)")
    wh.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    return wh


@pytest.mark.long
def test_names_and_texts_come_through(t: Warehouse, tmp_path: Path) -> None:
    """CREATE, the definition, two refreshes by different writers, a read, a new session, a read."""
    name = "it`s; ${env:HOME} DROP -- '%2e%2e"
    column, literal = "a`b'c; --", text_literal(BREAKS_OUT + "\r\n\x0b\u2028 end")
    t.sql(
        f"CREATE MATERIALIZED VIEW {quote(name)} COMMENT {text_literal(BREAKS_OUT)}"
        f" TBLPROPERTIES ({text_literal(BREAKS_OUT)} = {text_literal(BREAKS_OUT)})"
        f" AS SELECT s AS {quote(column)}, max({literal}) AS x, count(*) AS n FROM t GROUP BY s"
    )
    folder = table_of(t, name)
    assert folder.name == name
    assert folder.parent == tmp_path / "wh" / "default"
    value = BREAKS_OUT + "\r\n\x0b\u2028 end"
    t.sql("SET spark.deltaic.writer = spark")
    for text in ("it's ${env:HOME} \\", "b"):
        t.sql(f"INSERT INTO t VALUES (3, {text_literal(text).replace('$', chr(92) + 'u0024')})")
        assert report_of(t, quote(name)).mode == "incremental"
    t.sql("DELETE FROM t WHERE k = 3")
    assert report_of(t, quote(name)).mode == "incremental"
    t.sql("RESET spark.deltaic.writer")
    assert sorted(map(tuple, t.table(quote(name)).collect())) == [("a", value, 1), ("b", value, 1)]
    assert t.table(quote(name)).columns == [column, "x", "n"]
    definition = t.definition(quote(name))
    assert (definition.name, definition.comment, definition.columns) == (name, BREAKS_OUT, (column, "x", "n"))
    assert t.views()[0]["comment"] == BREAKS_OUT
    t.close()
    with deltaic.open(tmp_path / "wh") as again:
        assert sorted(map(tuple, again.table(quote(name)).collect())) == [("a", value, 1), ("b", value, 1)]
        assert rows(again, f"SELECT n FROM {quote(name)} WHERE {quote(column)} = 'a'") == [(1,)]
        assert report_of(again, quote(name)).mode == "noop"
        again.sql(f"DROP MATERIALIZED VIEW {quote(name)}")
    assert not folder.exists()


def test_a_statement_in_the_place_of_a_query_is_never_run(t: Warehouse) -> None:
    for statement in (
        "RESTORE TABLE t TO VERSION AS OF 0",
        "DROP TABLE t",
        "DELETE FROM t",
        "FROM t INSERT OVERWRITE TABLE t SELECT 9, 'x'",
        "VACUUM t RETAIN 0 HOURS",
        "SELECT 1) AS q; DROP TABLE t; SELECT * FROM (SELECT 1",
    ):
        with pytest.raises(DeltaicError):
            t.sql(f"CREATE MATERIALIZED VIEW v AS {statement}")
    assert rows(t, "SELECT count(*) FROM t") == [(2,)]
    assert not t.views()


@pytest.mark.local
def test_paths_do_not_climb_out_of_the_warehouse(t: Warehouse, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "y.live").write_text("{}")
    before = sorted(path.name for path in tmp_path.iterdir())
    for name in ("`..`", "`../x`", "`a/b`", "`/x`", "`..`.v", "`../outside`.v", "`.deltaic`.v", f"`{'x' * 300}`"):
        with pytest.raises(NameProblem):
            t.sql(f"CREATE MATERIALIZED VIEW {name} AS SELECT k FROM t")
        with pytest.raises(DeltaicError):
            t.sql(f"CREATE TABLE {name} (a INT)")
    for name in ("`../outside`", "`..`", "`.x`", "`__deltaic_x`"):
        with pytest.raises(DeltaicError):
            t.sql(f"CREATE SCHEMA {name}")
    with pytest.raises(DeltaicError):  # not read as where a live source is
        t.sql("CREATE MATERIALIZED VIEW v AS SELECT * FROM `../outside`.y")
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    t.sql("CREATE SCHEMA Mixed")
    t.sql("CREATE SCHEMA IF NOT EXISTS mIXED")
    t.sql("CREATE MATERIALIZED VIEW MIXED.v AS SELECT k FROM t")
    assert [p.name for p in (tmp_path / "wh").iterdir() if p.name.lower() == "mixed"] == ["Mixed"]
    with pytest.raises(DeltaicError, match="already"):
        t.sql("CREATE MATERIALIZED VIEW mixed.V AS SELECT k FROM t")
    t.sql("CREATE MATERIALIZED VIEW `umsätze` AS SELECT k FROM t")
    with pytest.raises(DeltaicError, match=r"default\.umsätze has that name already"):
        t.sql("CREATE MATERIALIZED VIEW mixed.`umsätze` AS SELECT k + 1 AS k FROM t")


@pytest.mark.local
def test_what_is_elsewhere_stays_when_its_name_goes(t: Warehouse, tmp_path: Path) -> None:
    """A table made with a LOCATION, and one whose folder is a symbolic link."""
    t.sql(f"CREATE TABLE far (k INT) USING delta LOCATION '{tmp_path / 'far'}'")
    t.sql("INSERT INTO far VALUES (1)")
    t.close()
    (tmp_path / "wh" / "default" / "linked").symlink_to(tmp_path / "far")
    with deltaic.open(tmp_path / "wh") as again:
        assert rows(again, "SELECT k FROM linked") == [(1,)]
        again.sql("DROP TABLE linked")
        again.sql("DROP TABLE far")
    assert (tmp_path / "far" / "_delta_log").is_dir()
    with deltaic.open(tmp_path / "wh") as again:
        again.sql("CREATE MATERIALIZED VIEW v AS SELECT k FROM t")
    with deltaic.open(tmp_path / "other") as other:  # another warehouse's view is a table here
        other.sql(f"CREATE TABLE v USING delta LOCATION '{tmp_path / 'wh' / 'default' / 'v'}'")
        assert (other.views(), other.refresh(), other.check()) == ([], [], [])
        with pytest.raises(MissingError):
            other.sql("DROP MATERIALIZED VIEW v")
        with pytest.raises(DeltaicError):
            other.repair("v")
        other.sql("DROP TABLE v")
    with deltaic.open(tmp_path / "wh") as again:
        assert again.refresh()
        assert rows(again, "SELECT count(*) FROM v") == [(2,)]
    (tmp_path / "wh" / "default" / "broken.link").write_text("{")
    with deltaic.open(tmp_path / "wh") as again:
        assert rows(again, "SELECT count(*) FROM t") == [(2,)]


def edit(wh: Warehouse, name: str, **fields: object) -> None:
    told = json.loads(wh.engine.catalog.read_definition("default", name).to_json())
    set_property(wh, name, json.dumps({**told, **fields}))


def set_property(wh: Warehouse, name: str, text: str) -> None:
    relation = wh.engine.catalog.view_ref("default", name).relation
    wh.spark.sql(f"ALTER TABLE {relation} SET TBLPROPERTIES ({text_literal(PROPERTY)} = {text_literal(text)})")


@pytest.mark.local
def test_a_definition_that_was_edited_is_noticed_and_does_nothing(t: Warehouse, tmp_path: Path) -> None:
    t.sql("CREATE MATERIALIZED VIEW v AS SELECT k, s FROM t")
    t.sql("CREATE MATERIALIZED VIEW w AS SELECT count(*) AS n FROM t")
    good = t.engine.catalog.read_definition("default", "v").to_json()
    for damaged in (
        "{",
        json.dumps({**json.loads(good), "query": "RESTORE TABLE t TO VERSION AS OF 0"}),
        json.dumps({**json.loads(good), "settings": {"spark.sql.ansi.enabled": "false"}}),
        t.engine.catalog.read_definition("default", "w").to_json(),
    ):
        set_property(t, "v", damaged)
        for refused in (lambda: t.refresh("v"), lambda: t.explain("v"), lambda: t.refresh("v", full=True)):
            with pytest.raises(DefinitionDamaged, match=r"default\.v.*\n.*CREATE OR REPLACE") as told:
                refused()
            assert "secret" not in str(told.value)
    assert rows(t, "SELECT count(*) FROM t") == [(2,)]
    assert len(rows(t, "SELECT * FROM v")) == 2
    assert len(t.table("v").collect()) == 2
    assert {view["view"]: view["policy"] for view in t.views()} == {"default.v": None, "default.w": "AUTO"}
    assert t.history("v")
    t.sql("INSERT INTO t VALUES (3, 'c')")
    with pytest.raises(DefinitionDamaged):  # after the others
        t.refresh()
    assert rows(t, "SELECT n FROM w") == [(3,)]
    t.close()
    with deltaic.open(tmp_path / "wh") as again:
        assert len(rows(again, "SELECT * FROM v")) == 2
        again.sql("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT k FROM t")
        assert sorted(rows(again, "SELECT * FROM v")) == [(1,), (2,), (3,)]
        set_property(again, "v", "nonsense")
        again.sql("DROP MATERIALIZED VIEW v")
        assert [view["view"] for view in again.views()] == ["default.w"]


@pytest.mark.long
def test_commits_that_say_what_cannot_be(t: Warehouse) -> None:
    """The view is recomputed, and goes on from there."""
    t.sql("CREATE MATERIALIZED VIEW v AS SELECT k, s FROM t")
    relation = t.engine.catalog.view_ref("default", "v").relation
    for number, told in enumerate(('{"deltaic": {}}', '{"deltaic": {"refresh": 99, "sources": {}}}', "{"), 1):
        t.spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", told)
        t.spark.sql(f"INSERT INTO {relation} SELECT * FROM {relation} LIMIT 1")
        t.spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")
        report = report_of(t, "v")
        assert report.mode == "full"
        assert report.reasons[0].startswith("VIEW_EDITED")
        t.sql(f"INSERT INTO t VALUES ({number + 2}, 'c')")
        assert report_of(t, "v").mode == "incremental"
        assert len(rows(t, "SELECT * FROM v")) == number + 2
    assert t.history("v")


def test_texts_that_settings_would_change(t: Warehouse) -> None:
    t.sql("SET spark.sql.parser.escapedStringLiterals = true")
    with pytest.raises(UnsupportedError, match="escapedStringLiterals"):
        t.sql("CREATE MATERIALIZED VIEW v AS SELECT k FROM t WHERE s RLIKE '\\d'")
    t.sql("RESET spark.sql.parser.escapedStringLiterals")


@pytest.mark.long
def test_large_queries_on_spark(t: Warehouse) -> None:
    """What is recomputed, and what Spark itself cannot run."""
    many = " ".join(f"JOIN t AS t{n} ON t{n}.k = t0.k" for n in range(1, 70))
    t.sql(f"CREATE MATERIALIZED VIEW v AS SELECT t0.k FROM t AS t0 {many}")
    t.sql("INSERT INTO t VALUES (3, 'c')")
    report = report_of(t, "v")
    assert report.mode == "full"
    assert report.reasons[0].startswith("TOO_LARGE")
    assert len(rows(t, "SELECT * FROM v")) == 3
    for query in (
        "SELECT k FROM " + "(SELECT k FROM " * 400 + "t" + ")" * 400,
        f"SELECT {' + '.join(['k'] * 3_000)} AS x FROM t",
    ):
        with pytest.raises((ParseError, UnsupportedError), match=r"stack|deep") as refused:
            t.sql(f"CREATE MATERIALIZED VIEW large AS {query}")
        assert "materialized views of its parts" in str(refused.value)
    doubling = ", ".join(f"c{n} AS (SELECT a.k FROM c{n - 1} a JOIN c{n - 1} b USING (k))" for n in range(1, 31))
    with pytest.raises(UnsupportedError, match="written out"):
        t.sql(f"CREATE MATERIALIZED VIEW large AS WITH c0 AS (SELECT k FROM t), {doubling} SELECT k FROM c30")
    listed = ", ".join(f"k + {n}" for n in range(30))
    with pytest.raises(UnsupportedError, match="grouping sets"):
        t.sql(f"CREATE MATERIALIZED VIEW large AS SELECT count(*) AS n FROM t GROUP BY CUBE ({listed})")


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with postgres(wal_level="logical") as process:
        database = Database(process.server)
        yield database
        database.close()


@pytest.mark.local
def test_a_password_is_nowhere(
    wh: Warehouse, server: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not in files, logs, reports, plans, properties, representations or errors, nor in what led to these."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.INFO, logger="py4j")  # at DEBUG it writes down all that is said to the JVM
    server.run("CREATE TABLE orders (id int, note text)", "INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    table = server.table("orders")
    wh.attach("orders", table)
    wh.sql("CREATE MATERIALIZED VIEW v AS SELECT note, count(*) AS n FROM orders GROUP BY note")
    server.run("INSERT INTO orders VALUES (3, 'b')")
    told = [wh.explain("v"), str(wh.refresh("v")), str(wh.history("v")), str(wh.views()), repr(wh), repr(table)]
    told.append(wh.explain("CREATE MATERIALIZED VIEW w AS SELECT * FROM orders"))
    told.extend(str(row) for row in wh.sql("SHOW TBLPROPERTIES delta." + quote(str(table_of(wh, "v")))).collect())
    told.extend(str(row) for row in wh.sql("DESCRIBE EXTENDED orders").collect())
    with LiveRead(table.server, [table]) as read:
        frame = read.frame(wh.spark, table)
        frame.createOrReplaceTempView("live_frame")
        frame.explain("extended")
        told.extend(str(row) for row in wh.spark.sql("EXPLAIN FORMATTED SELECT * FROM live_frame").collect())
        told.append(repr(read) + str(frame) + str(vars(read)))
    other = Server(table.server.host, table.server.database, table.server.user, table.server.port, "WRONG_PASSWORD")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("WRONG_PASSWORD", f"{PASSWORD}-but-wrong")
        told.append(told_by(lambda: PostgresTable(other, table.schema, "orders").columns()))
    told.append(told_by(lambda: Server(f"postgresql://u:{PASSWORD}@h/db", "db", "u")))
    told.append(told_by(lambda: Server("h", f"dbname=x password={PASSWORD}", "u")))
    told.append(told_by(lambda: Server("h", "db", "u", password=PASSWORD)))  # type: ignore[arg-type]
    file = tmp_path / "wh" / "default" / "bad.live"
    file.write_text(json.dumps({"server": {"host": "h", "pasword": PASSWORD}}))
    told.append(told_by(lambda: LiveTable.read(file, "default.bad", "x")))
    file.unlink()
    wh.sql("DROP MATERIALIZED VIEW v")
    wh.detach("orders")
    told.extend([caplog.text, *capfd.readouterr()])
    assert PASSWORD not in "\n".join(told)
    for path in (tmp_path / "wh").rglob("*"):
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes(), path


def told_by(fails: Callable[[], object]) -> str:
    """The error, and all that a traceback prints of it."""
    with pytest.raises(DeltaicError) as told:
        fails()
    return f"{told.value!r} {''.join(traceback.format_exception(told.value))}"
