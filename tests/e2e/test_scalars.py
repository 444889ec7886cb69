"""What is computed without Spark, in the rounds of a recursion, is what Spark computes."""

import random
import re
from itertools import pairwise

import pyarrow as pa
import pytest

from deltaic import Warehouse
from deltaic.algebra.expr import Col, Expr
from deltaic.app.rounds.scalars import ARROW, INTEGERS, NotHere, scalar

TYPES = {"t": "tinyint", "s": "smallint", "i": "int", "j": "int", "b": "bigint", "d": "double", "e": "double",
         "x": "string", "y": "string", "p": "boolean", "q": "boolean", "day": "date"}  # fmt: skip
OTHERS = {"m": "decimal(10,2)", "stamp": "timestamp_ltz"}
VALUES: dict[str, list[object]] = {
    "tinyint": [None, 0, 1, -1, 127, -128],
    "smallint": [None, 0, 1, -300, 32767],
    "int": [None, 0, 1, -1, 7, 2147483647, -2147483648],
    "bigint": [None, 0, 1, -1, 2147483648, 2**63 - 1, -(2**63) + 1],
    "double": [None, 0.0, -0.0, 1.5, -2.25, 1e300, float("inf")],
    "string": [None, "", "a", "B", "ä", "a b", "z'", "\U0001f600"],
    "boolean": [None, True, False],
    "date": [None],
}
SHAPES = [
    "{n} + {n}", "{n} - {n}", "{n} * {n}", "-{n}", "({n} + 1) * {n}", "{n} + 5L", "{n} - 2147483648",
    "{n} = {n}", "{n} <> {n}", "{n} < {n}", "{n} <= {n}", "{n} > {n}", "{n} >= {n}", "{n} <=> {n}", "{n} == {n}",
    "{x} = {x}", "{x} < {x}", "{x} >= {x}", "{x} <=> {x}", "{x} <> 'a'", "{p} = {p}", "{p} <=> {p}", "day = day",
    "{n} BETWEEN {n} AND {n}", "{n} NOT BETWEEN 0 AND 5", "{n} IN (1, 2, {n})", "{n} NOT IN (1, -1)",
    "{x} IN ('a', '')",
    "{n} IS NULL", "{x} IS NOT NULL", "day IS NULL", "{p} AND {p}", "{p} OR {p}", "NOT {p}", "NOT ({n} < {n} OR {p})",
    "CAST({i} AS bigint)", "CAST({i} AS string)", "CAST({i} AS double)", "CAST({i} AS smallint)", "CAST(NULL AS int)",
    "{x} || {x}", "concat({x}, '/', {i})", "{x} || '->' || {i}", "'a' 'b'", "coalesce({n}, {n})",
    "coalesce({x}, 'none')",
    "least({i}, {i})", "greatest({i}, {i}, 3)", "CASE WHEN {p} THEN {n} WHEN {n} < 3 THEN {n} ELSE {n} END",
    "if({p}, {x}, 'no')", "5", "'text'", "TRUE", "-7", "{x} || ({i} + 1)",
    "NOT {n} = {n}", "NOT {n} IS NULL AND {p}", "{n} - {n} + {n}", "3000000000", "7Y", "{n} + CAST(0 AS double)",
]  # fmt: skip
FOREIGN = ["i / 2", "i % 2", "upper(x)", "x LIKE 'a%'", "CAST(x AS int)", "i = x", "x + 1", "1.5", "1e3", "'a\\nb'",
           "NULL", "abs(i)", "rand()", "x || p", "CASE i WHEN 1 THEN 2 ELSE 3 END", "if(i, 1, 2)",
           "d || 'x'", "x || i + 1", "i - j || x", "p = i < j", "i = j IS NULL", "p <=> i IN (1, 2)",
           "concat_ws('/', x, y)", "x || 'it''s'", "x <> ''''", "coalesce(m, m)", "m IS NULL",
           "CASE WHEN p THEN stamp ELSE stamp END", "stamp IS NOT NULL OR p", "m < m"]  # fmt: skip


def expression(text: str) -> Expr:
    """The text with its columns."""
    pieces = re.split(r"('[^']*'|\b[a-z]+\b)", text)
    return Expr(tuple(Col(piece) if piece in TYPES | OTHERS else piece for piece in pieces if piece))


def filled(shape: str, choice: random.Random) -> str:
    groups = {"n": "tsijbde", "i": "tsijb", "x": "xy", "p": "pq"}
    return re.sub(r"\{(.)\}", lambda found: choice.choice(groups[found[1]]), shape)


@pytest.mark.parametrize("text", FOREIGN)
def test_the_rest_is_left_to_spark(text: str) -> None:
    assert scalar(expression(text), TYPES | OTHERS) is None


def test_the_same_values_and_types(wh: Warehouse) -> None:
    choice = random.Random(20261116)
    texts = list(dict.fromkeys(filled(shape, choice) for shape in SHAPES for _ in range(12)))
    rows = [{name: choice.choice(VALUES[kind]) for name, kind in TYPES.items()} for _ in range(40)]
    listed = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    wh.spark.createDataFrame([tuple(row.values()) for row in rows], listed).createOrReplaceTempView("scalars_rows")
    columns = {name: pa.chunked_array([[row[name] for row in rows]], ARROW[kind]) for name, kind in TYPES.items()}
    computed: dict[str, list[object]] = {}
    beyond = 0
    for text in texts:
        found = scalar(expression(text), TYPES)
        assert found is not None, text
        assert found.columns == expression(text).columns
        schema = wh.spark.sql(f"SELECT {text} AS v FROM scalars_rows").schema
        assert schema[0].dataType.simpleString() == found.type, text
        try:
            value = found.of(columns)
        except NotHere:
            beyond += 1
            continue
        computed[text] = [value.as_py()] * len(rows) if isinstance(value, pa.Scalar) else value.to_pylist()
    assert len(computed) > beyond > 0, "some overflow, most do not"
    asked = ", ".join(f"{text} AS v{number}" for number, text in enumerate(computed))
    told = [tuple(row) for row in wh.spark.sql(f"SELECT {asked} FROM scalars_rows").collect()]
    for number, (text, values) in enumerate(computed.items()):
        for row, one, other in zip(rows, values, told, strict=True):
            assert repr(one) == repr(other[number]), f"{text} of {row}"  # also of NaN and the two zeros


def test_whole_numbers_know_their_bounds() -> None:
    kinds = list(INTEGERS)
    for narrow, wide in pairwise(kinds):
        most = pa.chunked_array([[2 ** INTEGERS[narrow] - 1]], pa.int64())
        one = Expr((Col("n"), " + 1" if narrow == "int" else " + 1Y" if narrow == "tinyint" else " + 1S"))
        grown = scalar(one, {"n": narrow})
        assert grown is not None
        assert grown.type == narrow
        with pytest.raises(NotHere):
            grown.of({"n": most})
        fits = scalar(one, {"n": wide})
        assert fits is not None
        assert fits.of({"n": most}).to_pylist() == [2 ** INTEGERS[narrow]]
