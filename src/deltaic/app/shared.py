"""What views that are refreshed together read alike, read once: changes and small tables, by delta-rs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from deltaic.store.change import COUNT, read_change_rs
from deltaic.store.state import read_state_rs
from deltaic.store.table import TableRef


@dataclass
class Shared:
    """Kept for one refresh, of one view or of all. A read says whether it was one: rows at hand are not read again."""

    _kept: dict[tuple[object, ...], pa.Table] = field(default_factory=dict)

    def change(self, ref: TableRef, kind: str, after: int, upto: int, columns: Sequence[str]) -> tuple[pa.Table, bool]:
        """`columns` of a change, and its counts; it is not netted, so some of its columns are as good as all."""
        return self._read(
            ("change", ref.path, kind, after, upto),
            columns,
            lambda names: read_change_rs(ref, kind, after, upto, names),
            [COUNT],
        )

    def state(
        self, ref: TableRef, version: int, columns: Mapping[str, str], shown: str | None
    ) -> tuple[pa.Table, bool]:
        rows, read = self._read(
            ("state", ref.path, version, shown),
            list(columns),
            lambda names: read_state_rs(ref, version, {name: name for name in names}, shown),
            [],
        )
        return rows.rename_columns(list(columns.values())), read

    def _read(
        self, key: tuple[object, ...], columns: Sequence[str], read: Callable[[list[str]], pa.Table], more: list[str]
    ) -> tuple[pa.Table, bool]:
        kept = self._kept.get(key)
        wanted = dict.fromkeys(columns)
        fresh = kept is None or not wanted.keys() <= set(kept.column_names)
        if kept is None or fresh:
            others = [name for name in kept.column_names if name not in more] if kept is not None else []
            self._kept[key] = kept = read(list(dict.fromkeys([*others, *columns])))
        return kept.select([*wanted, *more]), fresh
