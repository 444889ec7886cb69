"""Every type that Delta stores, in every place of a query where Spark takes it: kept exactly, or computed again with a
reason. What Spark refuses, Deltaic refuses in one line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, StringType

from deltaic import Report, Warehouse
from deltaic.errors import DeltaicError, TypeNotStorable


@dataclass(frozen=True)
class Kind:
    """A type, and values of it. `compared`: whether its values can be told from one another."""

    type: str
    values: tuple[str, ...]
    numeric: bool = False
    compared: bool = True

    @property
    def uses(self) -> dict[str, str]:
        return COMPARED if self.compared else OTHERS


def _texts(*values: str) -> tuple[str, ...]:
    return tuple(f"'{value}'" for value in values)


_FLOATS = tuple(f"CAST('{number}' AS DOUBLE)" for number in ("NaN", "-0.0", "0.0", "Infinity", "-Infinity", "1.5"))
_CLOCKS = (
    "0001-01-01 00:00:00",
    "9999-12-31 23:59:59.999999",
    "1677-01-01 00:00:00.000001",
    "1969-12-31 23:59:59.999999",
    "2024-03-31 02:30:00",
    "2024-10-27 02:30:00",
)

KINDS = {
    "boolean": Kind("BOOLEAN", ("true", "false")),
    "byte": Kind("TINYINT", ("-128", "127", "0", "5"), numeric=True),
    "short": Kind("SMALLINT", ("-32768", "32767", "0"), numeric=True),
    "int": Kind("INT", ("-2147483648", "2147483647", "0"), numeric=True),
    "long": Kind("BIGINT", ("-4611686018427387904", "4611686018427387903", "0", "1"), numeric=True),
    "float": Kind("FLOAT", (*_FLOATS, "CAST('3.4028235E38' AS DOUBLE)"), numeric=True),
    "double": Kind("DOUBLE", (*_FLOATS, "CAST('4.9E-324' AS DOUBLE)"), numeric=True),
    "decimal(10, 2)": Kind("DECIMAL(10, 2)", ("99999999.99", "-0.01", "0"), numeric=True),
    "decimal(38, 0)": Kind("DECIMAL(38, 0)", (f"{'1' * 33}BD", f"-{'2' * 33}BD", "0", f"{'1' * 32}2BD"), numeric=True),
    "decimal(38, 18)": Kind(
        "DECIMAL(38, 18)", ("12345678901234.012345678901234567BD", "-0.000000000000000001BD", "0"), numeric=True
    ),
    "string": Kind("STRING", (*_texts("", "a", "a ", "A", "ä", "a\u0308", "\U0001f40d"), r"'a\u0000b'")),
    "string, not UTF-8": Kind("STRING", ("CAST(X'FF61' AS STRING)", "CAST(X'FE' AS STRING)", "'a'", "''")),
    "char": Kind("CHAR(5)", _texts("a", "b", "abcde", "")),
    "varchar": Kind("VARCHAR(5)", _texts("a", "a ", "abcde", "")),
    "binary": Kind("BINARY", ("X''", "X'00'", "X'FF61'", "X'0000'")),
    "date": Kind("DATE", tuple(f"DATE'{day}'" for day in ("0001-01-01", "9999-12-31", "1582-10-15", "1970-01-01"))),
    "timestamp": Kind("TIMESTAMP", tuple(f"TIMESTAMP'{clock}'" for clock in _CLOCKS)),
    "timestamp_ntz": Kind("TIMESTAMP_NTZ", tuple(f"TIMESTAMP_NTZ'{clock}'" for clock in _CLOCKS)),
    "array": Kind("ARRAY<INT>", ("array()", "array(1, NULL)", "array(NULL)", "array(1, 2)")),
    "array of doubles": Kind(
        "ARRAY<DOUBLE>", ("array(CAST('NaN' AS DOUBLE))", "array(-0D)", "array(0D)", "array(1D, NULL)")
    ),
    "struct": Kind(
        "STRUCT<a: INT, b: STRING>",
        ("named_struct('a', 1, 'b', 'x')", "named_struct('a', NULL, 'b', 'x')", "named_struct('a', NULL, 'b', NULL)"),
    ),
    "nested": Kind(
        "STRUCT<a: ARRAY<STRUCT<b: DECIMAL(38, 0), c: TIMESTAMP>>>",
        (
            f"named_struct('a', array(named_struct('b', {'9' * 38}BD, 'c', TIMESTAMP'0001-01-01 00:00:00')))",
            "named_struct('a', array(named_struct('b', NULL, 'c', NULL), NULL))",
            "named_struct('a', array())",
        ),
    ),
    "map": Kind("MAP<STRING, INT>", ("map('a', 1)", "map('a', NULL, 'b', 2)", "map()"), compared=False),
    "array of maps": Kind("ARRAY<MAP<INT, STRING>>", ("array(map(1, 'x'))", "array()", "array(NULL)"), compared=False),
    "variant": Kind(
        "VARIANT",
        tuple(f"parse_json('{text}')" for text in ('{"a": 1}', "1", "null", '[1, "x"]', '"x"')),
        compared=False,
    ),
    "struct of a variant": Kind(
        "STRUCT<a: VARIANT>", ("named_struct('a', parse_json('1'))", "named_struct('a', NULL)"), compared=False
    ),
}

COMPARED = {
    "projected": "SELECT k, c FROM t WHERE k > 0",
    "grouped": "SELECT c, count(*) AS n, sum(k) AS s FROM t GROUP BY c",
    "aggregated": "SELECT k, min(c) AS lo, max(c) AS hi, count(c) AS n, count(DISTINCT c) AS d FROM t GROUP BY k",
    "added": "SELECT k, sum(c) AS s, avg(c) AS a FROM t GROUP BY k",
    "joined": "SELECT t.k, t.c, u.n FROM t LEFT JOIN u ON t.c <=> u.c",
    "except": "SELECT c FROM t EXCEPT ALL SELECT c FROM u",
    "window": "SELECT k, c, count(*) OVER (PARTITION BY c) AS n FROM t",
}
OTHERS = {
    "projected": COMPARED["projected"],
    "grouped": COMPARED["grouped"],
    "grouped, not shown": "SELECT count(*) AS n, sum(k) AS s FROM t GROUP BY c",
    "counted": "SELECT k, count(c) AS n FROM t GROUP BY k",
    "counted once": "SELECT k, count(DISTINCT c) AS n FROM t GROUP BY k",
    "extreme": "SELECT k, min(c) AS lo FROM t GROUP BY k",
    "distinct": "SELECT DISTINCT c FROM t",
    "joined": COMPARED["joined"],
    "inside": "SELECT u.n, t.c IS NULL AS e FROM u LEFT JOIN t ON u.n = t.k",
    "beside": "SELECT u.n, t.c FROM u LEFT JOIN t ON u.n = t.k",
    "except": COMPARED["except"],
    "window": COMPARED["window"],
    "in window": "SELECT k, c, count(*) OVER (PARTITION BY k) AS n FROM t",
}
"""For types whose values cannot be compared: most of these Spark refuses."""
INSIDE = ("counted", "inside", "counted once")
"""Where such values are not compared by what keeps the view."""


def rows_of(kind: Kind) -> list[str]:
    """Each value twice and NULL, under three keys."""
    values = [*kind.values, "NULL", *kind.values]
    return [f"({number % 3 + 1}, {value})" for number, value in enumerate(values)]


def changes_of(kind: Kind) -> list[list[str]]:
    """Intervals of inserts, updates and deletes, of both tables."""
    first, last, some = kind.values[0], kind.values[-1], ", ".join(f"(4, {value})" for value in kind.values)
    return [
        [
            f"INSERT INTO t VALUES (1, {first}), (1, {first}), (3, NULL), (5, {last})",
            f"UPDATE t SET c = {last} WHERE k = 3",
            "DELETE FROM t WHERE k = 2",
        ],
        [f"INSERT INTO t VALUES {some}", "DELETE FROM t WHERE k = 1", f"UPDATE u SET n = 3, c = {last} WHERE n = 1"],
    ]


def set_up(wh: Warehouse, kind: Kind, feed: bool) -> None:
    """One of the two tables has a change feed."""
    fed, bare = (f"TBLPROPERTIES (delta.enableChangeDataFeed = {word})" for word in ("true", "false"))
    wh.sql(f"CREATE TABLE t (k INT, c {kind.type}) {fed if feed else bare}")
    wh.sql(f"CREATE TABLE u (c {kind.type}, n INT) {bare if feed else fed}")
    wh.sql(f"INSERT INTO t VALUES {', '.join(rows_of(kind))}")
    wh.sql(f"INSERT INTO u VALUES ({kind.values[0]}, 1), ({kind.values[1]}, 2), (NULL, 3), ({kind.values[0]}, 9)")


def expected(kind: Kind, use: str) -> tuple[str, ...]:
    """Modes, or reason codes."""
    if use == "added" and kind.type == "BIGINT":
        return ("incremental", "noop", "OVERFLOW")
    if kind.compared or use in INSIDE:
        return ("incremental", "noop")
    return ("UNGROUPABLE_TYPE",)


def created(wh: Warehouse, kind: Kind) -> dict[str, str]:
    """The views that Spark allows; of the others, that they are refused."""
    found = {}
    for number, use in enumerate(kind.uses):
        query, name = kind.uses[use], f"v{number}"
        if (use == "added" and not kind.numeric) or (use == "counted once" and "VARIANT" in kind.type):
            continue  # the latter Spark takes, and fails to run
        statement = f"CREATE MATERIALIZED VIEW {name} REFRESH POLICY INCREMENTAL AS {query}"
        try:
            wh.spark.sql(query)
        except PySparkException:
            with pytest.raises(DeltaicError) as refused:
                wh.sql(statement)
            assert "\n" not in refused.value.what, use
            continue
        wh.sql(statement)
        found[name] = use
    return found


def refreshed(wh: Warehouse, kind: Kind, views: Mapping[str, str]) -> list[str]:
    problems = []
    for name, use in views.items():
        try:
            report = wh.refresh(name)
        except Exception as error:
            problems.append(f"{use} failed: {str(error)[:500]}")
            continue
        assert isinstance(report, Report)
        told = report.reasons[0].split(":")[0] if report.mode == "full" else report.mode
        if told not in expected(kind, use):
            problems.append(f"{use} is {told}: {report.reasons}")
    return problems + compared(wh, {name: kind.uses[use] for name, use in views.items()})


_ZERO = re.compile(r"(?<![\w.])-0\.0(?!\d)")


def compared(wh: Warehouse, queries: Mapping[str, str]) -> list[str]:
    """Exactly, value by value: JSON would round decimals, and Python's clocks begin in year 1 of their own zone. The
    two zeros of floats are one value, as in Spark's GROUP BY."""
    parts = []
    for name, anew in queries.items():
        for side, query in enumerate((anew, f"SELECT * FROM {name}")):
            fields = wh.sql(query).schema.fields
            cells = ", ".join(shown(f"`{field.name}`", field.dataType) for field in fields)
            parts.append(f"SELECT '{name}' AS view, {side} AS side, array({cells}) AS row FROM ({query})")
    found: dict[tuple[str, int], Counter[tuple[str | None, ...]]] = {}
    for name, side, row in wh.sql(" UNION ALL ".join(parts)).collect():
        seen = tuple(cell and _ZERO.sub("0.0", cell) for cell in row)
        found.setdefault((name, side), Counter())[seen] += 1
    pairs = {name: (found.get((name, 0), Counter()), found.get((name, 1), Counter())) for name in queries}
    return [
        f"{name} is not its query: {queries[name]}; missing {query - view}, surplus {view - query}"
        for name, (query, view) in pairs.items()
        if query != view
    ]


