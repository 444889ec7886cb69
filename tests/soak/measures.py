"""What is measured all along a soak, and what of it is too much."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILES, LOG, MEGABYTES = 120, 400, 60
"""Of one table of Deltaic's own, with all that is within its retention: data files, files of the log, bytes."""

DISTURBED = 0.25
"""Of one processor."""


@dataclass(frozen=True)
class Sizes:
    """Of the largest table that Deltaic writes, by each measure."""

    files: int
    log: int
    megabytes: float

    @staticmethod
    def of(folders: Sequence[Path]) -> Sizes:
        files, log, sizes = [0], [0], [0.0]
        for folder in folders:
            found = [(file, size) for file in folder.rglob("*") if (size := size_of(file)) is not None]
            log.append(sum(file.parent.name == "_delta_log" for file, _ in found))
            files.append(len(found) - log[-1])
            sizes.append(sum(size for _, size in found) / 1e6)
        return Sizes(max(files), max(log), round(max(sizes), 1))

    def problems(self) -> list[str]:
        limits = ((self.files, FILES, "data files"), (self.log, LOG, "log files"), (self.megabytes, MEGABYTES, "MB"))
        return [f"a table has {found} {what}, more than {most}" for found, most, what in limits if found > most]


def size_of(file: Path) -> int | None:
    """None for a folder, and for what was taken away meanwhile."""
    try:
        return file.stat().st_size if file.is_file() else None
    except OSError:
        return None


def growth(points: Sequence[tuple[float, float]]) -> float:
    """How much a measure grew over the second half of some time, by the straight line that fits best."""
    later = points[len(points) // 2 :]
    if len(later) < 5:
        return 0.0
    slope, _ = statistics.linear_regression([x for x, _ in later], [y for _, y in later])
    return slope * (later[-1][0] - later[0][0])


def is_disturbed(others: Sequence[float]) -> bool:
    """Whether others than the worker used more of the processors towards the end of some time than at its beginning:
    then how long anything took says nothing."""
    third = len(others) // 3
    return third > 0 and statistics.mean(others[-third:]) > statistics.mean(others[:third]) + DISTURBED


def drift(events: Sequence[dict[str, Any]]) -> list[str]:
    """Views whose incremental refreshes took longer in the last third than in the first; upkeep is not counted."""
    found = []
    taken: dict[str, list[float]] = {}
    for event in events:
        if event["kind"] == "refresh" and event["mode"] == "incremental":
            taken.setdefault(event["view"], []).append(event["seconds"] - event["upkeep"])
    for view, seconds in taken.items():
        third = len(seconds) // 3
        first, last = seconds[:third], seconds[-third:]
        if third >= 10 and statistics.median(last) > 2 * statistics.median(first) + 0.5:
            told = f"{statistics.median(first):.2f} s to {statistics.median(last):.2f} s"
            found.append(f"refreshes of {view} went from {told}")
    return found


@dataclass
class Tally:
    """What the workers told."""

    file: Path
    place: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    events: list[dict[str, Any]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def read(self) -> None:
        """What is new; a line that was not finished is read the next time, or never, if its writer was killed."""
        if not self.file.exists():
            return
        with self.file.open() as lines:
            lines.seek(self.place)
            for line in iter(lines.readline, ""):
                if not line.endswith("\n"):
                    break
                self.place = lines.tell()
                self.add(line)

    def add(self, line: str) -> None:
        try:
            event = json.loads(line)
        except ValueError:  # one that was killed, and the first of the next process
            self.counts["lines lost"] += 1
            return
        self.events.append(event)
        self.counts[event["kind"]] += 1
        if event["kind"] == "refresh":
            self.counts[f"refreshes {event['mode']}"] += 1
        if event["kind"] == "check":
            self.counts[f"checks {event['verdict']}"] += 1
        if event["kind"] == "finding":
            self.findings.append(json.dumps(event, indent=1).replace("\\n", "\n"))
