"""What is missing, wrong or slow, told from plain facts: every judgement of the doctor, without Spark or a machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deltaic.app.values.report import Printable
from deltaic.spark.java import HOW_TO_GET_IT, OLDEST

ERROR, WARNING, NOTE, FINE = "error", "warning", "note", "fine"
SEVERITIES = (ERROR, WARNING, NOTE, FINE)
"""It does not work; it is slow or will not work for long; worth knowing; as it should be."""

GB = 1 << 30
_TESTED_JAVA = (17, 21)
_SHARED = ("nfs", "cifs", "smb", "9p", "fuse", "lustre", "ceph", "glusterfs", "vboxsf")


@dataclass(frozen=True)
class Finding:
    severity: str
    about: str
    what: str
    do: str | None = None

    def __str__(self) -> str:
        return f"{self.severity}: {self.about}: {self.what}" + (f"\n  {self.do}" if self.do else "")


@dataclass(frozen=True)
class Diagnosis(Printable):
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == ERROR]

    def as_dict(self) -> dict[str, Any]:
        return {"findings": [asdict(finding) for finding in self.sorted()]}

    def sorted(self) -> list[Finding]:
        """Worst first; else in the order they were found."""
        return sorted(self.findings, key=lambda finding: SEVERITIES.index(finding.severity))

    def lines(self) -> list[tuple[str, str]]:
        return [
            line
            for f in self.sorted()
            for line in [(f.severity, f"{f.about}: {f.what}"), *([("", f.do)] if f.do else [])]
        ]


# the machine


def judge_java(command: str | None, version: int | None) -> Finding:
    if command is None:
        return Finding(ERROR, "Java", f"there is none, and Spark needs {OLDEST} or newer", HOW_TO_GET_IT)
    if version is None:
        return Finding(ERROR, "Java", f"{command} does not run", HOW_TO_GET_IT)
    if version < OLDEST:
        return Finding(ERROR, "Java", f"{command} is Java {version}, and Spark needs {OLDEST}", HOW_TO_GET_IT)
    if version not in _TESTED_JAVA:
        tested = " and ".join(map(str, _TESTED_JAVA))
        return Finding(NOTE, "Java", f"Java {version} is not one that Spark is made for: {tested} are", HOW_TO_GET_IT)
    return Finding(FINE, "Java", f"Java {version}, {command}")


def judge_python(version: tuple[int, int], required: str | None) -> Finding:
    told = f"Python {version[0]}.{version[1]}"
    if required is not None and not allows(required, f"{version[0]}.{version[1]}"):
        return Finding(ERROR, "Python", f"{told} is not {required}", "Make the virtual environment with another one.")
    return Finding(FINE, "Python", told)


_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?([^;()]*)\)?\s*(;.*)?")


def judge_packages(requirements: Sequence[str], installed: Mapping[str, str | None]) -> list[Finding]:
    """`requirements` as the package states them; those of extras are for who asked for them."""
    found, fine = [], []
    for requirement in requirements:
        match = _REQUIREMENT.fullmatch(requirement.strip())
        if match is None or "extra" in (match[3] or ""):
            continue
        name, wanted, there = match[1], match[2].strip(), installed.get(match[1])
        if there is None:
            found.append(Finding(ERROR, "packages", f"{name} is not installed", f"pip install '{name}{wanted}'"))
        elif not allows(wanted, there):
            what = f"{name} is {there}, and Deltaic was tested with {wanted}"
            found.append(
                Finding(ERROR if "==" in wanted else WARNING, "packages", what, f"pip install '{name}{wanted}'")
            )
        elif "==" in wanted:
            fine.append(f"{name} {there}")
    return [*found, Finding(FINE, "packages", ", ".join(fine))] if fine else found


def allows(wanted: str, version: str) -> bool:
    """Whether a version is in a range like `>=1.3,<2`."""
    own = _numbers(version)
    for part in filter(None, (part.strip() for part in wanted.split(","))):
        match = re.fullmatch(r"(==|>=|<=|<|>|!=|~=)\s*([\w.*+!-]+)", part)
        if match is None:
            continue
        sign, limit = match[1], _numbers(match[2])
        here = (*own, *[0] * (len(limit) - len(own)))
        there = (*limit, *[0] * (len(here) - len(limit)))
        ok = {
            "==": here == there, "!=": here != there, ">=": here >= there, "<=": here <= there,
            "<": here < there, ">": here > there, "~=": here >= there and here[: len(limit) - 1] == limit[:-1],
        }  # fmt: skip
        if not ok[sign]:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[+a-z-]", version, maxsplit=1)[0]))


def judge_memory(total: int | None, driver: str) -> Finding:
    """`total`: bytes that this process may use, by the machine or by its container."""
    wanted = bytes_of(driver)
    if total is None or wanted is None:
        return Finding(NOTE, "memory", f"Spark's driver takes {driver}; how much there is, the machine does not say")
    if wanted > 0.8 * total:
        do = f"Set DELTAIC_DRIVER_MEMORY to {max(total // 4 >> 20, 512)}m, or give the machine more."
        return Finding(WARNING, "memory", f"Spark's driver takes {driver} of {total / GB:.1f} GB", do)
    if total < 2 * GB:
        what = f"{total / GB:.1f} GB, of which Spark's driver takes {driver}"
        return Finding(WARNING, "memory", what, "Spark works with less than 2 GB, and not well.")
    return Finding(FINE, "memory", f"{total / GB:.1f} GB, of which Spark's driver takes {driver}")


def bytes_of(text: str) -> int | None:
    """A size as Java has it: 4g, 1024m."""
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[match[2]] if match else None


def judge_disk(place: str, free: int) -> Finding:
    if free < GB // 4:
        return Finding(ERROR, "disk", f"{free >> 20:,} MB are free at {place}", "Make room: a write would fail.")
    if free < 2 * GB:
        return Finding(WARNING, "disk", f"{free / GB:.1f} GB are free at {place}", "VACUUM tables, or make room.")
    return Finding(FINE, "disk", f"{free / GB:,.0f} GB are free at {place}")


def judge_filesystem(place: str, kind: str | None, lock: str | None) -> Finding:
    """`lock`: why a lock file cannot be held there, if it cannot."""
    if lock is not None:
        do = (
            "Put the warehouse on a disk of this machine: without its lock two writers could lose each other's commits."
        )
        return Finding(ERROR, "lock", f"{place} cannot be locked: {lock}", do)
    if kind is not None and kind.startswith(_SHARED):
        do = "Use it from one machine only, or a session's catalog on an object store or HDFS."
        return Finding(WARNING, "lock", f"{place} is on {kind}, whose locks other machines may not see", do)
    return Finding(FINE, "lock", f"{place} can be locked" + (f" ({kind})" if kind else ""))


# the session


@dataclass(frozen=True)
class SessionFacts:
    master: str | None
    cores: int
    delta: bool
    settings: Mapping[str, str | None]


SNAPSHOT = "spark.databricks.delta.snapshotPartitions"
SHUFFLE, ADAPTIVE = "spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled"
CATALOG, ARROW = "spark.sql.catalog.spark_catalog", "spark.sql.execution.arrow.pyspark.enabled"
LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
LOOKED_AT = (SNAPSHOT, SHUFFLE, ADAPTIVE, CATALOG, ARROW, LISTING)


def judge_session(facts: SessionFacts) -> list[Finding]:
    build = "Build the session with deltaic.configure(SparkSession.builder)."
    if not facts.delta:
        return [Finding(ERROR, "session", "it has no Delta Lake: its extension is not set", build)]
    found = []
    if not (facts.settings.get(CATALOG) or "").endswith("DeltaCatalog"):
        what = f"{CATALOG} is not Delta's: CREATE TABLE ... USING delta and time travel by name do not work"
        found.append(Finding(ERROR, "session", what, build))
    local = (facts.master or "").startswith("local")
    many = _number(facts.settings.get(SNAPSHOT), 50)
    if many > max(4, 2 * facts.cores):
        what = f"{SNAPSHOT} is {many}: every commit and every read of an old version starts so many tasks"
        do = f"Set it to {max(2, facts.cores)}. On two cores, 50 of them took 2 to 3 seconds of a commit."
        found.append(Finding(WARNING if local else NOTE, "session", what, do))
    shuffle = _number(facts.settings.get(SHUFFLE), 200)
    if local and shuffle > 4 * facts.cores:
        what = f"{SHUFFLE} is {shuffle} on {facts.cores} cores: small queries spend their time on starting tasks"
        found.append(Finding(WARNING, "session", what, f"Set it to {facts.cores}."))
    if (facts.settings.get(ADAPTIVE) or "true").lower() == "false":
        found.append(Finding(WARNING, "session", f"{ADAPTIVE} is false", "Set it to true: joins find their best way."))
    if (facts.settings.get(ARROW) or "false").lower() == "false":
        found.append(Finding(NOTE, "session", f"{ARROW} is false", "Set it to true: toPandas is many times faster."))
    if local and _number(facts.settings.get(LISTING), 10_000) > 100 * facts.cores:
        what = f"{LISTING} is large: VACUUM takes over a minute on two cores"
        found.append(Finding(NOTE, "session", what, f"Set it to {facts.cores}."))
    where = facts.master or "Spark Connect"
    return found or [Finding(FINE, "session", f"{where}, with Delta Lake, and settings that fit")]


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() else default


# the warehouse


@dataclass(frozen=True)
class TableFacts:
    name: str
    change_feed: bool
    files: int | None
    bytes: int | None
    commits: int | None
    """Since the newest checkpoint, or since ever if there is none."""


def judge_source(facts: TableFacts) -> list[Finding]:
    found = []
    if not facts.change_feed:
        what = f"{facts.name} has no change feed: its change is found by comparing files"
        do = f"ALTER TABLE {facts.name} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        found.append(Finding(NOTE, "source", what, do))
    files, size = facts.files or 0, facts.bytes or 0
    if files > 200 and size / files < 4 << 20:
        what = f"{facts.name} has {files:,} files of {size / files / (1 << 20):.1f} MB on average"
        found.append(Finding(WARNING, "source", what, f"OPTIMIZE {facts.name} makes few of many."))
    if facts.commits is not None and facts.commits > 100:
        what = f"{facts.name} has {facts.commits:,} commits without a checkpoint: each is read to open it"
        do = (
            f"Delta makes one every 10 commits, unless delta.checkpointInterval of {facts.name} says otherwise: set it."
        )
        found.append(Finding(WARNING, "source", what, do))
    return found


@dataclass(frozen=True)
class ViewFacts:
    name: str
    behind: Mapping[str, int | None]
    recomputed: str | None
    """Why every refresh of it recomputes, if it does."""
    hint: str | None
    last_reasons: Sequence[str] = ()
    """Why its last refresh was a recompute."""
    edited: str | None = None


def judge_view(facts: ViewFacts) -> list[Finding]:
    found = []
    gone = [key for key, count in facts.behind.items() if count is None]
    if gone:
        do = "Make the table again, or repair it; or ALTER the view, or DROP it."
        what = f"{facts.name}: its source {', '.join(gone)} is gone or cannot be read"
        found.append(Finding(ERROR, "view", what, do))
    late = {key: count for key, count in facts.behind.items() if count}
    if late:
        told = ", ".join(f"{key} {count:,}" for key, count in late.items())
        found.append(Finding(NOTE, "view", f"{facts.name} is stale: behind by commits of {told}", "Refresh it."))
    if facts.edited is not None:
        do = f"deltaic check {facts.name} says whether it is still right; its next refresh recomputes it."
        found.append(Finding(WARNING, "view", f"{facts.name}: {facts.edited}", do))
    if facts.recomputed is not None:
        what = f"{facts.name} is recomputed by every refresh: {facts.recomputed}"
        found.append(
            Finding(WARNING, "view", what, facts.hint or "docs/reasons.md says what would make it incremental.")
        )
    elif facts.last_reasons:
        what = f"{facts.name} was recomputed by its last refresh: {'; '.join(facts.last_reasons)}"
        found.append(Finding(NOTE, "view", what))
    return found


SLOT_BEHIND = 1 << 30


def judge_slot(source: str, slot: str, behind: int | None, status: str | None) -> Finding:
    """`behind`: bytes of the server's write-ahead log that it keeps for the slot; None if there is no such slot."""
    if behind is None or status == "lost":
        what = f"{source}: the replication slot {slot} is {'invalidated' if status else 'gone'}"
        return Finding(
            ERROR, "PostgreSQL", what, "Refresh a view over it: its capture begins anew, and it is recomputed."
        )
    if behind > SLOT_BEHIND or status == "unreserved":
        what = f"{source}: the replication slot {slot} is behind by {behind / GB:.1f} GB, which the server keeps for it"
        do = "Refresh the views over it, or run deltaic run; detach(name) lets a source go that nobody needs."
        return Finding(WARNING, "PostgreSQL", what, do)
    return Finding(FINE, "PostgreSQL", f"{source}: the replication slot {slot} is behind by {behind >> 20:,} MB")
