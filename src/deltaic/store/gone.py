"""What errors of Spark, Delta and delta-rs say that something is not there any more. They share no class."""

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


def is_history_gone(error: BaseException) -> bool:
    """Whether a read failed because versions or files of the past are no longer there."""
    chain: list[BaseException] = []
    seen: BaseException | None = error
    while seen is not None and seen not in chain:
        if isinstance(seen, HistoryGone) or _GONE.search(str(seen)):
            return True
        chain.append(seen)
        seen = seen.__cause__ or seen.__context__
    return False


def is_nothing_there(error: BaseException) -> bool:
    """Whether a table, or a version of it, could not be read since there is none; and not since a store is out of
    reach, say, or an executor was lost."""
    return isinstance(error, AnalysisException) or is_history_gone(error)
