"""Spark's analyzer as the authority on names and types: 8 ms a question, and no job."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, StructType

from deltaic.algebra.nodes import Field
from deltaic.errors import DeltaicError, NameProblem, ParseError, Position, UnsupportedError
from deltaic.sql.parse import Text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Analyzer:
    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def schema(self, sql: str) -> StructType:
        """The schema of a query; an error of the query's own is raised as Deltaic's, with its place."""
        try:
            return self.spark.sql(sql).schema
        except PySparkException as error:
            raise query_error(error, sql) from None
        except Exception as error:  # what the JVM throws, where Spark has no error of its own for it
            lines = str(error).splitlines() or [type(error).__name__]
            told = next((line[2:] for line in lines if line.startswith(": ")), lines[0])
            raise UnsupportedError(f"Spark cannot analyze the query: {told}") from error

    def types(self, sql: str) -> tuple[Field, ...]:
        return fields_of(self.spark.sql(sql).schema)

    @cached_property
    def builtins(self) -> frozenset[str]:
        rows = self.spark.sql("SHOW SYSTEM FUNCTIONS").collect()
        return frozenset(str(row[0]).lower() for row in rows)

    def is_builtin(self, function: str) -> bool:
        return function in self.builtins


def fields_of(schema: StructType) -> tuple[Field, ...]:
    return tuple(Field(f.name, type_text(f.dataType), f.nullable) for f in schema.fields)


def type_text(kind: DataType) -> str:
    """A type as SQL writes it. simpleString cuts long structs short and does not quote field names."""
    if isinstance(kind, StructType):
        inner = ", ".join(f"`{f.name.replace('`', '``')}`: {type_text(f.dataType)}" for f in kind.fields)
        return f"struct<{inner}>"
    parts: dict[str, Any] = {"array": ["elementType"], "map": ["keyType", "valueType"]}
    names = parts.get(kind.typeName())
    if names:
        return f"{kind.typeName()}<{', '.join(type_text(getattr(kind, name)) for name in names)}>"
    return kind.simpleString()


_PLACE = re.compile(r"line (\d+),? pos(?:ition)? (\d+)")


def query_error(error: PySparkException, sql: str) -> DeltaicError:
    """Spark's complaint about a query as ours: one line, and where in the text."""
    message = str(error).split("\n\nJVM stacktrace")[0].strip()
    what = re.sub(r"\s*SQLSTATE: \w+", "", message.split("\n")[0].split(";")[0]).strip()
    condition = error.getCondition() or ""
    kind: type[DeltaicError] = ParseError if condition.startswith("PARSE") else NameProblem
    return kind(what, at=_place(error, message, sql))


def _place(error: PySparkException, message: str, sql: str) -> Position | None:
    try:
        contexts = error.getQueryContext()
    except Exception:  # not every kind of session can tell
        contexts = []
    for context in contexts or []:
        start = getattr(context, "startIndex", lambda: -1)()
        if isinstance(start, int) and start >= 0:
            return Text(sql, ()).position(start)
    found = _PLACE.search(message)
    return Position(int(found[1]), int(found[2]) + 1) if found else None
