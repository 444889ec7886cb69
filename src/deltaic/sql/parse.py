"""SQL text to sqlglot's tree, with the span of every clause kept.

sqlglot's structure is trusted, its expressions are not: an expression is always taken as the
slice of the user's text that it was parsed from.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError as SqlglotParseError
from sqlglot.errors import TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from deltaic.algebra.reasons import PARTS
from deltaic.errors import ParseError, Position
from deltaic.sql.deep import with_room
from deltaic.sql.reading import check_reading, position, unclosed

TEXTS = (TokenType.STRING, TokenType.RAW_STRING, TokenType.NATIONAL_STRING)
SPAN, OPERAND, QUERY, ALIAS = "deltaic_span", "deltaic_operand", "deltaic_query", "deltaic_alias"

Span = tuple[int, int]
"""Character offsets into the text, the end exclusive."""


class _SpanParser(SparkParser):
    """Spark's parser of sqlglot, noting where each expression and query begins and ends."""

    def _noted(self, node: exp.Expr | None, start: int, key: str) -> exp.Expr | None:
        if node is not None and self._index > start:
            node.meta[key] = (self._tokens[start].start, self._tokens[self._index - 1].end + 1)
        return node

    def _parse_disjunction(self) -> exp.Expr | None:
        start = self._index
        return self._noted(super()._parse_disjunction(), start, SPAN)

    def _parse_bitwise(self) -> exp.Expr | None:
        start = self._index
        return self._noted(super()._parse_bitwise(), start, OPERAND)

    def _parse_select(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        start = self._index
        return self._noted(super()._parse_select(*args, **kwargs), start, QUERY)

    def _parse_table_alias(self, *args: Any, **kwargs: Any) -> exp.TableAlias | None:
        start = self._index
        found = super()._parse_table_alias(*args, **kwargs)
        if found is not None and found.args.get("columns"):
            found.meta[ALIAS] = self._tokens[start + (self._tokens[start].token_type is TokenType.ALIAS)].start
        return found


@dataclass(frozen=True)
class Text:
    """A SQL text with its tokens."""

    sql: str
    tokens: tuple[Token, ...]
    aliases: frozenset[int] = frozenset()
    """Where names stand that have a list of columns after them, and are no functions."""

    @staticmethod
    def of(sql: str) -> Text:
        if not sql.isascii() and any("\ud800" <= char <= "\udfff" for char in sql):
            raise ParseError("the text holds half of a character (a lone surrogate)")
        # sqlglot makes three tokens of 1L, all in one place: the first stands for them
        tokens = tuple({token.start: token for token in reversed(_tokenize(sql))}.values())[::-1]
        return Text(_without_comments(sql, tokens), tokens)

    def slice(self, span: Span) -> str:
        return self.sql[span[0] : span[1]]

    def within(self, span: Span) -> tuple[Token, ...]:
        first = bisect_left(self.tokens, span[0], key=lambda token: token.start)
        last = bisect_left(self.tokens, span[1], key=lambda token: token.start)
        return self.tokens[first:last]

    def has_query(self, span: Span) -> bool:
        return any(token.token_type is TokenType.SELECT for token in self.within(span))

    def index_at(self, start: int) -> int:
        return bisect_left(self.tokens, start, key=lambda token: token.start)

    def position(self, offset: int) -> Position:
        return position(self.sql, offset)

    def closing(self, index: int) -> int:
        """The index of the token that closes the parenthesis at `index`."""
        depth = 0
        for number in range(index, len(self.tokens)):
            kind = self.tokens[number].token_type
            depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
            if depth == 0:
                return number
        raise ParseError("a parenthesis is not closed", at=self.position(self.tokens[index].start))

    def parenthesised(self, span: Span) -> Span:
        """The span widened by the parentheses around it."""
        first, last = self.index_at(span[0]), self.index_at(span[1])
        while self.tokens[first].token_type is not TokenType.L_PAREN:
            first -= 1
        while self.tokens[last].token_type is not TokenType.R_PAREN:
            last += 1
        return self.tokens[first].start, self.tokens[last].end + 1

    def calls(self, span: Span) -> Iterator[Call]:
        """Every `name(...)` inside the span, outer calls before the calls in their arguments."""
        tokens = self.within(span)
        offset = self.index_at(span[0])
        for number, token in enumerate(tokens[:-1]):
            if tokens[number + 1].token_type is not TokenType.L_PAREN or not _may_name(token):
                continue
            if number and (
                tokens[number - 1].token_type is TokenType.DOT or _compares(*tokens[number - 1 : number + 1])
            ):
                continue
            yield self._call(offset + number)

    def _call(self, index: int) -> Call:
        end = self.closing(index + 1)
        arguments = (self.tokens[index + 1].start, self.tokens[end].end + 1)
        over: Span | None = None
        while end + 1 < len(self.tokens):
            word, after = self._word(end + 1), self._word(end + 2)
            if word in ("IGNORE", "RESPECT") and after == "NULLS":
                end += 2
            elif word == "FILTER" and after == "(":
                end = self.closing(end + 2)
            elif word == "WITHIN" and after == "GROUP":
                end = self.closing(end + 3)
            elif word == "OVER":
                start = end + 2
                end = self.closing(start) if after == "(" else start
                over = (self.tokens[start].start, self.tokens[end].end + 1)
            else:
                break
        name = self.tokens[index].text.lower()
        return Call(name, (self.tokens[index].start, self.tokens[end].end + 1), arguments, over)

    def split_call(self, call: Call) -> CallParts | None:
        """The places of a call's arguments and of its FILTER condition; None for any other form.

        ORDER BY, WITHIN GROUP, IGNORE NULLS and named arguments are such forms."""
        first = self.index_at(call.arguments[0])
        last = self.closing(first)
        distinct = self._word(first + 1) == "DISTINCT" and self.tokens[first + 1].token_type is TokenType.DISTINCT
        first += distinct
        if any(self._word(n) in _SPECIAL for n in range(first + 1, last)):
            return None
        cuts = [first, *self._commas(first, last), last]
        places = [(self.tokens[a + 1].start, self.tokens[b - 1].end + 1) for a, b in pairwise(cuts) if b > a + 1]
        end = self.tokens[last].end + 1
        if end == call.span[1]:
            return CallParts(places, None, distinct)
        opening = last + 2
        whole = self.closing(opening) if self._word(last + 1) == "FILTER" and self._word(opening) == "(" else None
        if whole is None or self.tokens[whole].end + 1 != call.span[1]:
            return None
        return CallParts(places, (self.tokens[opening + 2].start, self.tokens[whole - 1].end + 1), distinct)

    def _commas(self, first: int, last: int) -> Iterator[int]:
        depth = 0
        for number in range(first + 1, last):
            kind = self.tokens[number].token_type
            depth += (kind in OPENING) - (kind in CLOSING)
            if kind is TokenType.COMMA and depth == 0:
                yield number

    def _word(self, index: int) -> str:
        return self.tokens[index].text.upper() if index < len(self.tokens) else ""

    def arguments(self, span: Span) -> list[Span]:
        """What commas part, between the parentheses of a call."""
        tokens, found = self.within(span), list[Span]()
        depth, start = 0, 1
        for number, token in enumerate(tokens):
            depth += (token.token_type in OPENING) - (token.token_type in CLOSING)
            ends = number == len(tokens) - 1 or (depth == 1 and token.token_type is TokenType.COMMA)
            if ends and number > start - 1 and tokens[start:number]:
                found.append((tokens[start].start, tokens[number - 1].end + 1))
            if ends:
                start = number + 1
        return found

    def bare(self, span: Span) -> Span:
        """Without the parentheses around it."""
        tokens = list(self.within(span))
        while len(tokens) > 2 and tokens[0].token_type is TokenType.L_PAREN:
            if self.closing(self.index_at(tokens[0].start)) != self.index_at(tokens[-1].start):
                break
            tokens = tokens[1:-1]
        return tokens[0].start, tokens[-1].end + 1

    def last_name(self, span: Span) -> str | None:
        """The name that stands there, without what it is qualified by; None if something else does."""
        tokens = self.within(span)
        is_name = all((token.token_type is TokenType.DOT) == bool(n % 2) for n, token in enumerate(tokens))
        return tokens[-1].text if is_name and tokens[-1].token_type not in (TokenType.R_PAREN, *TEXTS) else None

    def partition_spans(self, over: Span) -> list[Span]:
        """The expressions of PARTITION BY in a window specification."""
        tokens = self.within(over)
        spans: list[Span] = []
        depth, start = 0, -1
        for number, token in enumerate(tokens):
            word = token.text.upper()
            if start < 0:
                if token.token_type in _PARTITION or (depth == 1 and word == "BY"):
                    start = number + 1
            elif depth == 1 and (word in (",", ")") or self._ends_partition(tokens, number, start)):
                spans.append((tokens[start].start, tokens[number - 1].end + 1))
                if word != ",":
                    break
                start = number + 1
            depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        return spans

    def _ends_partition(self, tokens: Sequence[Token], number: int, start: int) -> bool:
        """ROWS and RANGE are names too: where an expression begins, and after a dot."""
        begins = number == start or tokens[number - 1].token_type is TokenType.DOT
        return tokens[number].token_type in _AFTER_PARTITION and not begins

    def conjuncts(self, span: Span) -> list[Span]:
        """The terms of an AND at the top of a condition; the condition itself if it is none."""
        cuts: list[Token] = []
        depth, cases, between = 0, 0, 0
        tokens = self.within(span)
        for number, token in enumerate(tokens):
            quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
            field = number > 0 and tokens[number - 1].token_type is TokenType.DOT
            word = "" if quoted or field else token.text.upper()
            depth += (word in ("(", "[")) - (word in (")", "]"))
            # END is a name too, unless a CASE is open
            cases += (word == "CASE") - (word == "END" and cases > 0)
            if depth or cases:
                continue
            if word == "OR":
                return [span]
            if word == "BETWEEN":
                between += 1
            elif word == "AND" and between:
                between -= 1
            elif word == "AND":
                cuts.append(token)
        starts = [span[0], *(cut.end + 1 for cut in cuts)]
        ends = [*(cut.start for cut in cuts), span[1]]
        return list(zip(starts, ends, strict=True))


class _Tokenizer(Spark.Tokenizer):
    """Without sqlglot's habit of taking all that follows SHOW or EXPLAIN as one token."""

    COMMANDS: ClassVar[set[TokenType]] = set()


def _tokenize(sql: str) -> list[Token]:
    try:
        return _Tokenizer(dialect=Spark()).tokenize(sql)
    except TokenError as error:
        start = unclosed(sql)
        if start is not None:
            raise ParseError("a quotation or a comment is not closed", at=position(sql, start)) from None
        raise ParseError(f"the text cannot be read: {error}") from None


def _without_comments(sql: str, tokens: tuple[Token, ...]) -> str:
    """Comments blanked out, every offset kept: none may reach the SQL that runs."""
    pieces, here = [], 0
    for token in tokens:
        pieces.append(_NOT_SPACE.sub(" ", sql[here : token.start]))
        pieces.append(sql[token.start : token.end + 1])
        here = token.end + 1
    pieces.append(_NOT_SPACE.sub(" ", sql[here:]))
    return "".join(pieces)


_NOT_SPACE = re.compile(r"\S")


@dataclass(frozen=True)
class Call:
    """A function call in the text, with FILTER, WITHIN GROUP and OVER if they follow it."""

    name: str
    span: Span
    arguments: Span
    over: Span | None


@dataclass(frozen=True)
class CallParts:
    """Where in the text the parts of a call stand."""

    arguments: list[Span]
    where: Span | None
    distinct: bool


_SPECIAL = ("DISTINCT", "ALL", "ORDER", "ORDER BY", "IGNORE", "RESPECT", "WITHIN", "=>")
_PARTITION = (TokenType.PARTITION_BY, TokenType.DISTRIBUTE_BY)
"""To Spark the same, in a window."""
_AFTER_PARTITION = (TokenType.ORDER_BY, TokenType.SORT_BY, TokenType.ROWS, TokenType.RANGE)
OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET)
CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET)


