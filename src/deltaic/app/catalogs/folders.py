"""Folders of a local warehouse that go away, or make room for others: at once, by a rename."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

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
    aside = root / ".deltaic" / (_BROKEN if broken else _WHOLE) / folder.parent.name / folder.name
    aside.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(aside)
    try:
        yield
    finally:
        put_back(root)


def put_back(root: Path) -> None:
    """Ends what a process that was killed did not end: either the new table is there, or the old one is."""
    if not any(True for _ in _all_aside(root)):
        return
    with refresh_lock(root / ".deltaic" / "lock"):
        for aside in list(_all_aside(root)):
            place = root / aside.parent.name / aside.name
            if not is_table(place):
                if place.exists():
                    discard(root, place)
                aside.rename(place)
            elif aside.parent.parent.name == _BROKEN:
                discard(root, aside)
            else:
                _log.warning("%s is another table than the one that Spark made there, which is in %s", place, aside)


def _all_aside(root: Path) -> Iterator[Path]:
    for kind in (_BROKEN, _WHOLE):
        yield from (root / ".deltaic" / kind).glob("*/*")
