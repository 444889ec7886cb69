"""What in a query may give another answer though no row that it reads has changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from sqlglot.tokenizer_core import TokenType

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
Found = tuple[str, int]
"""What it is, and where in the text."""


def undecided(text: Text, span: Span, is_column: Callable[[str], bool], types: Iterable[str]) -> Found | None:
    """A function of Spark's that asks for more than the row, or a word that means another day tomorrow.

    `types` are those of the columns in reach."""
    calls = list(text.calls(span))
    for call in calls:
        if call.name in functions.NON_DETERMINISTIC:
            return f"{call.name}() is not decided by the row", call.span[0]
    said, before = "", None
    timed = bool(_MAKES_TIMESTAMPS.search(text.sql)) or any("timestamp" in kind for kind in types)
    for token in text.within(span):
        if token.token_type in TEXTS:
            said += token.text  # those that stand side by side are one
            # Spark makes a date of it wherever one is wanted; where none is, it is taken for one in vain
            of_day = timed and before != "TIME" and _TODAY.fullmatch(said)
            if of_day or _MOVING.fullmatch(said):
                return f"'{said}' may be another day tomorrow", token.start
            continue
        named = before in (".", "AS")
        said, before = "", token.text.upper()
        # in quotes Spark takes it for the same
        if not named and token.text.lower() in functions.NON_DETERMINISTIC_BARE and not is_column(token.text):
            return f"{token.text} is not decided by the row", token.start
    return None


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
    found = undecided(text, whole, lambda name: name.lower() in columns, columns.values())
    return found is not None or foreign(text, whole, is_builtin) is not None


def _is_function(text: Text, call: Call) -> bool:
    """Whether it is no keyword, and no alias or common table expression with a list of its columns."""
    token = text.tokens[text.index_at(call.span[0])]
    if token.token_type not in (TokenType.VAR, TokenType.IDENTIFIER) or call.name in functions.NOT_CALLS:
        return False
    return token.start not in text.aliases