def shown(column: str, kind: DataType) -> str:
    if isinstance(kind, StringType) or kind.typeName() == "binary":
        return f"hex({column})"
    if "variant" in kind.simpleString():
        return f"to_json(struct({column}))"
    return f"CAST({column} AS STRING)"


@pytest.mark.long
@pytest.mark.parametrize("name", KINDS)
def test_a_type_everywhere(wh: Warehouse, name: str) -> None:
    kind = KINDS[name]
    set_up(wh, kind, feed=list(KINDS).index(name) % 2 == 0)
    views = created(wh, kind)
    problems: list[str] = []
    for number, interval in enumerate(changes_of(kind)):
        for statement in interval:
            wh.sql(statement)
        problems += [f"{number}: {problem}" for problem in refreshed(wh, kind, views)]
    assert not problems, "\n".join(problems)


ALL = [kind for name, kind in KINDS.items() if kind.compared and name != "string, not UTF-8"]


def all_uses() -> dict[str, str]:
    """Views over a table that has a column of every type that can be compared."""
    names = [f"c{number}" for number in range(len(ALL))]
    columns = ", ".join(names)
    same = " AND ".join(f"t.{name} <=> u.{name}" for name in names)
    extremes = ", ".join(f"min({c}) AS lo{c}, max({c}) AS hi{c}, count(DISTINCT {c}) AS n{c}" for c in names)
    return {
        "projected": f"SELECT k, {columns} FROM t WHERE k > 0",
        "grouped": f"SELECT {columns}, count(*) AS n, sum(k) AS s FROM t GROUP BY {columns}",
        "extreme": f"SELECT k, {extremes} FROM t GROUP BY k",
        "once": f"SELECT DISTINCT {columns} FROM t",
        "outer_join": f"SELECT t.*, u.k AS n FROM t LEFT JOIN u ON {same}",
        "without": f"SELECT {columns} FROM t EXCEPT ALL SELECT {columns} FROM u",
        "windowed": f"SELECT k, {columns}, count(*) OVER (PARTITION BY {columns}) AS n FROM t",
    }


