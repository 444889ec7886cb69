"""What Spark, Delta or Arrow throws while a view is computed, told in one line: whose it is, what is wrong, what to do.

The page of Java that comes with it stays reachable as the error's cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from deltaic.errors import ComputeError, DeltaicError

_CAUSE = re.compile(r"^(?:Caused by)?: (?:[\w$]+\.)+\w*(?:Exception|Error): (.+)$", re.MULTILINE)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
_WRAPPERS = ("TASK_WRITE_FAILED", "Job aborted", "Exception thrown in awaitResult")
_NOISE = re.compile(r"\s*(?:SQLSTATE: \w+|\(?line \d+,? pos \d+\)?;?)\s*")

_FILE = re.compile(r"FILE_NOT_EXIST|FileNotFoundException|DELTA_FILE_NOT_FOUND|Object at location .* not found")
FILE_GONE = "A file that the newest version of a table needs is gone: RESTORE that table, or bring the file back."
_VALUE = re.compile(
    r"SQLSTATE: 2[12]\w{3}|ARITHMETIC_OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE|DIVIDE_BY_ZERO|CAST_INVALID_INPUT"
    r"|CAST_OVERFLOW|CANNOT_PARSE|SCALAR_SUBQUERY_TOO_MANY_ROWS|USER_RAISED_EXCEPTION|MAP_KEY_DOES_NOT_EXIST"
)
"""The standard's classes of errors of data and of cardinality; by name, where a page is cut before its state."""
_HINTS = (
    (_FILE, FILE_GONE),
    (
        re.compile("is not a Parquet file|ChecksumException|Parquet error: "),
        "A file of a table is damaged: RESTORE that table, or bring the file back.",
    ),
    (
        re.compile("SCALAR_SUBQUERY_TOO_MANY_ROWS"),
        "A subquery that stands for one value has several rows now: change those, or the query (an aggregate in it).",
    ),
    (
        re.compile("DELTA_CANNOT_MODIFY_APPEND_ONLY"),
        "Somebody made the view's table append-only: ALTER TABLE ... UNSET TBLPROPERTIES (delta.appendOnly).",
    ),
    (
        re.compile("DELTA_VIOLATE_CONSTRAINT|DELTA_NOT_NULL_CONSTRAINT_VIOLATED|DELTA_EXCEED_CHAR_VARCHAR_LIMIT"),
        "Somebody gave the view's table a constraint: ALTER TABLE ... DROP CONSTRAINT takes it away.",
    ),
    (_VALUE, "The query fails on rows that are there now: change those, or the query (try_cast, a wider type)."),
)


@contextmanager
def told_of(view: str) -> Iterator[None]:
    """Where a view is computed or written."""
    try:
        yield
    except DeltaicError:
        raise
    except Exception as error:  # classic, Connect and delta-rs raise from different class trees
        if not is_of_others(error):
            raise
        raise compute_error(error, view) from error


def is_of_values(error: Exception) -> bool:
    """Whether an expression failed on a row."""
    return _VALUE.search(f"{error}") is not None


def compute_error(error: Exception, view: str) -> ComputeError:
    text = f"{error}\n{getattr(error, '_stackTrace', None) or ''}"
    what = _told(text)
    hint = next((hint for pattern, hint in _HINTS if pattern.search(text)), None)
    told = ComputeError(f"{view} could not be computed: {what}", hint=hint)
    told.told = what
    return told


def _told(text: str) -> str:
    """The innermost cause that says something: those around it say that a task, a stage and a job failed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = [cause for cause in _CAUSE.findall(text) if not any(word in cause for word in _WRAPPERS)]
    named = [cause for cause in found if _CONDITION.search(cause)]
    said = next((line for line in lines if not line.startswith("An error occurred")), "Spark gave no message")
    if _CONDITION.search(said) and not any(word in said for word in _WRAPPERS):
        return _plain(said)
    return _plain((named or found or [said])[-1])


def _plain(line: str) -> str:
    return _NOISE.sub(" ", line).strip().rstrip(";")


def is_of_others(error: Exception) -> bool:
    """Whether Spark, Delta, delta-rs or Arrow threw it: what their parts throw, delta-rs gives no class of its own."""
    from deltalake.exceptions import DeltaError
    from py4j.protocol import Py4JError
    from pyarrow import ArrowException
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException | Py4JError | DeltaError | ArrowException) or type(error) is Exception
