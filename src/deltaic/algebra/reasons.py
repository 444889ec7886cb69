"""Why something is not incremental: a stable code, the place in the SQL, and a way out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from deltaic.errors import Position


class Code(Enum):
    """Each with what it means; docs/reasons.md lists them for users."""

    LIMIT = "ORDER BY ... LIMIT looks at all rows"
    WINDOW_NO_PARTITION = "a window without PARTITION BY looks at all rows"
    NON_DETERMINISTIC = "a function whose value is not decided by the row"
    UNKNOWN_FUNCTION = "a function that is not one of Spark's own"
    UNSTABLE_VALUE = "a value that may come out differently when computed again decides which rows there are"
    CORRELATED_SUBQUERY = "a correlated subquery of a form that has no delta rule"
    LATERAL_JOIN = "a lateral subquery"
    TABLE_FUNCTION = "a table function"
    PIVOT = "PIVOT or UNPIVOT"
    SAMPLE = "TABLESAMPLE gives other rows each time"
    RECURSION = "a recursion that is no set of rows, or has rules of a form that DRed is not for"
    UNGROUPABLE_TYPE = "a column whose type cannot be grouped or compared"
    UNSUPPORTED_SYNTAX = "a form of SQL that has no lowering to the algebra"
    TOO_LARGE = "a query so large or so deep that its delta could not be planned in bounded time"
    SEMANTICS = "Spark reads the lowered query as another one than the text"
    POLICY = "the refresh policy or the caller asked for a recompute"
    DEFINITION_CHANGED = "the definition changed since the last refresh"
    SOURCE_SCHEMA = "a used column of a source changed"
    SOURCE_REPLACED = "a source is another table than before"
    SOURCE_REWOUND = "a source is at an older version than the view, or has another commit under its number"
    HISTORY_GONE = "the change since the last refresh can no longer be read"
    CAPTURE_LOST = "changes of a live source were not captured"
    SOURCE_TRUNCATED = "a live source was truncated, which does not say which rows it had"
    VIEW_EDITED = "the view's table was changed by something else"
    VIEW_MISMATCH = "the change does not fit the rows of the view"
    EVALUATION = "an expression failed on a row of the change, though the answer may have no such row"
    OVERFLOW = "a number in the change did not fit, though the answer may"
    TECHNIQUE = "the technique that the view is pinned to is not for such a view"
    COST = "a recompute is predicted to be faster"


@dataclass(frozen=True)
class Reason:
    code: Code
    detail: str
    at: Position | None = None
    hint: str | None = None

    def __str__(self) -> str:
        place = f" ({self.at})" if self.at else ""
        hint = f" {self.hint}" if self.hint else ""
        return f"{self.code.name}: {self.detail}{place}.{hint}"


PARTS = "Make materialized views of its parts, and one over them."


def too_large(detail: str) -> Reason:
    return Reason(Code.TOO_LARGE, detail, hint=PARTS)


def too_deep() -> Reason:
    """For a RecursionError: not even the depth is known."""
    return too_large("it is nested too deeply")


class NotLowered(Exception):
    """The query is valid but has no algebra, or one that is too large, so it can only be recomputed."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__(str(reason))


class NotResolved(NotLowered):
    """A name that is none here, or one that only Spark resolves."""
