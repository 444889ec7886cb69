"""What a refresh did and what a check found: measured figures, printable in a terminal and a notebook."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text


class Printable(ABC):
    """Something that is told line by line: in a terminal, in a notebook, and as text."""

    @abstractmethod
    def lines(self) -> list[tuple[str, str]]: ...

    def __str__(self) -> str:
        return "\n".join(f"{name and name + ':':<14}{value}" for name, value in self.lines())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(show_header=False, box=None, pad_edge=False)
        for name, value in self.lines():
            table.add_row(Text(name, "bold"), Text(value))
        yield table

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{html.escape(n)}</th><td>{html.escape(v)}</td></tr>" for n, v in self.lines())
        return f"<table>{rows}</table>"


@dataclass(frozen=True)
class Reduced:
    """The size of a reducing algorithm's relations after so many tables were joined; or of the change of a stratum."""

    changed: str
    """The table whose change it is."""
    joined: str
    tables: int
    comes: int
    goes: int
    """Candidates: rows that may come or go."""
    stays: int
    """Existing rows."""

    def __str__(self) -> str:
        where = f" with {self.joined}" if self.tables > 1 else ""
        return f"{self.changed}{where}: {self.comes:,} may come, {self.goes:,} may go, {self.stays:,} stay"


@dataclass(frozen=True)
class Report(Printable):
    """Figures are measured; None says that one could not be."""

    view: str
    mode: str
    """incremental, full or noop."""
    technique: str
    reasons: tuple[str, ...] = ()
    rows_read: Mapping[str, int] | None = field(default_factory=dict)
    """Rows that scans handed up, per source; the change of a source counts as that source."""
    change_rows: Mapping[str, int | None] = field(default_factory=dict)
    """Rows of each source's change, as the log tells it or as it was read."""
    delta_rows: int | None = 0
    """Rows that were computed to be applied."""
    rows_changed: int | None = 0
    """Rows deleted from and inserted into the view."""
    jobs: int | None = 0
    seconds: float = 0.0
    versions: Mapping[str, int] = field(default_factory=dict)
    """The source versions that the view is now at."""
    timings: Mapping[str, float] = field(default_factory=dict)
    """Where the seconds went."""
    written_by: str = ""
    """spark, delta-rs or deletion vectors."""
    predicted: Mapping[str, float] = field(default_factory=dict)
    """Seconds that each technique which was considered was thought to take."""
    rows_there: Mapping[str, int | None] = field(default_factory=dict)
    """Rows that each source has."""
    files_read: Mapping[str, int] | None = field(default_factory=dict)
    """Data files that were read, per source, as often as they were; reading a change tells none."""
    files_there: Mapping[str, int | None] = field(default_factory=dict)
    time: int | None = None
    """The time that the view, or its kept delta, was brought to, where one was asked for."""
    stages: tuple[Reduced, ...] = ()
    """By a reducing algorithm: its relations, one after the other. The last is where it had no candidates left."""
    rounds: tuple[str, ...] = ()
    """Of a recursion: what its steps found, and in how many rounds."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[tuple[str, str]]:
        found = [
            ("view", self.view),
            ("mode", self.mode),
            ("technique", self.technique),
            *(("reason", reason) for reason in self.reasons),
            ("rows read", _read(self.rows_read, self.rows_there)),
            ("files read", _read(self.files_read, self.files_there)),
            *(("reduced", str(stage)) for stage in self.stages),
            *(("rounds", told) for told in self.rounds),
            ("delta rows", _count(self.delta_rows)),
            ("rows changed", _count(self.rows_changed)),
            ("Spark jobs", _count(self.jobs)),
            ("seconds", f"{self.seconds:.3f}"),
            *([("time", str(self.time))] if self.time is not None else []),
            ("sources at", ", ".join(f"{name} v{v}" for name, v in self.versions.items())),
        ]
        if self.written_by:
            found.append(("written by", self.written_by))
        if self.predicted:
            found.append(("predicted", ", ".join(f"{name} {value:.2f} s" for name, value in self.predicted.items())))
        return found


ROWS_SHOWN = 20
"""Of those that differ."""
EQUAL, DIFFERS, DAMAGED, UNCERTAIN = "equal", "differs", "damaged", "uncertain"


@dataclass(frozen=True)
class Check(Printable):
    """What a check found. `missing` and `extra` are rows that people see; `state` counts those of all that is stored,
    which the next refresh relies on, and is None where that was not compared."""

    view: str
    verdict: str
    """equal, differs, damaged (it cannot be read, or has other columns), or uncertain (it could not be told)."""
    missing: int = 0
    extra: int = 0
    state: int | None = None
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    """The first rows that differ: how often each is missing (or, less than 0, too many), then its values."""
    compared: int | None = None
    """How many of the view's rows were looked at."""
    sample: str | None = None
    notes: tuple[str, ...] = ()
    hint: str | None = None
    versions: Mapping[str, int] = field(default_factory=dict)
    """The source versions that the view was made of, and its query was run at."""
    commits_behind: Mapping[str, int | None] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def right(self) -> bool:
        return self.verdict == EQUAL

    @property
    def wrong(self) -> bool:
        return self.verdict in (DIFFERS, DAMAGED)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[tuple[str, str]]:
        late = {key: count for key, count in self.commits_behind.items() if count != 0}
        behind = [f"{key} is gone" if count is None else f"{key} {count:,}" for key, count in late.items()]
        found = [("view", self.view), ("verdict", self.verdict)]
        if self.compared is not None:
            found.append(("rows compared", f"{self.compared:,}" + (f" ({self.sample})" if self.sample else "")))
        if self.verdict in (DIFFERS, UNCERTAIN) and self.compared is not None:
            found.append(("differing", self.told))
        found += [("row", f"{row[0]:+,} {_shown(self.columns[1:], row[1:])}") for row in self.rows]
        found += [("note", note) for note in self.notes]
        found += [("what to do", self.hint)] if self.hint else []
        found.append(("sources at", ", ".join(f"{name} v{v}" for name, v in self.versions.items())))
        found.append(("behind", f"{', '.join(behind)} commits: stale" if behind else "none: fresh"))
        found.append(("seconds", f"{self.seconds:.3f}"))
        return found

    @property
    def told(self) -> str:
        parts = [f"{self.missing:,} missing, {self.extra:,} extra"]
        if self.state:
            parts.append(f"{self.state:,} rows of what is stored")
        return "; ".join(parts)