def _compares(before: Token, token: Token) -> bool:
    """Whether it is LIKE ANY and the like: no aggregate."""
    return token.text.upper() in ("ANY", "SOME", "ALL") and before.text.upper() in ("LIKE", "ILIKE")


def _may_name(token: Token) -> bool:
    return token.token_type not in (TokenType.STRING, TokenType.NUMBER) and (
        token.text[:1].isalpha() or token.text[:1] == "_"
    )


def _parser() -> _SpanParser:
    try:
        return _SpanParser(dialect=Spark())
    except TypeError as error:  # a compiled class has no children in Python
        raise ParseError(
            f"sqlglot's compiled form cannot be used: {error}",
            hint="pip uninstall sqlglotc leaves sqlglot as it is, in Python.",
        ) from error


def parse_query(sql: str) -> tuple[exp.Expr, Text]:
    """The tree of a query and its text. Anything that is not a query is refused."""
    text = Text.of(sql)
    check_reading(sql, text.tokens)
    try:
        trees = with_room(lambda: _parser().parse(_tokenize(sql), sql))
    except RecursionError:
        raise ParseError("the query is nested too deeply to be read", hint=PARTS) from None
    except SqlglotParseError as error:
        detail = error.errors[0] if error.errors else {}
        at = Position(detail["line"], detail["col"]) if detail.get("line") else None
        what = detail.get("description") or str(error).splitlines()[0]
        raise ParseError(f"the query cannot be parsed: {what}", at=at) from None
    except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ParseError(f"the query cannot be parsed: sqlglot slips over it ({type(error).__name__})") from error
    if len(trees) != 1 or trees[0] is None:
        raise ParseError("one query is expected, and nothing else", at=Position(1, 1))
    tree = trees[0]
    if not isinstance(tree, exp.Query | exp.Values):
        raise ParseError(
            f"a query is expected here, not {type(tree).__name__.upper()}",
            at=text.position(text.tokens[0].start),
            hint="Write a SELECT, VALUES, WITH or a set operation.",
        )
    aliases = (alias.meta.get(ALIAS) for alias in tree.find_all(exp.TableAlias))
    return tree, replace(text, aliases=frozenset(start for start in aliases if start is not None))


def start_of(tree: exp.Expr) -> int | None:
    """Where the first word of a tree stands, if sqlglot kept any place of it."""
    return min((node.meta["start"] for node in tree.walk() if "start" in node.meta), default=None)


def span_of(node: exp.Expr) -> Span:
    span: Span = node.meta[SPAN]
    return span


def replaced(sql: str, by: Mapping[Span, str]) -> str:
    """A text with others in some places of it."""
    pieces, here = [], 0
    for (start, end), text in sorted(by.items()):
        pieces.extend([sql[here:start], text])
        here = end
    return "".join([*pieces, sql[here:]])
