"""One refresher at a time on a local warehouse, across threads and processes.

Delta's commit on a local file system is atomic only inside one JVM, and delta-rs commits outside of it.
Object stores and HDFS need no lock of ours.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from deltaic.errors import ConcurrentRefresh

_POLL = 0.02
_held = threading.local()


@contextlib.contextmanager
def refresh_lock(path: str | Path, timeout: float = 600.0) -> Iterator[None]:
    """Hold the lock file `path` exclusively; its folder is made if need be.

    The thread that holds it may take it again. The system releases it when the process ends, however it ends,
    so a killed refresh leaves nothing to clean up. ConcurrentRefresh if it is not free within `timeout`
    seconds.
    """
    file = os.path.realpath(path)
    if file in _mine():
        yield
        return
    descriptor = _acquired(file, timeout)
    _mine().add(file)
    try:
        yield
    finally:
        _mine().discard(file)
        os.close(descriptor)


def _mine() -> set[str]:
    """The locks of this thread."""
    if not hasattr(_held, "files"):
        _held.files = set()
    files: set[str] = _held.files
    return files


def _acquired(file: str, timeout: float) -> int:
    """An open, locked descriptor. The lock is its own, so threads exclude each other as processes do."""
    os.makedirs(os.path.dirname(file), exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _wait(descriptor, file, timeout)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "since": int(time.time())}).encode(), 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _wait(descriptor: int, file: str, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise _busy(descriptor, file, timeout) from None
        time.sleep(_POLL)


def _busy(descriptor: int, file: str, timeout: float) -> ConcurrentRefresh:
    try:
        holder = json.loads(os.pread(descriptor, 200, 0))
        who = f"process {holder['pid']}, for {int(time.time()) - holder['since']} s"
    except (ValueError, KeyError):
        who = "another process"
    return ConcurrentRefresh(
        f"the warehouse is still being written by {who}; waited {timeout:g} s",
        hint=f"Wait for it to end. If that process hangs, end it: the lock {file} is then free.",
    )
