"""Made-up rows: a few values of every type, few enough that tables meet in them, and those that a query names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

from sqlglot.tokenizer_core import TokenType

from deltaic.algebra.nodes import Field
from deltaic.algebra.quoting import quote, text_literal
from deltaic.sql.parse import TEXTS, Text

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_LARGEST = {"tinyint": 100, "smallint": 30_000}
_MOMENTS = ("date", "timestamp_ltz", "timestamp_ntz")


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
        return ["1", "2", "3", "4", "5", *_numbers(text, kind)]
    if base in _MOMENTS:
        return [f"'2024-0{month}-0{day}'" for month in (1, 2) for day in (1, 2, 3)]
    match base:
        case "string" if tame:
            return ["'1'", "'2'", "'3'"]
        case "string":
            return ["'1'", "'2'", "'a'", "'b'", *map(text_literal, _texts(text))]
        case "boolean":
            return ["TRUE", "FALSE"]
        case "binary":
            return ["X'61'", "X'62'"]
        case "array":
            return [_of_json(one, kind) for one in ("[1, 2]", "[2]", "[]")]
        case "map":
            keys = ["1", *_after_dots(text), *_texts(text)]
            listed = [json.dumps({key: n + more for n, key in enumerate(keys)}) for more in (1, 2)]
            return [_of_json(one, kind) for one in (*listed, "{}")]
        case "struct":
            return [_of_json(one, kind) for one in ('{"1": 1}', "{}")]
        case "variant":
            return ["parse_json('1')", "parse_json('{\"a\": 2}')"]
    return ["NULL"]


def _of_json(value: str, kind: str) -> str:
    return f"from_json({text_literal(value)}, {text_literal(kind)})"


def _numbers(text: Text, kind: str) -> list[str]:
    """The whole numbers that stand in the query, which it may compare with, and those beside them, if they fit."""
    base, _, digits = kind.partition("(")
    whole, _, scale = digits.rstrip(")").partition(",")
    largest = 10 ** (int(whole) - int(scale or 0)) if whole else _LARGEST.get(base, 10**9)
    named = dict.fromkeys(token.text for token in text.tokens if token.token_type is TokenType.NUMBER)
    found = [int(number) for number in named if number.isdecimal() and len(number) < 10][:5]
    return [str(n + more) for n in found for more in (0, 1, -1) if n + 1 < largest]


def _texts(text: Text) -> list[str]:
    """Those that stand in the query."""
    found = dict.fromkeys(token.text for token in text.tokens if token.token_type in TEXTS)
    return [one for one in found if len(one) <= 40][:5]


def _after_dots(text: Text) -> list[str]:
    """The key of a map can be written like a field."""
    pairs = zip(text.tokens, text.tokens[1:], strict=False)
    return list(dict.fromkeys(name.text for dot, name in pairs if dot.token_type is TokenType.DOT))[:6]
