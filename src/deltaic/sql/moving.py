"""What in a query may give another answer though no row that it reads has changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from sqlglot.tokenizer_core import Token, TokenType

from deltaic.sql import functions
from deltaic.sql.parse import TEXTS, Call, Span, Text

_MOVING = re.compile(rf"\s*({'|'.join(functions.MOVING_DATES)})(\s+\S+)?\s*", re.IGNORECASE)
"""With the name of a time zone after it or without."""
_TODAY = re.compile(r"\s*T?\d{1,2}:\d{1,2}(:\S*)?(\s+\S+)?\s*")
"""A time of the day: as a timestamp it is today's."""
_MAKES_TIMESTAMPS = re.compile(
    r"timestamp|\b(date_\w+|hour|minute|second|trunc|extract|datepart|months_between|convert_timezone|\w*u(nix|tc)_\w+)\s*\(",
    re.IGNORECASE,
)
_OF_A_TEXT = re.compile(r"(\w+) (NOT )?(=|==|<>|!=|<|<=|>|>=|<=>|BETWEEN|BETWEEN '' AND|IN \((?: '' ,)*)$")
"""What stands before a text that is compared with a column."""
Found = tuple[str, int]
"""What it is, and where in the text."""
TypeOf = Callable[[str], "str | None"]
"""The type of the column of that name, if there is one."""


def undecided(text: Text, span: Span, type_of: TypeOf, types: Iterable[str]) -> Found | None:
    """A function of Spark's that asks for more than the row, or a word that means another day tomorrow.

    `types` are those of all columns in reach."""
    calls = list(text.calls(span))
    for call in calls:
        if call.name in functions.NON_DETERMINISTIC and not (
            call.name in functions.OF_NOW_IF_BARE and text.arguments(call.arguments)
        ):
            return f"{call.name}() is not decided by the row", call.span[0]
    timed = bool(_MAKES_TIMESTAMPS.search(text.sql)) or any("timestamp" in kind for kind in types)
    tokens, said, before = text.within(span), "", ""
    for place, token in enumerate(tokens):
        if token.token_type in TEXTS:
            said += token.text  # those that stand side by side are one
            # Spark makes a date of it wherever one is wanted; where none is, it is taken for one in vain
            if _MOVING.fullmatch(said) or (
                timed and _TODAY.fullmatch(said) and not _stays_a_text(tokens, place, calls, type_of)
            ):
                return f"'{said}' may be another day tomorrow", token.start
            continue
        named = before in (".", "AS")
        said, before = "", token.text.upper()
        # in quotes Spark takes it for the same
        if not named and token.text.lower() in functions.NON_DETERMINISTIC_BARE and type_of(token.text) is None:
            return f"{token.text} is not decided by the row", token.start
    return None


def _stays_a_text(tokens: Sequence[Token], place: int, calls: Sequence[Call], type_of: TypeOf) -> bool:
    """Whether a time of the day is no timestamp: it is a TIME, part of a longer text, or compared with a text."""
    before, after = tokens[max(place - 1, 0)], tokens[min(place + 1, len(tokens) - 1)]
    around = [call for call in calls if call.arguments[0] <= tokens[place].start < call.arguments[1]]
    joined = TokenType.DPIPE in (before.token_type, after.token_type)
    if joined or before.text.upper() in ("TIME", "INTERVAL") or (around and around[-1].name in ("concat", "concat_ws")):
        return True
    left = " ".join("''" if t.token_type in TEXTS else t.text.upper() for t in tokens[:place])
    column = _OF_A_TEXT.search(left)
    return column is not None and type_of(column[1]) == "string"


def foreign(text: Text, span: Span, is_builtin: Callable[[str], bool]) -> Found | None:
    """A function that is not Spark's own: it may ask for anything, and be replaced by another one."""
    for call in text.calls(span):
        if _is_function(text, call) and not is_builtin(call.name):
            return f"{call.name}() is not a function of Spark's own, so its determinism is not known", call.span[0]
    tokens = text.within(span)
    for dot, name, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if dot.token_type is TokenType.DOT and after.token_type is TokenType.L_PAREN:
            return f"{name.text.lower()}() is named by its schema, so it may not be Spark's own", name.start
    return None


def moves(text: Text, columns: Mapping[str, str], is_builtin: Callable[[str], bool]) -> bool:
    """Of a query that was not taken apart, as a whole; `columns` with their types, their names in lower case."""
    whole = (0, len(text.sql))
    found = undecided(text, whole, lambda name: columns.get(name.lower()), columns.values())
    return found is not None or foreign(text, whole, is_builtin) is not None


def _is_function(text: Text, call: Call) -> bool:
    """Whether it is no keyword, and no alias or common table expression with a list of its columns."""
    place = text.index_at(call.span[0])
    if call.span[0] in text.aliases:
        return False
    if text.tokens[place].token_type is TokenType.IDENTIFIER:
        return True
    before = {token.text.lower() for token in text.tokens[max(place - 2, 0) : place]}
    keyword = call.name in functions.NOT_CALLS | functions.OF_GRAMMAR or len(call.name.split()) > 1
    return not keyword and before.isdisjoint(functions.NOT_CALLS_AFTER.get(call.name, ()))
