"""What views that are refreshed together read alike, read once: changes, and small tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from deltaic.algebra.nodes import WEIGHT
from deltaic.algebra.quoting import quote
from deltaic.delta.common import Columns, Shape
from deltaic.spark.session import is_connect, tidying
from deltaic.store.change import plan_change, read_change_rs
from deltaic.store.log import Log
from deltaic.store.state import read_state_rs
from deltaic.store.table import TableRef, data_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_SEEN_BY_ALL = "deltaic_together_"
"""How the names begin; when each was made comes next."""
_A_DAY = 86_400


class Together:
    """Changes that Spark reads, and deltas of joins, for several views. Each is refreshed in a session of its own, so
    what they share is a cached view in the catalog that all sessions see."""

    def __init__(
        self,
        spark: SparkSession,
        readers: Callable[[str], list[Sequence[str]]],
        joins: Callable[[], Mapping[tuple[object, ...], Mapping[Shape, Columns]]],
    ) -> None:
        self.spark, self.readers, self.joins = spark, readers, joins
        self.kept: dict[tuple[object, ...], tuple[str, Sequence[str]]] = {}
        """The name and the columns of what is kept."""
        self.undo = ExitStack()

    def __enter__(self) -> Together:
        if is_connect(self.spark):
            self.drop_old()
        return self

    def drop_old(self) -> None:
        """Views that all sessions see outlive a client that was killed, if not its server, and keep rows cached."""
        for row in self.spark.sql(f"SHOW VIEWS IN global_temp LIKE '{_SEEN_BY_ALL}*'").collect():
            name = str(row["viewName"])
            if time.time() - int(name.removeprefix(_SEEN_BY_ALL).split("_")[0]) > _A_DAY:
                self.spark.catalog.dropGlobalTempView(name)

    def __exit__(self, *_: object) -> None:
        self.undo.close()

    @cached_property
    def common(self) -> Mapping[tuple[object, ...], Mapping[Shape, Columns]]:
        """The joins that several views have, by the settings under which they are evaluated. Looked for only when a
        view is planned: all of them are compiled for it."""
        return self.joins()

    def change(
        self, session: SparkSession, source: str, ref: TableRef, after: int, upto: int, columns: Sequence[str]
    ) -> DataFrame | None:
        """`columns` of a change, and its counts; None if nobody else reads them."""
        key = (ref.place, after, upto)
        if key not in self.kept:
            used = self.readers(source)
            if len(used) < 2:
                return None
            self.kept[key] = self.keep(session, ref, after, upto, {name for one in used for name in one})
        name, there = self.kept[key]
        if not set(columns) <= set(there):  # the table may be known by another name too
            return None
        return session.sql(f"SELECT {', '.join(map(quote, [*columns, WEIGHT]))} FROM global_temp.{name}")

    def keep(
        self, session: SparkSession, ref: TableRef, after: int, upto: int, wanted: set[str]
    ) -> tuple[str, Sequence[str]]:
        """Those of the columns that are there, and the same, all the time: a view may be younger than this change.
        Read in the session of a refresh, where a missing file is an error."""
        log = Log(ref, self.spark)
        old, new = ({f["name"]: data_of(f) for f in log.snapshot(v).fields} for v in (after, upto))
        columns = sorted(name for name in wanted if name in old and old[name] == new.get(name))
        sql = plan_change(log, after, upto, columns, allow_rs=False).sql
        assert sql is not None
        return self.seen_by_all(session.sql(sql)), columns

    def seen_by_all(self, frame: DataFrame) -> str:
        name = f"{_SEEN_BY_ALL}{int(time.time())}_{uuid4().hex}"
        frame.createGlobalTempView(name)
        self.undo.callback(self.let_go, name)
        frame.persist()
        return name

    def let_go(self, name: str) -> None:
        """By the session that stays: the one that made it has ended with its refresh."""
        with tidying("what several views read was not let go"):
            self.spark.table(f"global_temp.{name}").unpersist()
            self.spark.catalog.dropGlobalTempView(name)

    def has(self, key: tuple[object, ...]) -> bool:
        return key in self.kept

    def delta(self, session: SparkSession, key: tuple[object, ...], sql: str) -> DataFrame:
        """What `key` stands for; the first who asks computes it."""
        if key not in self.kept:
            frame = session.sql(sql)
            self.kept[key] = self.seen_by_all(frame), frame.columns
        return session.table(f"global_temp.{self.kept[key][0]}")


@dataclass
class Shared:
    """Kept for one refresh, of one view or of all. A read says whether it was one: rows at hand are not read again."""

    _kept: dict[tuple[object, ...], pa.Table] = field(default_factory=dict)

    together: Together | None = None

    def change(self, ref: TableRef, kind: str, after: int, upto: int, columns: Sequence[str]) -> tuple[pa.Table, bool]:
        """`columns` of a change, and its counts; it is not netted, so some of its columns are as good as all."""
        return self._read(
            ("change", ref.path, kind, after, upto),
            columns,
            lambda names: read_change_rs(ref, kind, after, upto, names),
            [WEIGHT],
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
