"""Every error Deltaic raises, each with what went wrong, where, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Position:
    """A place in a SQL text, counted from 1 as editors do."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class DeltaicError(Exception):
    """The base of all: `code` is stable, for programs; the message is for people."""

    code = "DELTAIC"

    def __init__(self, what: str, *, at: Position | None = None, hint: str | None = None) -> None:
        self.what, self.at, self.hint = what, at, hint
        place = f" ({at})" if at else ""
        advice = f"\n  {hint}" if hint else ""
        super().__init__(f"[{self.code}] {what}{place}{advice}")


class SetupError(DeltaicError):
    """Java, the Delta jars or a session setting is missing."""

    code = "SETUP"


class ParseError(DeltaicError):
    """The text is not a statement Deltaic or Spark understands."""

    code = "PARSE"


class NameProblem(DeltaicError):
    """A table or column that is unknown, ambiguous, reserved or used twice."""

    code = "NAME"


class TypeNotStorable(DeltaicError):
    """A column type that Delta cannot store."""

    code = "TYPE"


class ExistsError(DeltaicError):
    """Something of that name is already there."""

    code = "EXISTS"


class MissingError(DeltaicError):
    """No view or table of that name."""

    code = "MISSING"


class DependencyError(DeltaicError):
    """A view over itself, or dropping what other views read."""

    code = "DEPENDENCY"


class SourceError(DeltaicError):
    """A source that is not a Delta table, or can no longer be read."""

    code = "SOURCE"


class HistoryGone(SourceError):
    """A version or change that the log or the files no longer hold (cleaned up or vacuumed)."""

    code = "HISTORY_GONE"


class TimeError(DeltaicError):
    """A time that is not one, or not one that a view can be at."""

    code = "TIME"


class SourceAway(SourceError):
    """A server that does not answer, though it was asked several times."""

    code = "SOURCE_AWAY"


class CaptureLost(SourceError):
    """Changes of a live source were not captured, and never will be: what is made of it is to be recomputed.

    `reason` is the name of a reason code.
    """

    code = "CAPTURE_LOST"

    def __init__(self, what: str, *, reason: str = "CAPTURE_LOST", hint: str | None = None) -> None:
        self.reason = reason
        super().__init__(what, hint=hint or "Drop the views that read it, detach it, attach it, and make them again.")


class RecursionTooDeep(DeltaicError):
    """A recursion that finds new rows in every round."""

    code = "RECURSION_TOO_DEEP"


class DatalogError(DeltaicError):
    """A Datalog program that means nothing: a variable that nothing binds, a predicate that is its own negation."""

    code = "DATALOG"


class UnsupportedError(DeltaicError):
    """A statement or feature that this version refuses by name."""

    code = "UNSUPPORTED"


class NotIncremental(DeltaicError):
    """The policy forbids a recompute and the view cannot be maintained incrementally."""

    code = "NOT_INCREMENTAL"


class ComputeError(DeltaicError):
    """Spark could not compute or write a view; what it threw is the cause, and `told` the line of it that says why."""

    code = "COMPUTE"
    told = ""


class ConcurrentRefresh(DeltaicError):
    """Another refresh of the same view won; this one changed nothing."""

    code = "CONCURRENT"


class DefinitionDamaged(DeltaicError):
    """The definition in the properties of a view's table is not one that Deltaic wrote."""

    code = "DEFINITION"


class ConfigurationError(DeltaicError):
    """A property or argument whose value is not allowed."""

    code = "CONFIGURATION"
