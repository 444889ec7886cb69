"""What a process was making when it was killed, and how the next one takes it away.

What a refresh writes is one commit. A few things are made outside of one: the folder of a table before its first
commit, a capture in a server before the warehouse knows its name. A note says so beforehand, and so tells them from
what a user has put there. Whoever opens the warehouse next, while nobody writes in it, settles the notes and sweeps up.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from deltaic.app.catalogs.live import LiveTable
from deltaic.errors import ConcurrentRefresh, ExistsError
from deltaic.store.lock import refresh_lock
from deltaic.store.marks import SCRATCH
from deltaic.store.postgres.capture import drop_capture
from deltaic.store.postgres.table import PostgresTable, Retry
from deltaic.store.table import first_line

if TYPE_CHECKING:
    from deltaic.app.catalogs.local import LocalCatalog

_log = logging.getLogger(__name__)
Note = Mapping[str, str]
_DRAFT = ".deltaic-draft-"


def write_whole(file: Path, text: str) -> None:
    """All of it, or nothing."""
    draft = file.with_name(f"{_DRAFT}{uuid4().hex}.tmp")
    with draft.open("w") as written:
        written.write(text)
        written.flush()
        os.fsync(written.fileno())
    os.replace(draft, file)


class Notes:
    """A file for each thing that is being made. `settle` takes away what a note tells of, if it was not finished."""

    def __init__(self, folder: Path, settle: Callable[[Note], None]) -> None:
        self.folder, self.settle = folder, settle

    @contextmanager
    def noted(self, told: Note) -> Iterator[None]:
        """Something is made in this block, which may fail or be killed. ExistsError: nothing of it was made here."""
        self.folder.mkdir(parents=True, exist_ok=True)
        note = self.folder / f"{uuid4().hex}.json"
        write_whole(note, json.dumps(told))
        try:
            yield
        except ExistsError:
            note.unlink()
            raise
        except BaseException:
            self.settled(note)
            raise
        note.unlink()

    def settle_all(self) -> None:
        for note in sorted(self.folder.glob("*.json")):
            self.settled(note)
        sweep_drafts(self.folder)

    def settled(self, note: Path) -> None:
        """A server may be away; then the note stays for the next time."""
        try:
            told: Note = json.loads(note.read_text())
        except ValueError:  # a disk that was full, or somebody else
            _log.warning("%s says nothing", note)
            note.unlink()
            return
        try:
            self.settle(told)
        except Exception as problem:  # drivers of databases share no class
            _log.warning("what is left of %s could not be taken away: %s", dict(told), first_line(problem))
        else:
            note.unlink()


def drop_unknown_capture(live: LiveTable, name: str) -> None:
    """What an attach that was killed has left in the server, by whichever way it captured."""
    tables: list[PostgresTable] = [live.table]
    drop_capture(tables, name, "slot", Retry(attempts=1))
    drop_capture(tables, name, "triggers", Retry(attempts=1))


def sweep(catalog: LocalCatalog) -> None:
    """Take away what killed processes left in a warehouse, unless somebody writes in it: then it is theirs."""
    own = catalog.root / ".deltaic"
    try:
        with refresh_lock(own / "lock", timeout=0):
            shutil.rmtree(own / "trash", ignore_errors=True)
            catalog.notes.settle_all()
            sweep_drafts(own)
            for folder in catalog.hidden_folders():
                if catalog.is_abandoned(folder):
                    catalog.discard(folder)
            for folder in catalog.hidden_folders():
                sweep_table(folder)
            for schema in catalog.schemas():
                sweep_drafts(catalog.root / schema)
                for name, folder in catalog.tables(schema):
                    if litter_of(folder) and catalog.is_own_view(schema, name, folder):  # tables have other writers
                        sweep_table(folder)
    except ConcurrentRefresh:
        return
    except OSError as problem:  # one may read a warehouse in which one may not write
        _log.warning("%s could not be swept: %s", catalog.root, problem)


def litter_of(folder: Path) -> list[Path]:
    """In a table: drafts of commits, and folders that files are written into before a commit names them."""
    return [*folder.glob(f"{SCRATCH}*"), *(folder / "_delta_log").glob(".*.tmp")]


def sweep_table(folder: Path) -> None:
    for left in litter_of(folder):
        take_away(left)


def take_away(left: Path) -> None:
    if left.is_dir():
        shutil.rmtree(left)
    else:
        left.unlink()


def sweep_drafts(folder: Path) -> None:
    for draft in folder.glob(f"{_DRAFT}*"):
        draft.unlink()