def _shown(names: Sequence[str], values: Sequence[Any]) -> str:
    pairs = zip(names, values, strict=True)
    return ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in pairs)


@dataclass(frozen=True)
class Repair(Printable):
    """What a repair did: `none`; `recomputed`, in the view's own table; or `rebuilt`, of what its log still said."""

    view: str
    action: str
    before: Check
    after: Check
    refresh: Report | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[tuple[str, str]]:
        found = [("view", self.view), ("before", _verdict(self.before)), ("repair", self.action)]
        if self.action == "none" and not self.before.right:
            found.append(("what to do", "repair with force (--force) computes it anew whatever the check says."))
        if self.action != "none":
            found.append(("after", _verdict(self.after)))
        return found


def _verdict(check: Check) -> str:
    counted = f" ({check.told})" if check.verdict == DIFFERS else ""
    notes = f": {'; '.join(check.notes)}" if check.notes else ""
    return f"{check.verdict}{counted}{notes}"


def _read(read: Mapping[str, int] | None, there: Mapping[str, int | None]) -> str:
    if read is None:
        return "not measured"
    known = {name: f" of {count:,}" for name, count in there.items() if count is not None}
    return ", ".join(f"{name} {count:,}{known.get(name, '')}" for name, count in read.items()) or "none"


def _count(number: int | None) -> str:
    return "not measured" if number is None else f"{number:,}"
