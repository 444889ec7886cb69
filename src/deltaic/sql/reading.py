"""Whether sqlglot reads a text as Spark does: the same literals, quoted names and comments in the same places.

A text that the two read differently would be one query to Deltaic and another to Spark. It is refused. What stands
here is the part of Spark's grammar (SqlBaseLexer.g4) in which anything but itself may be written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from deltaic.errors import ParseError, Position

_WRITTEN = re.compile(
    r"""
      (?P<hint>   /\*\+ )
    | (?P<block>  /\* )
    | (?P<line>   --(?:\\\n|[^\r\n])* )
    | (?P<quoted> [rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`]|``)*` )
    | (?P<word>   \w+ )
    | (?P<dollar> \$\w*\$ )
    """,
    re.VERBOSE | re.DOTALL,
)
_QUOTES = "'\"`"
_QUOTE = re.compile(f"[{_QUOTES}]")
_LITERALS = (TokenType.STRING, TokenType.RAW_STRING, TokenType.HEX_STRING, TokenType.NATIONAL_STRING)

Span = tuple[int, int]
_LOOKS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.Is, exp.In, exp.Between)


def binds_alike(node: exp.Expr) -> bool:
    """False where Spark and sqlglot let operators bind in another order: `||` binds as + does in Spark, and comparisons
    all alike; sqlglot may set parentheses of its own around the latter."""
    inside = list(node.iter_expressions())
    if isinstance(node, _LOOKS):
        return not any(isinstance(child.unnest(), _LOOKS) for child in inside)
    if isinstance(node, exp.DPipe):
        return not any(isinstance(child, exp.Add | exp.Sub) for child in inside)
    return not isinstance(node, exp.Add | exp.Sub) or not any(isinstance(child, exp.DPipe) for child in inside)


def position(sql: str, offset: int) -> Position:
    before = sql[:offset]
    return Position(before.count("\n") + 1, offset - before.rfind("\n"))


def check_reading(sql: str, tokens: Sequence[Token]) -> None:
    """Refuses a text whose literals, names or comments are others to Spark than in these tokens."""
    quoted, comments = _as_spark_reads(sql)
    found = _joined(_quoted_in(sql, tokens))
    wanted = _joined(quoted)
    differing = [span for span in (*found, *wanted) if (span in found) != (span in wanted)]
    differing.extend(_outside(sql, tokens, comments))
    if differing:
        start = min(differing)[0]
        raise ParseError(
            "Spark may read a quotation or a comment in another way here",
            at=position(sql, start),
            hint="Write literals in single quotes, names in backticks, and comments as /* ... */.",
        )


def _as_spark_reads(sql: str) -> tuple[list[Span], list[Span]]:
    """What is quoted, and the comments."""
    quoted: list[Span] = []
    comments: list[Span] = []
    here = 0
    while (match := _WRITTEN.search(sql, here)) is not None:
        start, here = match.span()
        if match.lastgroup == "block":
            here = _end_of_block(sql, here)
            comments.append((start, here))
        elif match.lastgroup == "line":
            comments.append((start, here))
        elif match.lastgroup in ("quoted", "dollar"):
            quoted.append((_first_quote(sql, start), here))
    return quoted, comments


def _end_of_block(sql: str, here: int) -> int:
    """Comments may stand in one another."""
    depth = 1
    for mark in re.compile(r"/\*|\*/").finditer(sql, here):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(sql)


def unclosed(sql: str) -> int | None:
    """Where a quotation or a comment begins that does not end."""
    here = 0
    while (match := _WRITTEN.search(sql, here)) is not None:
        if (before := _QUOTE.search(sql, here, match.start())) is not None:
            return before.start()
        start, here = match.span()
        if match.lastgroup == "block":
            here = _end_of_block(sql, here)
            if not sql.endswith("*/", start, here):
                return start
    left = _QUOTE.search(sql, here)
    return None if left is None else left.start()


def _first_quote(sql: str, start: int) -> int:
    return start if sql[start] in (*_QUOTES, "$") else start + 1


def _quoted_in(sql: str, tokens: Sequence[Token]) -> Iterator[Span]:
    for token in tokens:
        named = token.token_type is TokenType.IDENTIFIER and sql[token.start] in _QUOTES
        if named or token.token_type in _LITERALS:
            yield _first_quote(sql, token.start), token.end + 1


def _joined(spans: Sequence[Span] | Iterator[Span]) -> set[Span]:
    """Two that touch as one: 'it''s' is one literal to Spark, and two to sqlglot."""
    found: list[Span] = []
    for start, end in spans:
        touches = bool(found) and found[-1][1] == start
        found.append((found.pop()[0] if touches else start, end))
    return set(found)


def _outside(sql: str, tokens: Sequence[Token], comments: list[Span]) -> Iterator[Span]:
    """Where something between two tokens is no comment of Spark's, or a token is in one."""
    here, waiting = 0, iter([*comments, (len(sql), len(sql))])
    comment = next(waiting)
    for start, end in [*((token.start, token.end + 1) for token in tokens), (len(sql), len(sql))]:
        while here < start:
            if comment[0] <= here:
                here = max(here, comment[1])
                comment = next(waiting, (len(sql), len(sql)))
                continue
            stop = min(start, comment[0])
            text = sql[here:stop]
            if text.strip():
                yield here + len(text) - len(text.lstrip()), stop
            here = stop
        if here > start:
            yield start, end
        here = max(here, end)
