"""Rows that only executors have, and what is done when these are lost.

Spark computes again what a lost executor had, from where it came. `localCheckpoint` forgets where its rows came from,
which is what lets rounds go on for long: these rows end with their executor. Until its one commit a refresh has written
nothing, so the whole of it can be done again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import TypeVar

_log = logging.getLogger(__name__)
_LOST = re.compile(r"CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND|Checkpoint block rdd_\d+_\d+ not found")
_ATTEMPTS = 4
"""As many as Spark gives a task."""

Result = TypeVar("Result")


def again_if_lost(work: Callable[[], Result], what: str, attempts: int = _ATTEMPTS) -> Result:
    """Do some work that leaves nothing behind if it fails; again, from its beginning, where rows of it were lost."""
    try:
        return work()
    except Exception as error:  # classic and Connect sessions raise from different class trees
        if attempts == 1 or not is_lost(error):
            raise
    _log.warning("%s: an executor was lost, and rows with it; it is done again", what)
    return again_if_lost(work, what, attempts - 1)


def is_lost(error: Exception) -> bool:
    return _LOST.search(str(error)) is not None
