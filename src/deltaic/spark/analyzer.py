"""Spark's analyzer as the authority on names and types: 8 ms a question, and no job."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, StructType, TimestampType

from deltaic.algebra.nodes import Field
from deltaic.algebra.quoting import quote
from deltaic.algebra.reasons import PARTS, NotLowered, too_large
from deltaic.errors import DeltaicError, NameProblem, ParseError, Position, UnsupportedError
from deltaic.spark.telling import told_of
from deltaic.sql.parse import Text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


STACK = f"{PARTS} Or give Spark's driver a larger stack: spark.driver.extraJavaOptions = -Xss16m."


def is_too_deep(error: Exception) -> bool:
    """Whether Spark's parser or a rule of it, which call themselves for each level of a query, ran out of stack."""
    return any(word in str(error) for word in ("StackOverflowError", "FAILED_TO_PARSE_TOO_COMPLEX"))


@contextmanager
def enough_stack() -> Iterator[None]:
    """Where Spark computes a view: running out of stack is an error that says what to do."""
    try:
        yield
    except Exception as error:  # classic and Connect sessions raise from different class trees
        if is_too_deep(error):
            raise UnsupportedError("Spark has not enough stack to compute the view", hint=STACK) from None
        raise


_AROUND = "SELECT * FROM ("
_NODE = re.compile(r"^((?:[: ]  )*[:+]- )([A-Z].*)$", re.MULTILINE)
"""A line of a plan below its first: how deep it stands, and what it says."""
_COMPUTED = ("OneRowRelation", "LocalRelation", "Range ", "CTERelationRef", "UnionLoopRef")
"""Leaves of a plan that no table is behind."""
_OF_TABLE = re.compile(r"Relation(?:V2)? ([^\s\[(]+)")


class Analyzer:
    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def schema(self, query: str) -> StructType:
        """The schema of a user's query; an error of its own is raised as Deltaic's, with its place.

        Spark runs a statement as soon as it sees one. In parentheses there can be queries only."""
        try:
            return self.spark.sql(f"{_AROUND}{query}\n)").schema
        except PySparkException as error:
            if is_too_deep(error):
                raise ParseError("Spark has not enough stack for the query", hint=STACK) from None
            raise query_error(error, query, len(_AROUND)) from None
        except Exception as error:  # what the JVM throws, where Spark has no error of its own for it
            if is_too_deep(error):
                raise ParseError("Spark has not enough stack for the query", hint=STACK) from None
            lines = str(error).splitlines() or [type(error).__name__]
            told = next((line[2:] for line in lines if line.startswith(": ")), lines[0])
            raise UnsupportedError(f"Spark cannot analyze the query: {told}") from error

    def types(self, sql: str) -> tuple[Field, ...]:
        return fields_of(self.own_schema(sql))

    def own_schema(self, sql: str) -> StructType:
        """The schema of a query of Deltaic's own making; errors stay Spark's."""
        try:
            return self.spark.sql(sql).schema
        except Exception as error:
            if is_too_deep(error):
                raise NotLowered(too_large("Spark has not enough stack for a part of it")) from None
            raise

    def table_read(self, query: str) -> str | None:
        """A table, or whatever else is stored, that a query reads; None if it only computes."""
        whole = f"{_AROUND}{query}\n)"
        plan = str(self.spark.sql(f"EXPLAIN EXTENDED {whole}").collect()[0][0])
        analyzed = plan.partition("== Analyzed Logical Plan ==")[2].partition("== Optimized Logical Plan ==")[0]
        nodes = [(len(found[1]), found[2]) for found in _NODE.finditer(analyzed)]
        if not nodes:  # Spark cannot plan it, and here it does not say why
            with told_of("the query"):
                self.spark.sql(whole).collect()
            return "something that its plan does not tell"
        for (depth, node), (below, _) in zip(nodes, [*nodes[1:], (0, "")], strict=True):
            if below <= depth and not node.startswith(_COMPUTED):
                told = _OF_TABLE.match(node)
                return told[1] if told else node.split(" ", 1)[0]
        return None

    @cached_property
    def builtins(self) -> frozenset[str]:
        rows = self.spark.sql("SHOW SYSTEM FUNCTIONS").collect()
        return frozenset(str(row[0]).lower() for row in rows)

    def is_builtin(self, function: str) -> bool:
        return function in self.builtins


def fields_of(schema: StructType) -> tuple[Field, ...]:
    return tuple(Field(f.name, type_text(f.dataType), f.nullable) for f in schema.fields)


def type_text(kind: DataType) -> str:
    """A type as SQL writes it. simpleString cuts long structs short and does not quote field names; and what it calls a
    timestamp is another type to SQL if a setting says so (spark.sql.timestampType)."""
    if isinstance(kind, TimestampType):
        return "timestamp_ltz"
    if isinstance(kind, StructType):
        inner = ", ".join(f"{quote(f.name)}: {type_text(f.dataType)}" for f in kind.fields)
        return f"struct<{inner}>"
    parts: dict[str, Any] = {"array": ["elementType"], "map": ["keyType", "valueType"]}
    names = parts.get(kind.typeName())
    if names:
        return f"{kind.typeName()}<{', '.join(type_text(getattr(kind, name)) for name in names)}>"
    return kind.simpleString()


_PLACE = re.compile(r"line (\d+),? pos(?:ition)? (\d+)")


def query_error(error: PySparkException, sql: str, before: int = 0) -> DeltaicError:
    """Spark's complaint about a query as ours: one line, and where in the text; so much stood before it."""
    message = str(error).split("\n\nJVM stacktrace")[0].strip()
    what = re.sub(r"\s*(SQLSTATE: \w+|\(line \d+,? pos \d+\))", "", message.split("\n")[0].split(";")[0]).strip()
    condition = error.getCondition() or ""
    kind: type[DeltaicError] = ParseError if condition.startswith("PARSE") else NameProblem
    return kind(what, at=_place(error, message, sql, before))


def _place(error: PySparkException, message: str, sql: str, before: int) -> Position | None:
    try:
        contexts = error.getQueryContext()
    except Exception:  # not every kind of session can tell
        contexts = []
    for context in contexts or []:
        start = getattr(context, "startIndex", lambda: -1)()
        if isinstance(start, int) and start >= before:
            return Text(sql, ()).position(min(start - before, len(sql)))
    found = _PLACE.search(message)
    if found is None:
        return None
    line, column = int(found[1]), int(found[2]) + 1
    if line > sql.count("\n") + 1:  # what is missing at the end is missed in what stands around the query
        return Text(sql, ()).position(len(sql))
    return Position(line, max(1, column - before) if line == 1 else column)
