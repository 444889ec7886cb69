"""Folders of a local warehouse that go away, or make room for others: at once, by a rename."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from deltaic.errors import ConcurrentRefresh
from deltaic.store.lock import refresh_lock

_log = logging.getLogger(__name__)
_BROKEN, _WHOLE = "aside", "away"
"""Where tables are that make room for others."""


def is_table(folder: Path) -> bool:
    """Whether a commit was ever made there; a CREATE that was killed leaves a folder without one."""
    try:
        return any(name.endswith((".json", ".parquet")) for name in os.listdir(folder / "_delta_log"))
    except (FileNotFoundError, NotADirectoryError):  # it may go while it is looked at
        return False


def discard(root: Path, folder: Path) -> None:
    """Gone at once; the files follow."""
    trash = root / ".deltaic" / "trash"
    trash.mkdir(parents=True, exist_ok=True)
    aside = trash / uuid4().hex
    folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def set_aside(root: Path, folder: Path, *, broken: bool = True) -> Iterator[None]:
    """Makes room for a table that replaces a broken one, or only for a moment; unless another table is there in the
    end, it is back. Under the warehouse's lock."""
    aside = root / ".deltaic" / (_BROKEN if broken else _WHOLE) / folder.parent.name / folder.name / uuid4().hex
    aside.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(aside)
    try:
        yield
    finally:
        put_back(root)


def put_back(root: Path) -> None:
    """Ends what a process that was killed did not end: either the new table is there, or the old one is."""
    if not _waiting(root):
        return
    try:
        with refresh_lock(root / ".deltaic" / "lock", timeout=60):
            for aside, place in _waiting(root):
                if is_table(place):
                    discard(root, aside)
                    continue
                if place.exists():
                    discard(root, place)
                place.parent.mkdir(exist_ok=True)
                aside.rename(place)
    except ConcurrentRefresh as busy:  # what is aside may be theirs
        _log.warning("%s: what is set aside stays there for now: %s", root, busy.what)


def _waiting(root: Path) -> list[tuple[Path, Path]]:
    """What is set aside, and its place. One that is whole stays where it is if another table has its place."""
    found = []
    for kind in (_BROKEN, _WHOLE):
        for aside in (root / ".deltaic" / kind).glob("*/*/*"):
            place = root / aside.parent.parent.name / aside.parent.name
            if kind == _BROKEN or not is_table(place):
                found.append((aside, place))
            else:
                _log.warning("%s is another table than the one that Spark made there, which is in %s", place, aside)
    return found
