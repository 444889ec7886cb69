"""Pictures of a warehouse's folder while something is done in it. A process that is killed leaves such a folder behind:
each picture can be opened as a warehouse of its own, in the process that took it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow.parquet as pq
from pyspark import SparkContext
from pyspark.sql import DataFrameWriter
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.session import SparkSession

from deltaic.app.refresh.run import Run
from deltaic.store import marks, rs_write

_WRITING: tuple[tuple[Any, str], ...] = (
    (Run, "take"),
    (SparkSession, "sql"),
    (DataFrameWriter, "parquet"),
    (rs_write, "apply"),
    (rs_write, "overwrite"),
    (rs_write, "commit_nothing"),
    (marks, "_written"),
    (pq, "write_table"),
    (os, "link"),
    (os, "replace"),
    (Path, "rename"),
    (Path, "unlink"),
    (Path, "mkdir"),
    (shutil, "rmtree"),
)
"""Whatever may change a file; a picture is taken before and after each call."""


class Camera:
    def __init__(self, root: Path, album: Path) -> None:
        self.root, self.album = root, album
        self.taken: list[Path] = []
        self.seen = {self.state()}
        self.busy = False
        self.in_spark = False

    def state(self) -> frozenset[tuple[str, int]]:
        """All files and folders by name and size. Names in a Delta table are given once."""
        found: set[tuple[str, int]] = set()
        for folder, folders, files in os.walk(self.root):
            found.update((os.path.join(folder, name), -1) for name in folders)
            for name in files:
                file = os.path.join(folder, name)
                if name != "lock" and os.path.exists(file):
                    found.add((file, os.path.getsize(file)))
        return frozenset(found)

    def shoot(self) -> None:
        """A copy, if there is none like it."""
        if self.busy:
            return
        self.busy = True
        try:
            state = self.state()
            if state not in self.seen:
                self.seen.add(state)
                self.taken.append(self.album / f"{len(self.taken):03}")
                shutil.copytree(self.root, self.taken[-1], symlinks=True)
        finally:
            self.busy = False

    @contextmanager
    def filming(self, *, inside_of_statements: bool) -> Iterator[None]:
        with ExitStack() as undo:
            for owner, name in _WRITING:
                self.watch(owner, name, undo)
            if inside_of_statements:
                undo.enter_context(self.stopping_spark())
            yield

    def watch(self, owner: Any, name: str, undo: ExitStack) -> None:
        real = getattr(owner, name)
        is_spark = owner in (SparkSession, DataFrame, DataFrameWriter)

        def watched(*arguments: Any, **named: Any) -> Any:
            self.shoot()
            self.in_spark = is_spark and not self.busy
            try:
                return real(*arguments, **named)
            finally:
                self.in_spark = False
                self.shoot()

        setattr(owner, name, watched)
        undo.callback(setattr, owner, name, real)

    @contextmanager
    def stopping_spark(self) -> Iterator[None]:
        """Pictures inside of Spark's statements too, again and again: its JVM is stopped while each is taken."""
        over, jvm = Event(), SparkContext._gateway.proc.pid  # type: ignore[union-attr]

        def stop_and_shoot() -> None:
            while not over.is_set():
                if self.in_spark and not self.busy:
                    os.kill(jvm, signal.SIGSTOP)
                    try:
                        if self.in_spark:
                            self.shoot()
                    finally:
                        os.kill(jvm, signal.SIGCONT)
                time.sleep(0.02)

        thread = Thread(target=stop_and_shoot)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
