"""What Spark has against a query, told as Deltaic's errors: one line, whatever it comes as."""

from typing import Any

import pytest
from pyspark.errors import PySparkException

from deltaic.errors import NameProblem, UnsupportedError
from deltaic.spark.analyzer import Analyzer

OF_THE_JVM = """An error occurred while calling o64.sql.
: java.lang.RuntimeException: Max iterations (100) reached for batch Resolution
\tat org.apache.spark.sql.catalyst.rules.RuleExecutor.$anonfun$execute$1(RuleExecutor.scala:299)"""
OF_THE_PARSER = """
[INVALID_NUMERIC_LITERAL_RANGE] Numeric literal 1e400 is outside the valid range. SQLSTATE: 22003 (line 1, pos 7)

== SQL ==
SELECT 1e400"""


@pytest.mark.parametrize(
    ("error", "kind", "what"),
    [
        (RuntimeError(OF_THE_JVM), UnsupportedError, "the query: java.lang.RuntimeException: Max iterations (100)"),
        (RuntimeError(), UnsupportedError, "the query: RuntimeError"),
        (PySparkException(OF_THE_PARSER), NameProblem, "[INVALID_NUMERIC_LITERAL_RANGE] Numeric literal 1e400 is"),
    ],
)
def test_errors_of_spark(error: Exception, kind: type[Exception], what: str) -> None:
    class Session:
        def sql(self, text: str) -> object:
            raise error

    session: Any = Session()
    with pytest.raises(kind) as raised:
        Analyzer(session).schema("SELECT 1e400")
    assert what in str(raised.value)
