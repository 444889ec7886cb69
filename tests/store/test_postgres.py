"""A PostgreSQL table as a value: its columns, its refusals, and how its server is reached."""

from __future__ import annotations

import datetime as dt
import os
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from deltaic.errors import (
    ConfigurationError,
    DeltaicError,
    MissingError,
    SetupError,
    SourceAway,
    SourceError,
    TypeNotStorable,
)
from deltaic.store.postgres.read import LiveRead
from deltaic.store.postgres.snapshot import Visibility, end_of_records, lsn_number, lsn_text, whole_xid
from deltaic.store.postgres.table import PostgresTable, Retry, Server, connect
from tests.store.postgres_server import PASSWORD, PASSWORD_VARIABLE, Database

EVERY_TYPE = {
    "smallint": ("smallint", "-32768", -32768),
    "integer": ("int", "2147483647", 2147483647),
    "bigint": ("bigint", "-9223372036854775808", -9223372036854775808),
    "real": ("float", "'0.1'", pa.scalar(0.1, pa.float32()).as_py()),
    "double precision": ("double", "'0.1'::float8 + '0.2'::float8", 0.1 + 0.2),
    "numeric(38,18)": ("decimal(38,18)", "-12345678901234567890.123456789012345678", None),
    "numeric(5,0)": ("decimal(5,0)", "99999", Decimal(99999)),
    "numeric(3,5)": ("decimal(5,5)", "0.00999", Decimal("0.00999")),
    "boolean": ("boolean", "false", False),
    "text": ("string", "E'a\\tb\\\\\\n\"é''🙂'", "a\tb\\\n\"é'🙂"),
    "varchar(9)": ("string", "'\\N'", "\\N"),
    "char(4)": ("string", "'ab'", "ab  "),
    "date": ("date", "'0001-01-01'", dt.date(1, 1, 1)),
    "timestamp": ("timestamp_ntz", "'2024-03-31 02:30:00.000001'", dt.datetime(2024, 3, 31, 2, 30, 0, 1)),
    "timestamptz": (
        "timestamp", "'2024-03-31 02:30:00.5+05:30'", dt.datetime(2024, 3, 30, 21, 0, 0, 500_000, dt.timezone.utc)
    ),
    "bytea": ("binary", "'\\x00ff27'", b"\x00\xff'"),
    "uuid": ("string", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "json": ("string", "'{\"a\" :  1, \"a\":2}'", '{"a" :  1, "a":2}'),
    "jsonb": ("string", "'null'", "null"),
}  # fmt: skip


def every_type(database: Database) -> PostgresTable:
    """A row of values and one of NULLs."""
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(EVERY_TYPE))
    values = ", ".join(value for _, value, _ in EVERY_TYPE.values())
    database.run(
        f"CREATE TABLE t (id int PRIMARY KEY, {columns})",
        f"INSERT INTO t VALUES (1, {values})",
        "INSERT INTO t VALUES (2)",
    )
    return database.table()


def expected_rows() -> list[dict[str, object]]:
    wide = Decimal("-12345678901234567890.123456789012345678")
    values = {f"c{n}": wide if value is None else value for n, (_, _, value) in enumerate(EVERY_TYPE.values())}
    return [{"id": 1, **values}, {"id": 2, **dict.fromkeys(values)}]


def test_types_and_their_values(database: Database) -> None:
    table = every_type(database)
    assert [column.spark for column in table.columns()][1:] == [spark for spark, _, _ in EVERY_TYPE.values()]
    with LiveRead(table.server, [table]) as read:
        rows = read.arrow(table)
    assert rows.to_pylist() == expected_rows()
    assert rows.schema.types[1:] == [column.arrow for column in table.columns()[1:]]


def test_a_domain_is_its_type(database: Database) -> None:
    database.run("CREATE DOMAIN money2 AS numeric(9,2)", "CREATE DOMAIN price AS money2 CHECK (VALUE > 0)")
    database.run("CREATE TABLE t (p price)", "INSERT INTO t VALUES (1.5)")
    with LiveRead(database.server, [database.table()]) as read:
        assert read.arrow(database.table()).to_pylist() == [{"p": Decimal("1.50")}]


