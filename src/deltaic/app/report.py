"""What a refresh did: measured figures, printable in a terminal and a notebook."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text


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
class Report:
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

    def __str__(self) -> str:
        return "\n".join(f"{name + ':':<14}{value}" for name, value in self.lines())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(show_header=False, box=None, pad_edge=False)
        for name, value in self.lines():
            table.add_row(Text(name, "bold"), Text(value))
        yield table

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{html.escape(n)}</th><td>{html.escape(v)}</td></tr>" for n, v in self.lines())
        return f"<table>{rows}</table>"


def _read(read: Mapping[str, int] | None, there: Mapping[str, int | None]) -> str:
    if read is None:
        return "not measured"
    known = {name: f" of {count:,}" for name, count in there.items() if count is not None}
    return ", ".join(f"{name} {count:,}{known.get(name, '')}" for name, count in read.items()) or "none"


def _count(number: int | None) -> str:
    return "not measured" if number is None else f"{number:,}"
