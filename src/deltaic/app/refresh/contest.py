"""Work on a view that others may work on: who loses begins again, and is told if that does not help.

Of two commits with one number Delta takes one. The other one's work is planned anew, on top of the first: it may find
that nothing is left to do. A view that was dropped meanwhile is missing, whatever it was that failed for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from deltaic.app.catalogs.catalog import Catalog
from deltaic.errors import ConcurrentRefresh, MissingError, NameProblem, SourceError

_log = logging.getLogger(__name__)
ATTEMPTS = 5

Name = tuple[str, str]
Result = TypeVar("Result")


def contested(catalog: Catalog, name: Name, work: Callable[[], Result]) -> Result:
    """Do some work on the view of this name, which changes nothing where it fails."""
    try:
        return again_if_beaten(work)
    except MissingError:
        raise
    except Exception as error:  # Spark, Connect and delta-rs share no class
        if isinstance(error, ConcurrentRefresh) or not catalog.is_gone(*name):
            raise
        raise MissingError(f"{'.'.join(name)} was dropped meanwhile") from error


def again_if_beaten(work: Callable[[], Result], attempts: int = ATTEMPTS) -> Result:
    try:
        return work()
    except ConcurrentRefresh as lost:
        if attempts == 1:
            raise
        _log.info("%s; it is done again", lost.what)
    return again_if_beaten(work, attempts - 1)


def unless_gone(catalog: Catalog, name: Name, ask: Callable[[], Result]) -> Result | None:
    """What is asked of a view; None if it was dropped meanwhile: who asks for all views is not to stumble over one."""
    try:
        return ask()
    except (SourceError, MissingError, NameProblem):  # its schema may be dropped too
        if catalog.is_gone(*name):
            return None
        raise
