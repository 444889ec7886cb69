"""A commit into a table that was dropped while it was made: what was written is taken away again.

Neither Delta nor delta-rs notices: both make the folder anew, with a log that begins in its middle.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from deltaic.store.commit import Commit
from deltaic.store.log_readers import gap_in, newest_in


def is_torn(path: str, version: int) -> bool:
    """Whether a version, which was just written, stands in a log without its past. Of what is before a later checkpoint
    nothing is missing: it was cleaned up."""
    try:
        newest = max(version, newest_in(path))
        return gap_in(path, newest) is not None
    except FileNotFoundError:
        return True


def take_back(path: str, commit: Commit) -> None:
    """The commit first: what is there without it is nobody's."""
    name = f"{commit.version:020}"
    own = [f"_delta_log/{each}" for each in (f"{name}.json", f".{name}.json.crc", f"{name}.crc", f".{name}.crc.crc")]
    files = [unquote(file.path) for file in commit.adds]
    sweep(path, [*own, *files, *(str(Path(file).with_name(f".{Path(file).name}.crc")) for file in files)])


def files_in(path: str | None) -> set[str]:
    """Of a table's folder, without its log."""
    found = [] if path is None else [str(file.relative_to(path)) for file in Path(path).rglob("*") if file.is_file()]
    return {file for file in found if not file.startswith("_delta_log")}


def own_files(path: str, files: Iterable[str]) -> list[str]:
    """Those that delta-rs or this process wrote. What Spark wrote may be of somebody who makes the table anew."""
    return [file for file in files if file.endswith(".bin") or _is_ours(Path(path) / file)]


def _is_ours(file: Path) -> bool:
    if file.suffix != ".parquet":
        return False
    try:
        return "parquet-mr" not in str(pq.read_metadata(file).created_by)
    except (OSError, pa.ArrowException):
        return False


def sweep(path: str, files: Iterable[str]) -> None:
    """Takes files of a folder away, and with them folders that are empty then: others stay."""
    places = {Path(path)}
    for file in files:
        (Path(path) / file).unlink(missing_ok=True)
        places.add((Path(path) / file).parent)
    for place in sorted(places, key=lambda each: -len(each.parts)):
        with contextlib.suppress(OSError):
            os.rmdir(place)
