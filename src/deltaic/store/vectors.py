"""Deletion vectors, as Delta's protocol has them: which rows of a data file are no longer there, by their place.

A vector is a set of numbers in the portable Roaring format, inside the log or in a file beside the data.
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyroaring import BitMap

_MAGIC = 1681511377
_FILE_VERSION = b"\x01"
_HEAD = struct.Struct("<iqI")
"""The magic number, how many sets of 32-bit numbers follow, and the high half of the first one's numbers."""
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85, _FROM_Z85 = bytes.maketrans(_B85, _Z85), bytes.maketrans(_Z85, _B85)


@dataclass(frozen=True)
class NewVectors:
    """Vectors to write: descriptions for the log, and the file that holds them, if there are any.

    The protocol also knows vectors inside of the log. Spark's VACUUM (Delta 4.4) fails over those: `scala.MatchError`.
    """

    descriptions: Sequence[dict[str, Any]]
    file: str | None
    content: bytes


def read_vector(table: str, description: Mapping[str, Any]) -> BitMap:
    """The places of deleted rows. ValueError if the vector is damaged, or has rows beyond the first four milliard."""
    kind, where, size = description["storageType"], description["pathOrInlineDv"], description["sizeInBytes"]
    if kind == "i":
        data = _unz85(where)[:size]
    else:
        file = Path(table) / _file_name(where) if kind == "u" else Path("/" + where.removeprefix("file:").lstrip("/"))
        with file.open("rb") as opened:
            opened.seek(description.get("offset") or 0)
            framed = opened.read(size + 8)
        data = framed[4 : 4 + size]
        if struct.unpack(">iI", framed[:4] + framed[4 + size :]) != (size, zlib.crc32(data)):
            raise ValueError(f"the deletion vector in {file} is damaged")
    magic, sets, high = _HEAD.unpack_from(data) if len(data) > _HEAD.size else (*struct.unpack_from("<iq", data), 0)
    if magic != _MAGIC or sets > 1 or high:
        raise ValueError("a deletion vector of another kind than Deltaic knows")
    return BitMap.deserialize(data[_HEAD.size :]) if sets else BitMap()


def new_vectors(places: Sequence[BitMap]) -> NewVectors:
    """One for each set of places. All share one new file."""
    name = uuid.uuid4()
    content = bytearray(_FILE_VERSION)
    told = []
    for bitmap in places:
        bitmap.run_optimize()
        data = _HEAD.pack(_MAGIC, 1, 0) + bitmap.serialize()
        found: dict[str, Any] = {"sizeInBytes": len(data), "cardinality": len(bitmap)}
        told.append({"storageType": "u", "pathOrInlineDv": _z85(name.bytes), "offset": len(content), **found})
        content += struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    used = len(content) > len(_FILE_VERSION)
    return NewVectors(told, f"deletion_vector_{name}.bin" if used else None, bytes(content))


def _file_name(where: str) -> str:
    """A relative vector is named by its folder, if any, and then 20 characters for the 16 bytes of its file's name."""
    folder, name = where[:-20], uuid.UUID(bytes=_unz85(where[-20:]))
    return f"{folder}/deletion_vector_{name}.bin" if folder else f"deletion_vector_{name}.bin"


def _z85(data: bytes) -> str:
    padded = data + b"\0" * (-len(data) % 4)
    return base64.b85encode(padded).translate(_TO_Z85).decode("ascii")


def _unz85(text: str) -> bytes:
    return base64.b85decode(text.encode("ascii").translate(_FROM_Z85))
