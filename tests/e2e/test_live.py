"""Views over tables in PostgreSQL and in Delta at once, exact while both are written to."""

import random
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from threading import Event, Thread

import pytest

import deltaic
from deltaic import Check, Report, Warehouse
from deltaic.app.catalogs.local import LocalCatalog
from deltaic.app.catalogs.unfinished import Notes
from deltaic.app.pipeline.service import Service
from deltaic.app.rolling.clock import Clock
from deltaic.errors import CaptureLost, DependencyError, ExistsError, HistoryGone, MissingError, SourceAway, TimeError
from deltaic.store.arrow import arrow_to_spark
from deltaic.store.postgres.read import LiveRead
from deltaic.store.postgres.table import PostgresTable, connect
from tests.e2e.conftest import killed_in, rows
from tests.lab.oracle import difference
from tests.store.postgres_server import PASSWORD, Database, postgres

pytestmark = pytest.mark.local
VIEWS = {
    "joined": "SELECT c.name, o.id, o.price FROM orders o JOIN cust c ON o.cust = c.id",
    "grouped": "SELECT c.name, sum(o.price) AS total, count(*) AS n, max(o.note) AS m FROM orders o"
    " JOIN cust c ON o.cust = c.id GROUP BY c.name",
    "padded": "SELECT c.name, o.note FROM cust c LEFT JOIN orders o ON o.cust = c.id AND o.id < 100",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with postgres(wal_level="logical") as process:
        database = Database(process.server)
        yield database
        database.close()


class Shop:
    """`orders` in PostgreSQL, `cust` in Delta."""

    def __init__(self, wh: Warehouse, database: Database) -> None:
        self.wh, self.database = wh, database
        database.run("DROP TABLE IF EXISTS orders")
        database.run("CREATE TABLE orders (id int, cust int, price numeric(10,2), note text)")
        database.run("INSERT INTO orders SELECT i, i % 20, i, 'n' || i FROM generate_series(1, 200) i")
        self.table: PostgresTable = database.table("orders")
        wh.attach("orders", self.table)
        wh.sql("CREATE TABLE cust (id INT, name STRING)")
        wh.sql("INSERT INTO cust SELECT id, concat('c', id) FROM range(25)")

    def truth(self, query: str) -> list[tuple[object, ...]]:
        """The query over what is there now: for moments when nobody writes."""
        with LiveRead(self.table.server, [self.table]) as read:
            found = read.arrow(self.table)
        schema = self.wh.spark.sql("SELECT * FROM orders").schema
        arrow_to_spark(self.wh.spark, found, schema).createOrReplaceTempView("orders_now")
        return rows(self.wh, query.replace("orders o", "orders_now o"))

    def check(self, name: str) -> None:
        assert difference(self.truth(VIEWS[name]), rows(self.wh, f"SELECT * FROM {name}")) is None, name

    def close(self) -> None:
        for view in self.wh.views():
            self.wh.sql(f"DROP MATERIALIZED VIEW {view['view']}")
        self.wh.detach("orders")


@pytest.fixture
def shop(wh: Warehouse, server: Database) -> Iterator[Shop]:
    found = Shop(wh, server)
    yield found
    found.close()


def test_views_over_both(shop: Shop) -> None:
    wh = shop.wh
    for name, query in VIEWS.items():
        wh.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        shop.check(name)
    shop.database.run("UPDATE orders SET price = price + 1 WHERE id % 7 = 0", "DELETE FROM orders WHERE id % 11 = 0")
    shop.database.run("INSERT INTO orders VALUES (1000, 3, 5.5, NULL), (1000, 3, 5.5, NULL), (NULL, NULL, NULL, NULL)")
    wh.sql("UPDATE cust SET name = NULL WHERE id = 3")
    assert "as it is now, and take back what came after version" in wh.explain("joined")
    told = wh.explain("joined", propagate=True)
    assert "default.orders: its change after version" in told
    assert "its state is read now, and compensated for what came after version" in told
    assert "its state is read in its past, at version 2: no compensation" in told
    for name in VIEWS:
        report = wh.refresh(name)
        assert isinstance(report, Report)
        assert report.mode == "incremental", report
        shop.check(name)
        assert PASSWORD not in wh.explain(name) + str(report) + str(wh.history(name))
    shop.database.run("INSERT INTO orders VALUES (1001, 4, 6.5, 'all')")
    shop.database.run("DELETE FROM orders WHERE id = 1000")
    shop.database.run("UPDATE orders SET cust = 3 WHERE cust = 1")
    reports = wh.refresh()
    assert isinstance(reports, list)
    assert {report.mode for report in reports} == {"incremental"}, "what is there by now"
    for name in VIEWS:
        shop.check(name)
    shop.database.run("INSERT INTO orders VALUES (1002, 4, 7.5, 'served')")
    assert len(list(Service(wh.engine, 0.0).round(Event()))) == len(VIEWS)
    for name in VIEWS:
        shop.check(name)
    wh.sql("CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM ORDERS")
    with pytest.raises(Exception, match="read it there, or by a materialized view"):
        wh.sql("SELECT * FROM orders").collect()
    with pytest.raises(ExistsError):
        wh.attach("orders", shop.table)
    with pytest.raises(DependencyError):
        wh.detach("orders")
    with pytest.raises(MissingError):
        wh.detach("no_such")


@pytest.mark.long
def test_a_check_and_the_doctor(shop: Shop) -> None:
    wh = shop.wh
    wh.sql(f"CREATE MATERIALIZED VIEW joined AS {VIEWS['joined']}")
    shop.database.run("DELETE FROM orders WHERE id % 11 = 0")
    found = wh.check("joined")
    assert isinstance(found, Check)
    assert found.right, found
    assert isinstance(wh.engine.catalog, LocalCatalog)
    told = str(deltaic.doctor(wh.engine.catalog.root))
    assert "default.orders: the replication slot deltaic_" in told
    assert PASSWORD not in told + str(found)


@pytest.mark.long
def test_exact_while_both_are_written_to(shop: Shop) -> None:
    wh, stop = shop.wh, Event()

    def write(seed: int) -> None:
        chance = random.Random(seed)
        with connect(shop.table.server) as connection:
            connection.execute(f"SET search_path TO {shop.table.schema}".encode())
            while not stop.is_set():
                n = chance.randint(1, 400)
                change = chance.choice([
                    f"INSERT INTO orders VALUES ({n}, {n % 30}, {n}, 'w{seed}')",
                    f"DELETE FROM orders WHERE id = {n}",
                    f"UPDATE orders SET cust = {n % 30}, price = price + 1 WHERE id % 41 = {n % 41}",
                ])  # fmt: skip
                connection.execute(change.encode())
                time.sleep(0.004)

    for name in ("joined", "grouped"):
        wh.sql(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}")
    writers = [Thread(target=write, args=(seed,)) for seed in range(2)]
    for writer in writers:
        writer.start()
    try:
        for number in range(2):
            wh.sql(f"INSERT INTO cust VALUES ({25 + number}, 'new')")
            wh.refresh("grouped")
            wh.propagate("joined")
            wh.apply("joined")
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    wh.refresh("grouped")
    shop.check("grouped")
    wh.propagate("joined")
    wh.apply("joined")
    shop.check("joined")


def test_a_table_that_is_truncated_is_recomputed(shop: Shop) -> None:
    wh = shop.wh
    wh.sql(f"CREATE MATERIALIZED VIEW joined AS {VIEWS['joined']}")
    shop.database.run("TRUNCATE orders", "INSERT INTO orders VALUES (1, 1, 1, 'x')")
    before = datetime.now(UTC)
    now = wh.table("joined", as_of=Clock(wh.engine).standing(wh.definition("joined")).order.newest)
    now.createOrReplaceTempView("looked_at")
    assert difference(shop.truth(VIEWS["joined"]), rows(wh, "SELECT * FROM looked_at")) is None
    with pytest.raises(HistoryGone, match="changes after it are gone"):
        wh.table("joined", as_of=before)
    report = wh.refresh("joined")
    assert isinstance(report, Report)
    assert report.mode == "full"
    assert report.reasons[0].startswith("SOURCE_TRUNCATED: the capture of default.orders was begun anew, since")
    shop.check("joined")
    shop.database.run("INSERT INTO orders VALUES (2, 2, 2, 'y')")
    report = wh.refresh("joined")
    assert isinstance(report, Report)
    assert report.mode == "incremental"
    shop.check("joined")


def test_a_captured_log_that_is_gone(shop: Shop) -> None:
    wh = shop.wh
    wh.sql(f"CREATE MATERIALIZED VIEW joined AS {VIEWS['joined']}")
    live = wh.engine.live("default.orders")
    assert live is not None
    shutil.rmtree(live.path)
    wh.engine.captures.close()  # as in the next process
    with pytest.raises(CaptureLost, match="the log of captured changes is gone") as lost:
        wh.refresh("joined")
    assert "attach it" in str(lost.value.hint)


@pytest.mark.long
def test_captured_changes_that_all_readers_are_past_are_forgotten(shop: Shop) -> None:
    wh = shop.wh
    for name in ("joined", "grouped"):
        wh.sql(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}")
    first = Clock(wh.engine).standing(wh.definition("joined")).order.newest
    live = wh.engine.live("default.orders")
    assert live is not None

    def changed(note: str) -> int:
        """One more captured commit; how many rows the log has after both views are, or only one is, past it."""
        shop.database.run(
            f"INSERT INTO orders VALUES (7, 7, 7, '{note}')", f"DELETE FROM orders WHERE note = 'n{note}'"
        )
        report = wh.refresh("joined")
        assert isinstance(report, Report)
        assert report.mode == "incremental", report
        shop.check("joined")
        return int(wh.spark.sql(f"SELECT count(*) FROM {live.ref.relation}").collect()[0][0])

    wh.spark.conf.set("spark.deltaic.capturedFiles", "1")
    try:
        assert [changed("1"), changed("2")] == [2, 4]  # `grouped` has not passed them
        wh.refresh("grouped")
        assert changed("3") == 2
        assert changed("4") == 4
        wh.refresh("grouped")
        shop.check("grouped")
        wh.propagate("joined")
        wh.apply("joined")
        report = wh.refresh("joined")
        assert isinstance(report, Report)
        assert report.mode == "noop", "a commit that pruned changed no rows"
        assert wh.views()[0]["commits_waiting"] == 0
        with pytest.raises(TimeError, match="is not kept"):
            wh.table("joined", as_of=1)
        with pytest.raises(TimeError, match="is before that"):
            wh.refresh("joined", as_of=first)
    finally:
        wh.spark.conf.unset("spark.deltaic.capturedFiles")


@pytest.mark.long
def test_a_server_that_is_away(wh: Warehouse) -> None:
    with postgres(wal_level="logical") as process:
        database = Database(process.server)
        shop = Shop(wh, database)
        wh.sql(f"CREATE MATERIALIZED VIEW joined AS {VIEWS['joined']}")
        before = rows(wh, "SELECT * FROM joined")
        process.stop()
        with pytest.raises(SourceAway) as away:
            wh.refresh("joined")
        assert PASSWORD not in str(away.value)
        assert difference(before, rows(wh, "SELECT * FROM joined")) is None
        process.start()
        with connect(process.server) as connection:
            connection.execute(f"INSERT INTO {shop.table.relation} VALUES (3, 3, 3, 'z')".encode())
        wh.refresh("joined")
        shop.check("joined")
        shop.close()
        database.admin.close()


def test_killed_while_attaching_or_detaching(wh: Warehouse, server: Database) -> None:
    """A slot that nobody reads would make the server keep its log for ever."""
    server.run("DROP TABLE IF EXISTS goods", "CREATE TABLE goods (id int)", "INSERT INTO goods VALUES (1), (2)")
    table, root = server.table("goods"), wh.engine.catalog.root if isinstance(wh.engine.catalog, LocalCatalog) else None
    slots = f"SELECT count(*) FROM pg_publication_tables WHERE schemaname = '{server.schema}' AND tablename = 'goods'"
    with killed_in((LocalCatalog, "add_live"), (Notes, "settled")):
        wh.attach("goods", table)
    assert server.rows(slots) == [(1,)]
    with deltaic.open(root) as again:
        assert server.rows(slots) == [(0,)]
        again.attach("goods", table)
        again.sql("CREATE MATERIALIZED VIEW stock AS SELECT id FROM goods")
        assert rows(again, "SELECT count(*) FROM stock") == [(2,)]
        again.sql("DROP MATERIALIZED VIEW stock")
        with killed_in((LocalCatalog, "remove_live")):
            again.detach("goods")
    with deltaic.open(root) as again:
        again.detach("goods")
        assert server.rows(slots) == [(0,)]
