"""Made-up rows: of every type, with and without NULLs, and with what a query compares with."""

from random import Random

import duckdb

from deltaic.algebra.nodes import Field
from deltaic.sql.parse import parse_query
from deltaic.sql.samples import Named, sample

FIELDS = (Field("a", "int"), Field("b", "string"), Field("c d", "decimal(10,2)"), Field("e", "date"))


def named(sql: str) -> Named:
    return Named.of(*parse_query(sql))


QUERY = named("SELECT * FROM s WHERE b = 'paid' AND a < 77 AND a > 1234567")


def rows(*, nulls: bool, tame: bool = False) -> list[tuple[object, ...]]:
    sql = sample(FIELDS, 30, QUERY, Random(1), nulls=nulls, tame=tame)
    for spark, duck in (("string", "varchar"), ("`", '"'), (r"\'", "''")):
        sql = sql.replace(spark, duck)
    return duckdb.execute(sql.replace("FROM VALUES", "FROM (VALUES").replace(" AS v(", ") AS v(")).fetchall()


def test_rows() -> None:
    made = rows(nulls=True)
    assert len(made) == 30
    assert made[0] == made[-1], "two are equal"
    assert all(any(row[place] is None for row in made) for place in range(len(FIELDS)))
    plain = rows(nulls=False)
    assert not any(None in row for row in plain)
    assert {77} < {row[0] for row in plain} <= {1, 2, 3, 4, 5, 76, 77, 78, 1234566, 1234567, 1234568}
    assert "paid" in {row[1] for row in plain}
    assert {row[1] for row in rows(nulls=False, tame=True)} == {"1", "2", "3"}


def test_a_table_without_columns_that_are_used() -> None:
    assert sample((), 2, QUERY, Random(1), nulls=True, tame=False) == "SELECT 1 FROM VALUES (1), (1) AS v(c0)"


def test_a_column_without_nulls_has_none() -> None:
    told = (Field("a", "int", False), Field("b", "int"))
    made = sample(told, 9, QUERY, Random(1), nulls=True, tame=False)
    assert "(NULL," not in made
    assert ", NULL)" in made


def test_types_that_are_nested() -> None:
    fields = (Field("m", "map<string, int>"), Field("v", "variant"), Field("x", "struct<`it's`: int>"))
    sql = sample(fields, 2, QUERY, Random(1), nulls=False, tame=False)
    assert r"'struct<`it\'s`: int>'" in sql
    assert "parse_json(" in sql


def test_what_fits_a_type() -> None:
    small = sample((Field("t", "tinyint"), Field("d", "decimal(4,2)")), 30, QUERY, Random(1), nulls=False, tame=False)
    assert "77" in small
    assert "1234567" not in small


def test_keys_of_a_map() -> None:
    query = named("SELECT m.A, m.a, m[r'x'] FROM s")
    made = sample((Field("m", "map<string, int>"),), 9, query, Random(1), nulls=False, tame=False)
    assert '{"1": 1, "A": 2, "a": 3, "x": 4}' in made


def test_every_other_row_is_one_that_the_query_is_after() -> None:
    query = named(
        "SELECT * FROM s WHERE year(e) = 2031 AND e < DATE '2031-05-09' AND b LIKE 'PRO%' AND a IN (-7, 8)"
        " AND `c d` BETWEEN 0.05 AND 0.07"
    )
    sql = sample(FIELDS, 20, query, Random(1), nulls=False, tame=False)
    wanted = sql.partition("VALUES ")[2].split("), (")[:-1:2]
    days = {"'2031-01-01'", "'2031-05-09'", "'2031-05-08'", "'2031-05-10'"}
    for row in wanted:
        a, b, c, e = row.strip("()").split(", ")
        assert a in ("-7", "8")
        assert b == "'PRO'"
        assert c in ("0.05", "0.07")
        assert e in days


def test_days_that_are_none() -> None:
    query = named("SELECT * FROM s WHERE e > '9999-12-31' OR e > '2024-02-31' OR e > 'today'")
    assert set(query.compared["e"]) == {"9999-12-31", "2024-02-31", "today"}
    made = sample(FIELDS[3:], 9, query, Random(1), nulls=False, tame=False)
    assert "'9999-12-31'" in made
    assert "2024-02-31" not in made