def row_of_all(key: int, turn: int | None) -> str:
    return f"({', '.join([str(key), *('NULL' if turn is None else k.values[turn % len(k.values)] for k in ALL)])})"


@pytest.mark.long
def test_all_types_by_spark(wh: Warehouse) -> None:
    wh.engine.use_rs = False
    columns = ", ".join(f"c{number} {kind.type}" for number, kind in enumerate(ALL))
    turns = [None, *range(6), 0, 1]
    some = [row_of_all(number % 3 + 1, turn) for number, turn in enumerate(turns)]
    wh.script(f"CREATE TABLE t (k INT, {columns}); CREATE TABLE u (k INT, {columns})")
    wh.sql(f"INSERT INTO t VALUES {', '.join(some)}")
    wh.sql(f"INSERT INTO u VALUES {', '.join(some[:4])}")
    queries = all_uses()
    for name, query in queries.items():
        wh.sql(f"CREATE MATERIALIZED VIEW {name} REFRESH POLICY INCREMENTAL AS {query}")
    for interval in (
        [f"INSERT INTO t VALUES {some[1]}, {row_of_all(7, 7)}", "DELETE FROM t WHERE k = 2"],
        ["UPDATE t SET c3 = 5, c15 = DATE'2000-01-01' WHERE k = 1", f"INSERT INTO u VALUES {row_of_all(7, 7)}"],
    ):
        for statement in interval:
            wh.sql(statement)
        for name in queries:
            report = wh.refresh(name)
            assert isinstance(report, Report)
            assert report.mode in ("incremental", "noop"), (name, report.reasons)
        assert not compared(wh, queries)


NOT_STORED = ("NULL", "INTERVAL '1' DAY", "INTERVAL '1' YEAR", "TIME'12:00:00'", "'a' COLLATE UNICODE")


def test_what_delta_cannot_store(wh: Warehouse) -> None:
    wh.sql("CREATE TABLE t (k INT)")
    for value in NOT_STORED:
        with pytest.raises(TypeNotStorable, match=r"column c is of type .*, which Delta cannot store"):
            wh.sql(f"CREATE MATERIALIZED VIEW v AS SELECT k, {value} AS c FROM t")
