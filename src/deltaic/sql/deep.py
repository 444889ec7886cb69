"""Room for functions that call themselves once per level of a text that nests deeply."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

FRAMES = 20_000
"""Calls inside one another; sqlglot's parser takes about 22 for a pair of parentheses."""
_STACK = 256 * 1024 * 1024
"""Bytes, of which those that are used are taken: 12,000 for a call are more than any Python needs."""
_one_at_a_time = threading.Lock()

_T = TypeVar("_T")


def with_room(work: Callable[[], _T]) -> _T:
    """What `work` gives; where it calls itself too often for the usual stack, it is done again on a larger one.

    RecursionError if that is not enough. How deep calls may go is a setting of the whole process, so there is one such
    at a time; to other threads it means nothing.
    """
    try:
        return work()
    except RecursionError:
        pass
    with _one_at_a_time:
        return _on_large_stack(work)


def _on_large_stack(work: Callable[[], _T]) -> _T:
    done: list[_T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:
            failed.append(error)

    usual, size = sys.getrecursionlimit(), threading.stack_size(_STACK)
    try:
        thread = threading.Thread(target=run, name="deltaic-deep", daemon=True)
        sys.setrecursionlimit(max(usual, FRAMES))
        thread.start()
        threading.stack_size(size)
        thread.join()
    finally:
        threading.stack_size(size)
        sys.setrecursionlimit(usual)
    if failed:
        raise failed[0]
    return done[0]
