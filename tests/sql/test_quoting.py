"""Names and texts made to break out of their quotes come through every text that Deltaic writes as they were."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deltaic.algebra.quoting import quote, text_literal
from deltaic.app.values.definition import Definition
from deltaic.errors import ParseError
from deltaic.plan.choose import choose
from deltaic.plan.maintain import Maintenance
from deltaic.plan.refreshing import full_query
from deltaic.plan.steps import SourceRead, StoredView
from deltaic.sql.lower import lower
from deltaic.sql.parse import Text, parse_query
from deltaic.sql.parse_statement import parse_statement
from deltaic.sql.reading import check_reading
from deltaic.sql.statements import CreateView
from tests.sql.whole_numbers import WholeNumbers

NASTY = "'\"`\\;-/*+(){}#$%\n\r\0\t\x0b\x0c\x1c\x85\u2028\u2029\ud7ff é, AS"
texts = st.text(st.sampled_from(NASTY) | st.characters(exclude_categories=["Cs"]), max_size=30)
names = texts.filter(bool)
HOSTILE = "x'); DROP TABLE t; --` /* \\"


@given(names, texts, names, texts)
@example(HOSTILE, HOSTILE, HOSTILE, HOSTILE)
@example("``", "\\'", "'", "''")
def test_a_statement_is_read_as_it_was_written(name: str, comment: str, key: str, value: str) -> None:
    told = f"TBLPROPERTIES ({text_literal(key)} = {text_literal(value)})"
    columns = f"({quote(key)} COMMENT {text_literal(comment)}, b)"
    sql = f"CREATE MATERIALIZED VIEW s.{quote(name)} {columns} COMMENT {text_literal(comment)} {told} AS SELECT 1, 2"
    created = parse_statement(sql)
    assert isinstance(created, CreateView)
    assert created.name == ("s", name)
    assert created.comment == comment
    assert created.properties == {key: value}
    assert created.columns == ((key, comment), ("b", None))
    assert created.query.strip() == "SELECT 1, 2"


@given(names, texts, texts)
@example(HOSTILE, HOSTILE, HOSTILE)
def test_a_definition_is_read_as_it_was_written(name: str, query: str, comment: str) -> None:
    """Through JSON, a literal of SQL, and back: what stands between the quotes is what was to stand there."""
    definition = Definition("default", name, query, columns=(name,), comment=comment, references={})
    (token,) = Text.of(text_literal(definition.to_json())).tokens
    read = Definition.from_json(token.text)
    assert (read.name, read.query, read.columns, read.comment) == (name, query, (name,), comment)


@given(texts)
@example("two\r\nlines \0 and \u2028 more")
@example("\0n\0\0n")
@example("*")
def test_a_literal_is_rendered_as_it_was_written(text: str) -> None:
    """However deep it stands: no line of it is moved, and no character of it stands for another."""
    literal = text_literal(text)
    query = (
        f"SELECT x, max(id) AS id FROM (SELECT id, {literal} AS x FROM t0 JOIN t1 USING (id)) WHERE x <> {literal}"
        f" GROUP BY x"
    )
    lowered = lower(*parse_query(query), WholeNumbers())
    way = choose(lowered.node)
    assert isinstance(way, Maintenance)
    reads = {name: SourceRead(name, name, 1, 2) for name in ("default.t0", "default.t1")}
    view = StoredView("v", 7, dict(zip(way.root.columns, (*lowered.names, *way.hidden), strict=True)))
    assert full_query(way, reads, view).count(literal) == 2


@pytest.mark.parametrize(
    "query",
    [
        "SELECT r'\\' AS a, 'x' AS b",
        "SELECT 'it''s', 'a\\'b', \"x\"\"y\", \"q\\\"r\"",
        "SELECT X'1F', `a``b`, R\"\\\" AS r",
        "SELECT /* a /* b */ c */ 1 -- and ' this",
        "SELECT /*+ BROADCAST(t) */ 1, 'a' 'b', '\\\\' -- end\r\n, 2",
    ],
)
def test_texts_that_spark_reads_in_the_same_way(query: str) -> None:
    check_reading(query, Text.of(query).tokens)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1 -- a comment that goes on \\\n , 2",
        "SELECT 1 {# no comment to Spark #}",
        "SELECT 1 {# ' #} , 2 {# ' #}",
    ],
)
def test_texts_that_spark_reads_in_another_way_are_refused(query: str) -> None:
    with pytest.raises(ParseError, match="another way"):
        parse_query(query)
    with pytest.raises(ParseError, match="another way"):
        parse_statement(f"CREATE MATERIALIZED VIEW v AS {query}")


@given(st.text(st.sampled_from("'\"`\\-/*+#{}rRx\n\r $"), max_size=25))
def test_what_is_not_refused_has_the_same_quotations_without_its_comments(text: str) -> None:
    sql = f"SELECT {text}"
    try:
        read = Text.of(sql)
        check_reading(sql, read.tokens)
    except ParseError:
        return
    check_reading(read.sql, read.tokens)
    assert re.sub(r"\s", "", read.sql) == "".join(re.sub(r"\s", "", sql[t.start : t.end + 1]) for t in read.tokens)


def test_half_a_character_is_refused() -> None:
    with pytest.raises(ParseError, match="half of a character"):
        parse_statement("SELECT '\ud800'")


@pytest.mark.parametrize("number", ["9" * 5_000, "1.5", "-1"])
def test_numbers_that_are_none(number: str) -> None:
    with pytest.raises(ParseError):
        parse_statement(f"REFRESH MATERIALIZED VIEW v VERSION AS OF {number}")
