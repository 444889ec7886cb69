"""A commit into a table that was dropped while it was made: what was written is taken away again.

Neither Delta nor delta-rs notices: both make the folder anew, with a log that begins in its middle.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from urllib.parse import unquote

from deltaic.store.commit import Commit
from deltaic.store.log_readers import gap_in


def is_torn(path: str, version: int) -> bool:
    """Whether a version, which was just written, stands in a log without its past."""
    try:
        return gap_in(path, version) is not None
    except FileNotFoundError:
        return True


def take_back(path: str, commit: Commit) -> None:
    """The commit first: what is there without it is nobody's. Folders stay if somebody else has put something there."""
    folder = Path(path)
    log = folder / "_delta_log"
    files = [folder / unquote(file.path) for file in commit.adds]
    name = f"{commit.version:020}"
    for file in (
        log / f"{name}.json",
        log / f".{name}.json.crc",
        log / f"{name}.crc",
        log / f".{name}.crc.crc",
        *files,
    ):
        file.unlink(missing_ok=True)
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    for place in (*{file.parent for file in files} - {folder}, log, folder):
        with contextlib.suppress(OSError):
            os.rmdir(place)