@pytest.mark.parametrize("kind", ["numeric", "numeric(39,0)", "interval", "int[]", "inet", "time", "money", "point"])
def test_types_without_a_counterpart_are_refused_by_name(database: Database, kind: str) -> None:
    database.run(f"CREATE TABLE t (id int, x {kind})")
    with pytest.raises(TypeNotStorable, match=r"(?s)\.t\.x is of type .*only=") as refused:
        database.table().columns()
    assert kind.split("[", maxsplit=1)[0].split("(", maxsplit=1)[0] in str(refused.value)
    assert [column.name for column in database.table(only=("id",)).columns()] == ["id"]


def test_tables_that_are_none(database: Database) -> None:
    database.run("CREATE TABLE parts (id int) PARTITION BY LIST (id)", "CREATE VIEW v AS SELECT 1 AS a")
    database.run(
        'CREATE TABLE twice ("A" int, a int)', 'CREATE TABLE odd ("a b" int)', "CREATE TABLE own (__deltaic_d int)"
    )
    for name, said in (
        ("parts", "partitioned"), ("v", "a view"), ("twice", "one name"), ("odd", "'a b'"), ("own", "Deltaic's own"),
        ("none", "no table"),
    ):  # fmt: skip
        with pytest.raises(DeltaicError, match=said):
            database.table(name).columns()
    with pytest.raises(MissingError, match="no column nope"):
        database.table("twice", ("a", "nope")).columns()


@pytest.mark.parametrize(("kind", "value"), [
    ("numeric(5,2)", "NaN"), ("date", "infinity"), ("timestamp", "-infinity"), ("date", "0044-03-15 BC"),
])  # fmt: skip
def test_values_that_spark_cannot_hold_are_errors(database: Database, kind: str, value: str) -> None:
    database.run(f"CREATE TABLE t (x {kind})", f"INSERT INTO t VALUES ('{value}')")
    with LiveRead(database.server, [database.table()]) as read, pytest.raises(SourceError, match=r"\.t\.x: a value"):
        read.arrow(database.table())


def test_rows_by_key(database: Database) -> None:
    database.run(
        "CREATE TABLE t (a int, b text, v int)",
        "INSERT INTO t SELECT i % 7, 'b''\\' || i % 3, i FROM generate_series(1, 99) i",
    )
    database.run("INSERT INTO t VALUES (NULL, 'x', 100), (1, NULL, 101), (NULL, NULL, 102)")
    keys = pa.table(
        {"a": [1, None, None, 50], "b": ["b'\\1", "x", None, "x"]}, pa.schema([("a", pa.int64()), ("b", pa.string())])
    )
    with LiveRead(database.server, [database.table()]) as read:
        found = read.arrow(database.table(), ["v"], keys)["v"].to_pylist()
        none = read.arrow(database.table(), keys=keys.slice(0, 0))
    assert sorted(found) == [1, 22, 43, 64, 85, 100, 102]
    assert none.num_rows == 0


def test_a_read_is_of_tables_it_has_locked(database: Database) -> None:
    database.run("CREATE TABLE t (a int)", "CREATE TABLE u (a int)")
    with LiveRead(database.server, [database.table()]) as read, pytest.raises(ConfigurationError, match="not among"):
        read.arrow(database.table("u"))


