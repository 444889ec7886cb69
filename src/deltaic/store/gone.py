"""What errors of Spark, Delta, delta-rs and Arrow say that something is not there any more, or is no file of theirs any
more. They share no class."""

from __future__ import annotations

import re

from pyspark.errors import AnalysisException

from deltaic.errors import HistoryGone

_GONE = re.compile(
    "|".join(
        (
            "DELTA_FILE_NOT_FOUND",
            "DELTA_CHANGE_DATA_FILE_NOT_FOUND",
            "DELTA_MISSING_CHANGE_DATA",
            "DELTA_VERSION_NOT_FOUND",
            "DELTA_VERSIONS_NOT_CONTIGUOUS",
            "DELTA_LOG_FILE_NOT_FOUND",
            "DELTA_TRUNCATED_TRANSACTION_LOG",
            "DELTA_NO_COMMITS_FOUND",
            "DELTA_CANNOT_RECONSTRUCT_TABLE_STATE",
            "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION",
            "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION",
            "FAILED_READ_FILE.FILE_NOT_EXIST",
            "java.io.FileNotFoundException",
            "Cannot time travel Delta table",
            r"Object at location .* not found",  # delta-rs
        )
    )
)


_DAMAGED = re.compile(
    "|".join(
        (
            "is not a Parquet file",
            "org.apache.hadoop.fs.ChecksumException",
            "can not read class org.apache.parquet",
            "org.apache.parquet.(?:io.ParquetDecodingException|hadoop.BadConfigurationException)",
            "Parquet error: ",  # delta-rs
            "Parquet (?:magic bytes not found|file size is)",  # Arrow
            "Couldn't deserialize thrift",
        )
    )
)


def is_history_gone(error: BaseException) -> bool:
    """Whether a read failed because versions or files of the past are no longer there."""
    return any(isinstance(one, HistoryGone) or _GONE.search(str(one)) for one in _chain(error))


def is_damaged(error: BaseException) -> bool:
    """Whether a read failed because a file is there, and is not what was written."""
    return any(_DAMAGED.search(str(one)) for one in _chain(error))


def _chain(error: BaseException) -> list[BaseException]:
    """An error and what it came of."""
    chain: list[BaseException] = []
    seen: BaseException | None = error
    while seen is not None and seen not in chain:
        chain.append(seen)
        seen = seen.__cause__ or seen.__context__
    return chain


def is_nothing_there(error: BaseException) -> bool:
    """Whether a table, or a version of it, could not be read since there is none; and not since a store is out of
    reach, say, or an executor was lost."""
    return isinstance(error, AnalysisException) or is_history_gone(error)
