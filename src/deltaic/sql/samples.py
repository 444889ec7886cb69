"""Made-up rows: a few values of every type, few enough that tables meet in them, and those that a query names.

Every other row is one that the query is after: its columns have what the query compares them with.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import islice, pairwise
from random import Random

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from deltaic.algebra.nodes import Field
from deltaic.algebra.quoting import quote, text_literal
from deltaic.sql.parse import TEXTS, Text

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_LARGEST = {"tinyint": 100, "smallint": 30_000}
_BROKEN = ("float", "double", "decimal")
_MOMENTS = ("date", "timestamp_ltz", "timestamp_ntz")
_YEARS = range(1900, 2100)
_FEW, _USUAL = 5, 3
"""How many values a query gives to a column; how many of the others a row has that the query is after."""


@dataclass(frozen=True)
class Named:
    """The values that stand in a query, as text without quotes."""

    numbers: tuple[str, ...]
    texts: tuple[str, ...]
    keys: tuple[str, ...]
    """What stands after a dot: the key of a map can be written like a field."""
    compared: Mapping[str, tuple[str, ...]]
    """What columns of a name, in small letters, are compared with."""

    @staticmethod
    def of(tree: exp.Expr, text: Text) -> Named:
        tokens = text.tokens
        numbers = dict.fromkeys(t.text for t in tokens if t.token_type is TokenType.NUMBER)
        texts = dict.fromkeys(t.text for t in tokens if t.token_type in TEXTS and len(t.text) <= 40)
        dots = pairwise(tokens)
        keys = dict.fromkeys(name.text for dot, name in dots if dot.token_type is TokenType.DOT)
        return Named(_few(numbers), _few(texts), tuple(islice(keys, 6)), _compared(tree))


def _few(values: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(islice(values, _FEW))


def _compared(tree: exp.Expr) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for test in tree.find_all(exp.Predicate):
        if test.find(exp.Query):
            continue
        values = [value for literal in islice(test.find_all(exp.Literal), _FEW) for value in _about(test, literal)]
        for column in test.find_all(exp.Column) if values else ():
            for part in column.parts:
                found[part.name.lower()].update(dict.fromkeys(values))
    return {name: tuple(values) for name, values in found.items()}


def _about(test: exp.Expr, literal: exp.Literal) -> Iterator[str]:
    """The value, and those beside it where an equal one need not pass."""
    value: str = literal.this
    exactly = isinstance(test, exp.EQ | exp.NullSafeEQ | exp.In)
    if isinstance(test, exp.Like | exp.ILike):
        yield value.replace("%", "").replace("_", "x")
    elif literal.is_string:
        yield value
        yield from () if exactly else _next_days(value)
    else:
        value = f"-{value}" if isinstance(literal.parent, exp.Neg) else value
        yield value
        if not exactly and _is_whole(value):
            yield from (str(int(value) + 1), str(int(value) - 1))


def _next_days(value: str) -> Iterator[str]:
    day = _day(value)
    if day is not None and date.min < day < date.max:
        yield from (str(day + timedelta(1)), str(day - timedelta(1)))


def _day(value: str) -> date | None:
    """The day that a text begins with."""
    try:
        return datetime.strptime(value[:10], "%Y-%m-%d").date()
    except ValueError:
        return None


def _is_whole(value: str) -> bool:
    return value.removeprefix("-").isdecimal()


def sample(fields: Sequence[Field], rows: int, named: Named, random: Random, *, nulls: bool, tame: bool) -> str:
    """A query that gives so many rows of these columns, two of them equal; with `nulls` there is one in each column.
    `tame`: texts are numbers, too."""
    pools = [_values(field.type, named, tame) for field in fields]
    wanted = [_wanted(field, named, tame) or pool[:_USUAL] for field, pool in zip(fields, pools, strict=True)]
    made = [[random.choice(pool) for pool in (pools if n % 2 else wanted)] for n in range(rows - 1)]
    for place in (n for n, field in enumerate(fields) if nulls and field.nullable):
        random.choice(made)[place] = "NULL"
    listed = [", ".join(row or ["1"]) for row in (*made, made[0])]
    columns = ", ".join(f"CAST(c{n} AS {field.type}) AS {quote(field.name)}" for n, field in enumerate(fields))
    names = ", ".join(f"c{n}" for n in range(max(1, len(fields))))
    return f"SELECT {columns or '1'} FROM VALUES {', '.join(f'({row})' for row in listed)} AS v({names})"


def _wanted(field: Field, named: Named, tame: bool) -> list[str]:
    """What the query compares a column with, as literals of its type."""
    values = named.compared.get(field.name.lower(), ())
    base = _base(field.type)
    if base in _NUMBERS:
        return [value for value in values if _fits(value, field.type)]
    if base in _MOMENTS:
        days = [value for value in values if _day(value)]
        years = [f"{value}-01-01" for value in values if value.isdecimal() and int(value) in _YEARS]
        return list(map(text_literal, days + years))
    return list(map(text_literal, values)) if base == "string" and not tame else []


def _fits(value: str, kind: str) -> bool:
    base, _, digits = kind.partition("(")
    whole, _, scale = digits.rstrip(")").partition(",")
    largest = 10 ** (int(whole) - int(scale or 0)) if whole else _LARGEST.get(base, 10**9)
    if _is_whole(value):
        return len(value) < 20 and abs(int(value)) < largest
    before, point, after = value.removeprefix("-").partition(".")
    broken = base in _BROKEN and point and (before + after).isdecimal() and len(value) < 20
    return bool(broken) and int(before or 0) < largest


def _base(kind: str) -> str:
    return kind.partition("(")[0].partition("<")[0]


def _values(kind: str, named: Named, tame: bool) -> list[str]:
    """Literals that all have one type, and can be cast to this one."""
    base = _base(kind)
    if base in _NUMBERS:
        return ["1", "2", "3", "4", "5", *_numbers(named, kind)]
    if base in _MOMENTS:
        days = [text_literal(one) for one in named.texts if _day(one)]
        return [*(f"'2024-0{month}-0{day}'" for month in (1, 2) for day in (1, 2, 3)), *days]
    match base:
        case "string" if tame:
            return ["'1'", "'2'", "'3'"]
        case "string":
            return ["'1'", "'2'", "'a'", "'b'", *map(text_literal, named.texts)]
        case "boolean":
            return ["TRUE", "FALSE"]
        case "binary":
            return ["X'61'", "X'62'"]
        case "array":
            return [_of_json(one, kind) for one in ("[1, 2]", "[2]", "[]")]
        case "map":
            keys = ["1", *named.keys, *named.texts]
            listed = [json.dumps({key: n + more for n, key in enumerate(keys)}) for more in (1, 2)]
            return [_of_json(one, kind) for one in (*listed, "{}")]
        case "struct":
            return [_of_json(one, kind) for one in ('{"1": 1}', "{}")]
        case "variant":
            return ["parse_json('1')", "parse_json('{\"a\": 2}')"]
    return ["NULL"]


def _of_json(value: str, kind: str) -> str:
    return f"from_json({text_literal(value)}, {text_literal(kind)})"


def _numbers(named: Named, kind: str) -> list[str]:
    """Those that the query may compare with, and those beside the whole ones, if they fit."""
    beside = [str(int(n) + more) for n in named.numbers if _is_whole(n) for more in (0, 1, -1)]
    return [n for n in (*beside, *(n for n in named.numbers if not _is_whole(n))) if _fits(n, kind)]
