"""What may give another answer though no row changed, told by the text of a query."""

import pytest

from deltaic.sql.moving import foreign, moves, undecided
from deltaic.sql.parse import Text, parse_query

BUILTINS = {
    "sum",
    "count",
    "explode",
    "upper",
    "cast",
    "coalesce",
    "date_add",
    "array",
    "date",
    "now",
    "rand",
    "hour",
    "concat",
}


def is_moving(sql: str, **columns: str) -> bool:
    return moves(parse_query(sql)[1], {"user": "string"} | columns, BUILTINS.__contains__)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a, now() FROM s LIMIT 3",
        "SELECT a, current_date FROM s LIMIT 3",
        "SELECT a FROM s WHERE d > DATE 'yesterday' LIMIT 3",
        "SELECT a FROM s WHERE d > cast('today' AS date) LIMIT 3",
        "SELECT a FROM s WHERE d > ' Now' LIMIT 3",
        "SELECT a FROM s WHERE d > cast('today UTC' AS timestamp) LIMIT 3",
        "SELECT a FROM s WHERE d > timestamp'tomorrow Europe/Berlin' LIMIT 3",
        "SELECT a FROM s WHERE d > cast('to' 'day' AS date) LIMIT 3",
        "SELECT r'now'::timestamp FROM s",
        "SELECT _metadata.file_name FROM s",
        "SELECT f(a) FROM s",
        "SELECT default.upper(a) FROM s",
        "SELECT a FROM s, LATERAL f(a) AS t(x)",
        "SELECT (SELECT max(x) FROM t WHERE rand() > x) FROM s",
        "SELECT `f`(a) FROM s",
        *(f"SELECT {name}(a) FROM s" for name in ("json", "zone", "number", "text", "list", "object", "nulls", "both")),
        "SELECT trim(BOTH f(a) FROM a) FROM s",
        "SELECT overlay(a PLACING f(a) FROM 1) FROM s AS f(a)",
        "SELECT `current_date`, a FROM s",
        "SELECT a FROM s WHERE d > timestamp'T10:00' LIMIT 3",
        "SELECT hour('1:30:15.5 UTC') FROM s",
    ],
)
def test_what_moves(sql: str) -> None:
    assert is_moving(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT user, 'now()' FROM s LIMIT 3",
        "SELECT a AS `current_date` FROM s",
        "WITH c (a, b) AS (SELECT 1, 2), d(z) AS (SELECT a FROM c) SELECT * FROM d AS e(y), (SELECT 1) f(x)",
        "SELECT cast(a AS DECIMAL(10, 2)), count(*) FILTER (WHERE a IN (1, 2)) FROM s q(a) JOIN t USING (a)",
        "SELECT sum(a) OVER (PARTITION BY (b)) FROM s LATERAL VIEW explode(array(1)) e AS z",
        "SELECT 'today is a day', 'to' + 'day', 'todays', upper('nowhere') FROM range(3)",
        "SELECT a FROM s TABLESAMPLE (5 ROWS) REPEATABLE (1) AS q(a, b)",
        "SELECT * FROM s UNPIVOT INCLUDE NULLS (x FOR y IN (a, b)) AS u",
        "SELECT trim(BOTH (a) FROM a), overlay(a PLACING ('x') FROM (1) FOR (2)) FROM s VERSION AS OF (1)",
        "SELECT a DIV (b), CAST(a AS VARCHAR(3)), a AT TIME ZONE ('UTC') FROM s LATERAL VIEW explode(array(1)) AS z",
        "SELECT a FROM s GROUP BY GROUPING SETS ((a), ()), CUBE (a) WINDOW w AS (PARTITION BY (a))",
        "SELECT * FROM VALUES (1), (2) AS v(x) WHERE NOT (x = 1) AND EXISTS (SELECT 1)",
    ],
)
def test_what_does_not(sql: str) -> None:
    assert not is_moving(sql)


def test_a_time_of_the_day_is_todays_only_as_a_timestamp() -> None:
    sql = "SELECT a FROM s WHERE a > '10:00'"
    assert not is_moving(sql, a="string")
    assert is_moving(sql, a="timestamp_ntz")
    assert not is_moving("SELECT TIME '10:00', CAST(a AS TIMESTAMP) FROM s")
    for harmless in (
        "slot >= '09:00'", "s.slot NOT BETWEEN '09:00' AND '17:00'", "slot IN ('x', '10:00')", "d = slot || ' 10:00'",
        "d > concat(slot, ' 10:00:00')",
    ):  # fmt: skip
        assert not is_moving(f"SELECT a FROM s WHERE {harmless}", slot="string", d="timestamp_ltz"), harmless
    for todays in ("d >= '09:00'", "d BETWEEN '09:00' AND '10:00'", "slot = 'a' AND '10:00' < d",
                   "CAST(coalesce(slot, '10:00') AS TIMESTAMP) = d", "slot::timestamp > '10:00'"):  # fmt: skip
        assert is_moving(f"SELECT a FROM s WHERE {todays}", slot="string", d="timestamp_ltz"), todays


def test_what_it_is_and_where() -> None:
    text = Text.of("SELECT a, now(), f(b) FROM s")
    whole = (0, len(text.sql))
    assert undecided(text, whole, lambda _: None, ()) == ("now() is not decided by the row", 10)
    found = foreign(text, whole, BUILTINS.__contains__)
    assert found is not None
    assert found[1] == 17
