"""What in a query may give another answer though no row that it reads has changed."""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot.tokenizer_core import TokenType

from deltaic.sql import functions
from deltaic.sql.parse import TEXTS, Call, Span, Text

_MOVING = re.compile(rf"\s*({'|'.join(functions.MOVING_DATES)})(\s+\S+)?\s*", re.IGNORECASE)
"""With the name of a time zone after it or without."""
Found = tuple[str, int]
"""What it is, and where in the text."""


def undecided(text: Text, span: Span, is_column: Callable[[str], bool]) -> Found | None:
    """A function of Spark's that asks for more than the row, or a word that means another day tomorrow."""
    calls = list(text.calls(span))
    for call in calls:
        if call.name in functions.NON_DETERMINISTIC:
            return f"{call.name}() is not decided by the row", call.span[0]
    said = ""
    for token in text.within(span):
        if token.token_type in TEXTS:
            said += token.text  # those that stand side by side are one
            # Spark makes a date of it wherever one is wanted; where none is, it is taken for one in vain
            if _MOVING.fullmatch(said):
                return f"'{said}' may be another day tomorrow", token.start
            continue
        said = ""
        bare = token.token_type is not TokenType.IDENTIFIER
        if bare and token.text.lower() in functions.NON_DETERMINISTIC_BARE and not is_column(token.text):
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


def moves(text: Text, is_column: Callable[[str], bool], is_builtin: Callable[[str], bool]) -> bool:
    """Of a query that was not taken apart, as a whole."""
    whole = (0, len(text.sql))
    return undecided(text, whole, is_column) is not None or foreign(text, whole, is_builtin) is not None


_NAMED = (TokenType.VAR, TokenType.IDENTIFIER)
_BEFORE_ALIAS = (*_NAMED, TokenType.ALIAS, TokenType.R_PAREN)


def _is_function(text: Text, call: Call) -> bool:
    """Whether it is no keyword, and no alias or common table expression with a list of its columns."""
    index = text.index_at(call.span[0])
    token, before = text.tokens[index], text.tokens[index - 1] if index else None
    if token.token_type not in _NAMED or call.name in functions.NOT_CALLS:
        return False
    if before is not None and before.token_type in _BEFORE_ALIAS:
        return False
    after = text.tokens[text.closing(index + 1) + 1 :][:2]
    return [t.token_type for t in after] != [TokenType.ALIAS, TokenType.L_PAREN]
