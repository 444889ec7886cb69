"""Pages of Java, told in one line."""

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException

from deltaic.errors import ComputeError, SourceError
from deltaic.spark.telling import compute_error, told_of

IN_A_TASK = """An error occurred while calling o1525.sql.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/w/v. SQLSTATE: 58030
	at org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailed(QueryExecutionErrors.scala:843)
Caused by: org.apache.spark.SparkArithmeticException: [NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION]  617.5 cannot be \
represented as Decimal(38, 22). If necessary set "spark.sql.ansi.enabled" to "false". SQLSTATE: 22003
...T `k#1`, sum(`c#2`) AS `sum#3`
	at org.apache.spark.sql.errors.DataTypeErrors$.numericValueOutOfRange(DataTypeErrors.scala:212)
	... 1 more
"""
OF_SPARK_ITSELF = """An error occurred while calling o6064.sql.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 912.0 failed 1 times
	at org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:3318)
Caused by: scala.MatchError: {"a":1} (of class org.apache.spark.unsafe.types.VariantVal)
	at org.apache.spark.sql.catalyst.expressions.InterpretedHashFunction.hash(hash.scala:619)
"""
ANALYSIS = (
    "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0. SQLSTATE: 22012\n"
    "== SQL (line 1, position 8) ==\nSELECT 1 / 0"
)
GONE = "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:///w/f/a.parquet. SQLSTATE: KD001"


@pytest.mark.parametrize(
    ("thrown", "told", "advice"),
    [
        (IN_A_TASK, "default.v could not be computed: [NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION]", "wider type"),
        (OF_SPARK_ITSELF, 'default.v could not be computed: {"a":1} (of class', None),
        (ANALYSIS, "default.v could not be computed: [DIVIDE_BY_ZERO] Division by zero.", "change those"),
        (GONE, "default.v could not be computed: [FAILED_READ_FILE.FILE_NOT_EXIST]", "RESTORE that table"),
        (
            "[SCALAR_SUBQUERY_TOO_MANY_ROWS] More than one row",
            "default.v could not be computed: [SCALAR",
            "an aggregate",
        ),
        ("", "default.v could not be computed: Spark gave no message", None),
    ],
)
def test_one_line_with_what_whose_and_what_to_do(thrown: str, told: str, advice: str | None) -> None:
    error = compute_error(PySparkException(thrown), "default.v")
    assert error.what.startswith(told)
    assert "\n" not in error.what
    assert "SQLSTATE" not in error.what
    assert (error.hint is None) == (advice is None)
    assert advice is None or advice in str(error.hint)
    assert error.what.endswith(error.told)


def test_what_is_told_already_and_what_is_a_bug_stay_as_they_are() -> None:
    for error in (SourceError("plain"), KeyError("bug")):
        with pytest.raises(type(error)), told_of("default.v"):
            raise error
    for thrown in (PySparkException(ANALYSIS), DeltaError("Kernel error"), pa.ArrowInvalid("not in range")):
        with pytest.raises(ComputeError) as raised, told_of("default.v"):
            raise thrown
        assert raised.value.__cause__ is thrown
