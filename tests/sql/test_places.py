"""Where a table is, and where an error: what of a statement Deltaic must understand to know it."""

import pytest

from deltaic.algebra.types import is_exact_key, is_groupable, is_storable
from deltaic.errors import ParseError, Position
from deltaic.sql.parse import Text
from deltaic.sql.parse_statement import parse_statement
from deltaic.sql.statements import CreateTable, DropTable, DropView, MoveTable, RenameTable


def test_a_table_that_moves() -> None:
    text = "ALTER TABLE a.s SET LOCATION '/x y'"
    assert parse_statement(text) == MoveTable(("a", "s"), "/x y", text)
    with pytest.raises(ParseError, match="a text in quotes is expected"):
        parse_statement("ALTER TABLE s SET LOCATION 7")


def test_names_in_a_text() -> None:
    text = "DROP TABLE IF EXISTS IDENTIFIER('a.`t u`')"
    assert parse_statement(text) == DropTable(("a", "t u"), text, "TABLE")
    text = "ALTER TABLE IDENTIFIER('t') RENAME TO u"
    assert parse_statement(text) == RenameTable(("t",), text)
    assert parse_statement("DROP MATERIALIZED VIEW identifier('v')") == DropView(("v",), False)
    for text in ("CREATE TABLE identifier (a INT, b STRING COMMENT 'x')", "CREATE TABLE `identifier` (a INT)"):
        made = parse_statement(text)
        assert isinstance(made, CreateTable)
        assert made.name == ("identifier",), "a name like any other, with columns after it"
    for inside in ("x", ":x", "'a' || 'b'", "", "'a b'", "''"):
        with pytest.raises(ParseError):
            parse_statement(f"DROP TABLE IDENTIFIER({inside})")


@pytest.mark.parametrize("tail", ["", " VERSION AS OF 1 TBLPROPERTIES (a = 'b')"])
def test_a_clone_s_place_stands_at_its_end(tail: str) -> None:
    text = f"CREATE TABLE c SHALLOW CLONE s{tail}"
    assert parse_statement(text) == CreateTable(("c",), text, "", False)
    found = parse_statement(f"{text} LOCATION '/x'")
    assert isinstance(found, CreateTable)
    assert found.has_location


def test_fields_may_be_called_like_types() -> None:
    odd = "struct<`variant`: int, `map<``float`: array<int>, `void`: string>"
    assert is_groupable(odd)
    assert is_exact_key(odd)
    assert is_storable(odd)
    assert not is_groupable("struct<`a`: variant>")
    assert not is_exact_key("array<float>")


@pytest.mark.parametrize(
    ("sql", "line", "column"),
    [
        ("SELECT 'x", 1, 8),
        ("SELECT a,\n `b", 2, 2),
        ("SELECT 1 /* 'x'", 1, 10),
        ("SELECT 'it''s' -- it's\n, \"q", 2, 3),
        ("SELECT r'a\\' ' FROM t", 1, 14),
    ],
)
def test_where_a_quotation_begins_that_does_not_end(sql: str, line: int, column: int) -> None:
    with pytest.raises(ParseError, match="is not closed") as refused:
        Text.of(sql)
    assert refused.value.at == Position(line, column)