def test_row_security_does_not_hide_rows(database: Database) -> None:
    user = f"u_{database.schema}"
    database.run(
        f"CREATE ROLE {user} LOGIN PASSWORD '{PASSWORD}'", "CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)"
    )
    database.run(f"GRANT USAGE ON SCHEMA {database.schema} TO {user}", f"GRANT SELECT ON t TO {user}")
    database.run("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    table = PostgresTable(_server(database, user=user), database.schema, "t")
    try:
        with LiveRead(table.server, [table]) as read, pytest.raises(Exception, match="row-level security"):
            read.arrow(table)
    finally:
        database.run(f"DROP OWNED BY {user}", f"DROP ROLE {user}")


# --- reaching the server ------------------------------------------------------------------------------


def _server(database: Database, **changed: object) -> Server:
    values = {"host": database.server.host, "database": "postgres", "user": "deltaic", "port": database.server.port}
    source = {} if {"password", "passfile", "password_env"} & changed.keys() else {"password_env": PASSWORD_VARIABLE}
    return Server(**{**values, **source, **changed})  # type: ignore[arg-type]


def test_the_password_may_come_from_three_places(database: Database, tmp_path: Path) -> None:
    file = tmp_path / "pgpass"
    file.write_text(f"*:{database.server.port}:*:deltaic:{PASSWORD}\n")
    file.chmod(0o600)
    for server in (
        _server(database, passfile=str(file)),
        _server(database, password=lambda: PASSWORD),
        database.server,
    ):
        with connect(server) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        assert PASSWORD not in repr(server) + str(server) + repr(PostgresTable(server, "s", "t"))


def test_the_password_is_in_no_error(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError) as given:
        _server(database, password=PASSWORD)
    with pytest.raises(SourceError, match="refused user deltaic") as wrong:
        connect(_server(database, password=lambda: PASSWORD + "x"))
    with pytest.raises(SourceAway) as gone:
        connect(_server(database, port=1), Retry(2, 0.01))
    monkeypatch.delenv("NO_SUCH_VARIABLE", raising=False)
    with pytest.raises(ConfigurationError, match="NO_SUCH_VARIABLE is not set") as unset:
        connect(_server(database, password_env="NO_SUCH_VARIABLE"))
    for raised in (given, wrong, gone, unset):
        chain = [raised.value, raised.value.__cause__]
        assert not any(PASSWORD in f"{error!r} {error}" for error in chain)
    assert PASSWORD in os.environ[PASSWORD_VARIABLE]


def test_a_server_that_is_away_is_asked_again_and_named(database: Database) -> None:
    with pytest.raises(SourceAway, match=r"127\.0\.0\.1:1, .*\n.*Nothing is lost"):
        connect(_server(database, port=1), Retry(3, 0.01))
    assert list(Retry(5, 1, 3).pauses()) == [1, 2, 3, 3]


# --- snapshots and positions --------------------------------------------------------------------------


def test_what_a_snapshot_saw() -> None:
    seen = Visibility.parse("10:20:10,14")
    assert [xid for xid in range(8, 23) if seen.saw(xid)] == [8, 9, 11, 12, 13, 15, 16, 17, 18, 19]
    assert str(seen) == "10:20:10,14"
    xids = pa.chunked_array([[8, 10], [14, 19, 20]])
    assert seen.mask(xids).to_pylist() == [True, False, False, True, False]
    assert Visibility(5, 5).mask(xids).to_pylist() == [False] * 5
    assert seen.condition("x") == "(x < 20 AND x NOT IN (10, 14))"


def test_one_snapshot_covers_another() -> None:
    early = Visibility(10, 20, (10, 14))
    assert Visibility(14, 21, (14,)).covers(early)
    assert not Visibility(12, 21, (12, 14)).covers(early)
    assert not Visibility(10, 19, (10, 14)).covers(early)


def test_positions() -> None:
    assert lsn_number("16/B374D848") == 0x16B374D848
    assert lsn_text(0x16B374D848) == "16/B374D848"
    page, segment = 8192, 16 << 20
    assert end_of_records(5 * page + 24, page, segment) == 5 * page
    assert end_of_records(3 * segment + 40, page, segment) == 3 * segment
    assert end_of_records(5 * page + 40, page, segment) == 5 * page + 40


@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_ids_across_an_epoch(epoch: int) -> None:
    near = (epoch << 32) + 50
    assert whole_xid(49, near) == near - 1
    assert whole_xid(60, near) == near + 10
    assert whole_xid(2**32 - 1, near) == near - 51


def test_without_the_driver_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SetupError, match=r"pip install 'deltaic\[postgres\]'"):
        connect(Server("127.0.0.1", "postgres", "deltaic"))
