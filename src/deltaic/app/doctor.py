"""Looks at a machine, a session and a warehouse, and says what is missing or slow.

It is for machines on which something does not work: whatever cannot be looked at is a finding, never a crash. So
nothing that may be missing is imported before it is tried.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from deltaic.app.care import diagnosis
from deltaic.app.care.diagnosis import ERROR, FINE, NOTE, Diagnosis, Finding
from deltaic.spark.java import java_command, java_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltaic.app.catalogs.live import LiveTable
    from deltaic.app.refresh.engine import Engine
    from deltaic.store.table import TableRef

Findings = Iterator[Finding]


def doctor(path: str | os.PathLike[str] | None = None, *, spark: SparkSession | None = None) -> Diagnosis:
    """What is missing or slow on this machine, in a session, and in a warehouse: the one in a folder, or the session's.

    Without a session, a local one is started, as `deltaic.open(path)` would.
    """
    root = Path(path).expanduser().absolute() if path is not None else None
    found = [*_machine(root)]
    session = spark
    if session is None and any(finding.severity == ERROR for finding in found):
        found.append(
            Finding(NOTE, "Spark", "it was not started, and the warehouse not opened, because of these errors")
        )
    elif session is None:
        started = _tried("Spark", "It is what deltaic.open(path) would start.", _local_session)
        session, found = (None, [*found, started]) if isinstance(started, Finding) else (started, found)
    if session is not None:
        found += _looked_at("session", lambda: _session(session))
        found += _looked_at("warehouse", lambda: _warehouse(root, spark))
    return Diagnosis(tuple(found))


def _local_session() -> SparkSession:
    from deltaic.spark.session import local_session

    return local_session()


def _tried(about: str, do: str, work: Callable[[], SparkSession]) -> SparkSession | Finding:
    try:
        return work()
    except Exception as problem:
        return _problem(about, problem, do)


def _looked_at(about: str, look: Callable[[], Findings]) -> list[Finding]:
    """What was found until something went wrong, and that."""
    found: list[Finding] = []
    try:
        found.extend(look())
    except Exception as problem:
        found.append(_problem(about, problem))
    return found


def _problem(about: str, problem: Exception, do: str | None = None) -> Finding:
    from deltaic.errors import DeltaicError

    if isinstance(problem, DeltaicError):
        return Finding(ERROR, about, problem.what, problem.hint or do)
    first = str(problem).strip().split("\n", 1)[0]
    return Finding(ERROR, about, f"{type(problem).__name__}: {first}", do)


# the machine


def _machine(root: Path | None) -> Findings:
    command = java_command()
    yield diagnosis.judge_java(command, java_version(command) if command else None)
    yield from _looked_at("packages", _packages)
    yield from _looked_at("jars", _jars)
    yield from _looked_at("memory", _memory)
    places = {str(_existing(root or Path.cwd())), os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()}
    for place in sorted(places):
        if os.path.isdir(place):
            yield diagnosis.judge_disk(place, shutil.disk_usage(place).free)
    if root is not None:
        yield from _looked_at("lock", lambda: iter([_lock(_existing(root))]))


def _existing(place: Path) -> Path:
    return next(folder for folder in (place, *place.parents) if folder.is_dir())


def _packages() -> Findings:
    try:
        own = metadata.metadata("deltaic")
    except metadata.PackageNotFoundError:
        yield Finding(NOTE, "packages", "Deltaic runs from its sources; what it needs is not looked at", None)
        return
    requirements = own.get_all("Requires-Dist") or []
    names = [re.split(r"[\s\[(<>=!~;]", requirement, maxsplit=1)[0] for requirement in requirements]
    yield diagnosis.judge_python(sys.version_info[:2], own["Requires-Python"])
    yield from diagnosis.judge_packages(requirements, {name: _version(name) for name in names})


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _jars() -> Findings:
    from deltaic.spark.jars import cache_folder, jars_are_cached, repository, without_passwords

    if jars_are_cached():
        yield Finding(FINE, "jars", f"Delta Lake's are in {os.environ.get('DELTAIC_JARS') or cache_folder()}")
        return
    what = f"Delta Lake's are not on this machine: the first start fetches 12 MB from {repository()}"
    do = "Without a network set DELTAIC_JARS to a folder that holds them, or DELTAIC_MAVEN_MIRROR."
    yield Finding(NOTE, "jars", without_passwords(what), do)


def _memory() -> Findings:
    from deltaic.spark.session import driver_memory

    yield diagnosis.judge_memory(_memory_there(), driver_memory())


def _memory_there() -> int | None:
    """What the machine has, or what the container that this process is in may use of it."""
    limits = []
    with contextlib.suppress(AttributeError, ValueError, OSError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            limits.append(int(Path(file).read_text()))
    return min(limits, default=None)


def _lock(place: Path) -> Finding:
    import fcntl

    why = None
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        why = problem.strerror or str(problem)
    return diagnosis.judge_filesystem(str(place), _filesystem(place), why)


def _filesystem(place: Path) -> str | None:
    """The kind of file system that a folder is on, where the system says so."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return None
    inside = [(len(m[1]), m[2]) for m in mounts if place.is_relative_to(m[1].replace("\\040", " "))]
    return max(inside)[1] if inside else None


