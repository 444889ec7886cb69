"""What must be true of every commit of a view, looked at as soon as it is made."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import duckdb

from deltaic.algebra.nodes import SHOWN
from deltaic.app.refresh.why_full import digest
from deltaic.app.values.definition import PROPERTY, Definition, definition_in
from deltaic.store.commit import Commit, parse_commit
from deltaic.store.progress import Progress
from deltaic.store.state import read_state_rs
from deltaic.store.table import table_at

Rows = Counter[tuple[object, ...]]
SOURCES = ("s", "r")


@dataclass(frozen=True)
class State:
    """A view at one of its commits: its columns, and the rows that people see."""

    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[object, ...], int], ...]

    @staticmethod
    def of(columns: tuple[str, ...], rows: Rows) -> State:
        return State(columns, tuple(sorted(rows.items(), key=repr)))


class Witness:
    """Of the view `name`, whose table is in a folder; its sources' tables are in folders of their own."""

    def __init__(self, name: str, folder: Path, sources: Path) -> None:
        self.name, self.folder, self.sources = name, folder, sources
        self.states: list[State] = []
        """All that the view ever was."""
        self.commits = 0
        self.seen: dict[tuple[int, str], Commit] = {}
        self.definition: Definition | None = None
        self.last: Progress | None = None
        self.table: str | None = None
        self.may_go_back = False
        """Whether somebody asks for a time of the past."""

    def look(self) -> None:
        """At all commits that were not there before. Nobody runs meanwhile."""
        log = self.folder / "_delta_log"
        for file in sorted(log.glob("*.json")) if log.is_dir() else ():
            key = (file.stat().st_ino, file.name)
            if file.name[:20].isdigit() and key not in self.seen:
                self.seen[key] = parse_commit(int(file.name[:20]), file.read_text("utf-8"))
                self.judge(self.seen[key])

    def judge(self, commit: Commit) -> None:
        if commit.metadata is not None:
            if commit.version == 0:
                self.last = None  # it was dropped, and made anew
            told = dict(commit.metadata.properties)
            self.definition = definition_in(told, "default", self.name) if PROPERTY in told else None
        progress = Progress.of(commit)
        if progress is None:
            assert not commit.data_change, f"commit {commit.version} ({commit.operation}) says nothing of itself"
            return
        self.commits += 1
        assert self.definition is not None, f"refresh {progress.refresh} has no definition"
        self.follows(progress, commit)
        found, expected = self.found(commit, self.definition), self.expected(self.definition, progress)
        assert found == expected, (
            f"refresh {progress.refresh} (version {commit.version}, {progress.technique}) is not"
            f" {self.definition.query}:"
            f" {dict(found - expected)} too much, {dict(expected - found)} missing; {dict(progress.sources)}"
        )
        self.states.append(State.of(tuple(self.definition.columns), found))

    def follows(self, progress: Progress, commit: Commit) -> None:
        assert self.definition is not None
        told = progress.figures.get("definition")
        assert told == digest(self.definition), f"refresh {progress.refresh} is of another query than the view's"
        if self.last is not None:
            assert progress.refresh == self.last.refresh + 1, f"refresh {progress.refresh} after {self.last.refresh}"
            for key, state in progress.sources.items():
                before = self.last.sources.get(key)
                back = before is not None and before.version > state.version
                assert self.may_go_back or not back, f"{key} went back at refresh {progress.refresh}"
        self.last = progress

    def found(self, commit: Commit, definition: Definition) -> Rows:
        ref = table_at(self.folder)
        columns = {name: name for name in definition.columns}
        from deltaic.store.log import Log

        shown = SHOWN if SHOWN in Log(ref).snapshot(commit.version).columns else None
        rows = read_state_rs(ref, commit.version, columns, shown)
        return Counter(tuple(row.values()) for row in rows.to_pylist())

    def expected(self, definition: Definition, progress: Progress) -> Rows:
        with duckdb.connect() as connection:
            for name in SOURCES:
                state = progress.sources.get(f"default.{name}")
                if state is not None:
                    place = table_at(self.sources / name)
                    connection.register(name, read_state_rs(place, state.version, {"k": "k", "v": "v"}))
            return Counter(connection.execute(definition.query).fetchall())
