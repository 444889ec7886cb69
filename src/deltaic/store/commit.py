"""One commit of a table's log: what it says, out of the JSON lines that it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deltaic.store.table import features, feed_on

MARKER = "deltaic"
"""The key under which a commit's userMetadata holds what Deltaic says about it."""


@dataclass(frozen=True)
class FileAction:
    """One file that a commit adds, removes or, as a part of the change feed, adds beside the table.

    The same file under another deletion vector has other rows, and is removed and added. `rows` is what it holds
    without those that are deleted, where the log says so.
    """

    path: str
    data_change: bool
    rows: int | None
    size: int | None
    partition: Mapping[str, str | None] | None
    stats: str | None


@dataclass(frozen=True)
class MetadataAction:
    """What a commit says the table is from now on."""

    table_id: str
    schema_json: str
    properties: Mapping[str, str]
    partition_columns: tuple[str, ...]

    @property
    def change_feed(self) -> bool:
        return feed_on(self.properties)


@dataclass(frozen=True)
class Commit:
    """One commit. `user_metadata` is a dictionary if Deltaic wrote it, else the text that is there."""

    version: int
    timestamp: int | None
    operation: str
    user_metadata: dict[str, Any] | str | None
    adds: tuple[FileAction, ...]
    removes: tuple[FileAction, ...]
    cdc: tuple[FileAction, ...]
    metadata: MetadataAction | None
    operation_metrics: Mapping[str, Any]
    features: frozenset[str] | None = None
    """Of the protocol from now on, if it is another one."""

    @property
    def data_change(self) -> bool:
        """Whether rows may have changed: OPTIMIZE, VACUUM and new properties say that none did."""
        return bool(self.cdc) or any(file.data_change for file in (*self.adds, *self.removes))

    @property
    def fingerprint(self) -> str:
        """Tells the commit from any other of the same number: names of files are never given twice."""
        files = [file.path for file in (*self.adds, *self.removes)]
        told = repr((self.timestamp, self.operation, files, self.metadata, self.user_metadata))
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    @property
    def marker(self) -> dict[str, Any] | None:
        """What Deltaic said of this commit; None for a commit of anyone else."""
        return self.user_metadata[MARKER] if isinstance(self.user_metadata, dict) else None


def parse_commit(version: int, text: str) -> Commit:
    """A commit file: one JSON object a line, each with the kind of its action as its only key."""
    actions: dict[str, list[dict[str, Any]]] = {}
    for line in text.split("\n"):  # other ends of lines may stand inside a string
        if line.strip():
            for kind, action in json.loads(line).items():
                actions.setdefault(kind, []).append(action)
    info = (actions.get("commitInfo") or [{}])[0]
    metadata, protocol = actions.get("metaData"), actions.get("protocol")
    return Commit(
        version=version,
        timestamp=info.get("inCommitTimestamp", info.get("timestamp")),
        operation=info.get("operation", ""),
        user_metadata=_user_metadata(info.get("userMetadata")),
        adds=tuple(_file(action) for action in actions.get("add", ())),
        removes=tuple(_file(action) for action in actions.get("remove", ())),
        cdc=tuple(_file(action) for action in actions.get("cdc", ())),
        metadata=_metadata(metadata[-1]) if metadata else None,
        operation_metrics=info.get("operationMetrics") or {},
        features=_features(protocol[-1]) if protocol else None,
    )


def _user_metadata(text: str | None) -> dict[str, Any] | str | None:
    try:
        parsed = json.loads(text or "")
    except ValueError:
        return text
    ours = isinstance(parsed, dict) and isinstance(parsed.get(MARKER), dict)
    return parsed if ours else text


def _file(action: dict[str, Any]) -> FileAction:
    vector, stats = action.get("deletionVector"), action.get("stats")
    count = json.loads(stats).get("numRecords") if stats else None
    return FileAction(
        path=action["path"],
        data_change=action.get("dataChange", True),
        rows=count - (vector["cardinality"] if vector else 0) if count is not None else None,
        size=action.get("size"),
        partition=action.get("partitionValues"),
        stats=stats,
    )


def _features(action: dict[str, Any]) -> frozenset[str]:
    named = (*(action.get("readerFeatures") or ()), *(action.get("writerFeatures") or ()))
    return features(action["minReaderVersion"], action["minWriterVersion"], named)


def _metadata(action: dict[str, Any]) -> MetadataAction:
    return MetadataAction(
        table_id=action["id"],
        schema_json=action["schemaString"],
        properties=action.get("configuration") or {},
        partition_columns=tuple(action.get("partitionColumns") or ()),
    )