# the session


def _session(session: SparkSession) -> Findings:
    from deltaic.spark.session import cores_of, has_delta

    settings = {key: session.conf.get(key, None) for key in diagnosis.LOOKED_AT}
    master = session.conf.get("spark.master", None)
    facts = diagnosis.SessionFacts(master, cores_of(master or "local[*]"), has_delta(session), settings)
    yield from diagnosis.judge_session(facts)


# the warehouse


def _warehouse(root: Path | None, spark: SparkSession | None) -> Findings:
    from deltaic.app.warehouse import open_warehouse
    from deltaic.spark.session import has_delta

    if spark is not None and not has_delta(spark):
        return
    if spark is None and (root is None or not (root / ".deltaic").is_dir()):
        where = f"at {root}" if root else "given"
        yield Finding(NOTE, "warehouse", f"there is none {where}: only the machine and the session were looked at")
        return
    with open_warehouse(root, spark=spark) as warehouse:
        engine = warehouse.engine
        yield from _damaged(engine)
        sources: dict[str, None] = {}
        for name in engine.catalog.view_names():
            yield from _looked_at("view", partial(_view, engine, name, sources))
        for key in sources:
            yield from _looked_at("source", partial(_source, engine, key))


def _damaged(engine: Engine) -> Findings:
    for name, problem in engine.catalog.damaged().items():
        full = ".".join(name)
        what = f"{full} cannot be read: {problem.what}"
        yield Finding(
            ERROR, "view", what, f"If it is a view, deltaic repair {full} makes it anew; a table, RESTORE it."
        )


def _view(engine: Engine, name: tuple[str, str], sources: dict[str, None]) -> Findings:
    from deltaic.algebra.reasons import Code, Reason
    from deltaic.app.pipeline.status import commits_behind
    from deltaic.app.refresh.why_full import view_reasons
    from deltaic.sql.statements import Policy
    from deltaic.store.damage import damaged_files
    from deltaic.store.progress import Progress

    definition = engine.catalog.definition(*name)
    table = engine.view_table(definition)
    log, marked = table.log, table.last_refresh()
    last = Progress.of(marked.commit) if marked else None
    versions = {key: state.version for key, state in last.sources.items()} if last else {}
    sources.update(dict.fromkeys(versions))
    for problem in damaged_files(log, log.version())[:1]:
        do = f"deltaic repair {definition.full_name} computes it anew."
        yield Finding(ERROR, "view", f"{definition.full_name}: {problem}", do)
    edited = [str(r) for r in view_reasons(definition, marked, last, False, table.id) if r.code is Code.VIEW_EDITED]
    compiled = engine.compiled_or_none(definition)
    why = compiled.way if compiled is not None and isinstance(compiled.way, Reason) else None
    recomputed = (
        "its policy is FULL" if definition.policy is Policy.FULL else f"{why.code.name}: {why.detail}" if why else None
    )
    reasons = last.figures.get("reasons", ()) if last else ()
    yield from diagnosis.judge_view(
        diagnosis.ViewFacts(
            definition.full_name,
            commits_behind(engine, versions),
            recomputed,
            why.hint if why else None,
            tuple(reasons),
            edited[0] if edited else None,
        )
    )


def _source(engine: Engine, key: str) -> Findings:
    live = engine.live(key)
    if live is not None:
        yield _slot(live)
        return
    ref = engine.source_ref(key)
    views = {f"{schema}.{name}".lower() for schema, name in engine.catalog.view_names()}
    if ref is not None and key not in views:  # a view's own table is Deltaic's to look after
        yield from diagnosis.judge_source(_table_facts(engine, key, ref))


def _table_facts(engine: Engine, key: str, ref: TableRef) -> diagnosis.TableFacts:
    from deltaic.store.log import Log

    snapshot = Log(ref, engine.spark).snapshot()
    commits = None
    if ref.path is not None:
        names = os.listdir(Path(ref.path) / "_delta_log")
        checkpoints = [int(name[:20]) for name in names if re.match(r"\d{20}\.checkpoint\.", name)]
        commits = snapshot.version - max(checkpoints, default=-1)
    return diagnosis.TableFacts(key, snapshot.change_feed, snapshot.files, snapshot.bytes, commits)


def _slot(live: LiveTable) -> Finding:
    from deltaic.store.postgres.captured_log import CapturedLog
    from deltaic.store.postgres.slot import slot_lag
    from deltaic.store.postgres.table import Retry

    slot = CapturedLog(live.path, ()).newest().identity.get("slot")
    if slot is None:
        return Finding(FINE, "PostgreSQL", f"{live.key} is captured by triggers in {live.table.server}")
    behind, status = slot_lag(live.table.server, slot, Retry(attempts=1))
    return diagnosis.judge_slot(live.key, slot, behind, status)
