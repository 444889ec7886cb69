"""Made-up rows: a few values of every type, few enough that tables meet in them, and those that a query names."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from sqlglot.tokenizer_core import TokenType

from deltaic.algebra.nodes import Field
from deltaic.algebra.quoting import quote, text_literal
from deltaic.sql.parse import Text

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_MOMENTS = ("date", "timestamp", "timestamp_ntz")


def sample(fields: Sequence[Field], rows: int, text: Text, random: Random, *, nulls: bool, tame: bool) -> str:
    """A query that gives so many rows of these columns, two of them equal; with `nulls` there is one in each column.
    `tame`: texts are numbers, too."""
    pools = [_values(field.type, text, tame) for field in fields]
    made = [[random.choice(pool) for pool in pools] for _ in range(rows - 1)]
    for place in range(len(fields)) if nulls else ():
        random.choice(made)[place] = "NULL"
    listed = [", ".join(row or ["1"]) for row in (*made, made[0])]
    columns = ", ".join(f"CAST(c{n} AS {field.type}) AS {quote(field.name)}" for n, field in enumerate(fields))
    names = ", ".join(f"c{n}" for n in range(max(1, len(fields))))
    return f"SELECT {columns or '1'} FROM VALUES {', '.join(f'({row})' for row in listed)} AS v({names})"


def _values(kind: str, text: Text, tame: bool) -> list[str]:
    """Literals that all have one type, and can be cast to this one."""
    base = kind.partition("(")[0].partition("<")[0]
    if base in _NUMBERS:
        return ["1", "2", "3", "4", "5", *_named(text, TokenType.NUMBER)]
    if base in _MOMENTS:
        return [f"'2024-0{month}-0{day}'" for month in (1, 2) for day in (1, 2, 3)]
    match base:
        case "string" if tame:
            return ["'1'", "'2'", "'3'"]
        case "string":
            return ["'1'", "'2'", "'a'", "'b'", *_named(text, TokenType.STRING)]
        case "boolean":
            return ["TRUE", "FALSE"]
        case "binary":
            return ["X'61'", "X'62'"]
        case "array":
            return [_of_json(one, kind) for one in ("[1, 2]", "[2]", "[]")]
        case "map" | "struct":
            return [_of_json(one, kind) for one in ('{"1": 1}', "{}")]
        case "variant":
            return ["parse_json('1')", "parse_json('{\"a\": 2}')"]
    return ["NULL"]


def _of_json(value: str, kind: str) -> str:
    return f"from_json({text_literal(value)}, {text_literal(kind)})"


def _named(text: Text, kind: TokenType) -> list[str]:
    """What the query itself compares with: the whole numbers of some digits, and the texts, that stand in it."""
    found = dict.fromkeys(token.text for token in text.tokens if token.token_type is kind)
    if kind is TokenType.NUMBER:
        return [number for number in found if number.isdecimal() and len(number) < 3][:5]
    return [text_literal(one) for one in found if len(one) <= 40][:5]
