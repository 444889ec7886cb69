"""Spark sessions: an embedded one, Delta's settings for a user's own, and a private copy per refresh."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from deltaic.errors import SetupError
from deltaic.spark.jars import delta_jars, postgres_jars, postgres_jars_are_cached
from deltaic.spark.java import require_java

_log = logging.getLogger(__name__)

DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_NOTHING: Mapping[str, str] = MappingProxyType({})
_launch: Any = launch_gateway  # it has no types

# They belong to one statement, not to a session; a copy that carried them would mark the wrong commits.
_OF_ONE_STATEMENT = (
    "spark.databricks.delta.commitInfo.userMetadata",
    "spark.databricks.delta.write.txnAppId",
    "spark.databricks.delta.write.txnVersion",
    "spark.databricks.delta.lastCommitVersionInSession",
)
# The plan's text is where `metrics` finds the path of a scan; Spark cuts it after 100 characters otherwise.
_WHOLE_PATHS_IN_PLANS = ("spark.sql.maxMetadataStringLength", "1000")
# Rows that come from this process are part of the plan, and go through the optimizer with it; more of them than this
# are an RDD.
_LOCAL_ROWS = ("spark.sql.execution.arrow.localRelationThreshold", "1MB")

# What is quoted stays as it is: Spark would put the value of an environment variable in the place of `${env:NAME}`, in
# literals and names too, and with the other one set a backslash before a quote would be part of a literal.
_LITERALLY = {"spark.sql.variable.substitute": "false", "spark.sql.parser.escapedStringLiterals": "false"}

# Delta refuses to read versions older than a table's `delta.deletedFileRetentionDuration`, whether or not their files
# are still there. Deltaic reads what is there, and recomputes where something is gone.
_ANY_VERSION = ("spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration", "false")

# A file that is gone or cannot be read is an error, whatever the session makes of it: else rows would be missing.
_EVERY_FILE = (("spark.sql.files.ignoreMissingFiles", "false"), ("spark.sql.files.ignoreCorruptFiles", "false"))

# Spark's reader of change feeds makes Java's values of its rows, and back. Java's old dates lack the days that the
# Julian calendar left out, 5 to 14 October 1582.
_EVERY_DAY = ("spark.sql.datetime.java8API.enabled", "true")

# A delta meets tables many times its size: sending it to where they are is cheaper than sorting both.
_BROADCAST = ("spark.sql.autoBroadcastJoinThreshold", "64MB")

_OF_A_REFRESH = (_BROADCAST, _ANY_VERSION, _EVERY_DAY, *_EVERY_FILE)


TABLES_OF_A_WAREHOUSE = {
    "spark.sql.sources.default": "delta",
    "spark.databricks.delta.properties.defaults.enableChangeDataFeed": "true",
}
"""What CREATE TABLE makes where nothing else is said."""


def configure(builder: SparkSession.Builder, *, jars: bool = True) -> SparkSession.Builder:
    """Give a builder of the user's own what Delta needs; `jars=False` where the cluster has them already."""
    # Other extensions and jars stay. The builder has no public way to ask for them, and setting replaces.
    options: Mapping[str, Any] = getattr(builder, "_options", {})
    wanted = {"spark.sql.extensions": [DELTA_EXTENSION], "spark.jars": delta_jars() if jars else []}
    for key, values in wanted.items():
        present = [value for value in str(options.get(key) or "").split(",") if value]
        merged = present + [value for value in values if value not in present]
        if merged:
            builder = builder.config(key, ",".join(merged))
    return builder.config("spark.sql.catalog.spark_catalog", DELTA_CATALOG)


def local_session(
    app_name: str = "deltaic", cores: str | None = None, extra: Mapping[str, str] = _NOTHING
) -> SparkSession:
    """An embedded Spark with Delta, tuned for one small machine and quiet; the active one if it has Delta.

    Environment: DELTAIC_MASTER (instead of local[*]), DELTAIC_DRIVER_MEMORY (such as 4g), DELTAIC_SPARK_LOG
    (a file to keep what the JVM prints, or - for the terminal).
    """
    active = _active_session()
    if active is not None:
        return _reuse(active, extra)
    master = f"local[{cores}]" if cores else os.environ.get("DELTAIC_MASTER", "local[*]")
    conf = SparkConf().setMaster(master).setAppName(app_name)
    for key, value in {**_settings(master), **extra}.items():
        conf.set(key, value)
    java_options = extra.get("spark.driver.extraJavaOptions", "")
    conf.set("spark.driver.extraJavaOptions", f"{_quiet_log()} {_collector(java_options)} {java_options}".strip())
    # Python functions run in processes that Spark starts: the Python of this one, not the first on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _start(conf)
    mute_query_errors()
    return SparkSession.builder.getOrCreate()


def add_postgres_driver(session: SparkSession) -> None:
    """Give a running session PostgreSQL's JDBC driver, unless it has it already.

    An embedded session starts with it once this machine has it. Where it came later, reads work, but Spark cannot say
    why one failed (`UnknownReason`): the exception's class is not known to the part that reports it.
    """
    if "postgresql" in (session.conf.get("spark.jars", "") or ""):
        return
    for jar in postgres_jars():
        session.sql(f"ADD JAR '{jar}'")


def has_delta(session: SparkSession) -> bool:
    return DELTA_EXTENSION in (session.conf.get("spark.sql.extensions", "") or "")


def is_connect(session: SparkSession) -> bool:
    """Whether the session is a client of a Spark Connect server; such a one has no SparkContext."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def fork(session: SparkSession) -> SparkSession:
    """A session of its own with the same settings, so that what a refresh sets touches nobody else.

    It shares the catalog and the cache. Temporary views are not shared on a classic session; over Connect the
    server's clone starts with copies of them. Give it back with `release`.
    """
    if is_connect(session):
        remote: Any = session
        clone: SparkSession = remote.cloneSession()
        for key in _OF_ONE_STATEMENT:
            clone.conf.unset(key)
        _set_literally(clone)
        for setting in _OF_A_REFRESH:
            clone.conf.set(*setting)
        return clone
    child = session.newSession()
    _copy_settings(session, child)
    child.conf.set(*_WHOLE_PATHS_IN_PLANS)
    child.conf.set(*_LOCAL_ROWS)
    for setting in _OF_A_REFRESH:
        child.conf.set(*setting)
    _set_literally(child)
    here = (session.catalog.currentCatalog(), session.catalog.currentDatabase())
    if here != (child.catalog.currentCatalog(), child.catalog.currentDatabase()):
        child.catalog.setCurrentCatalog(here[0])
        child.catalog.setCurrentDatabase(here[1])
    return child


def literally(session: SparkSession) -> dict[str, str]:
    """What must be set for texts to stay as they are. Of what is so already nothing: one of these settings is
    deprecated, and a Connect session warns whoever sets it."""
    return {key: value for key, value in _LITERALLY.items() if session.conf.get(key) != value}


def _set_literally(session: SparkSession) -> None:
    for key, value in literally(session).items():
        session.conf.set(key, value)


def release(forked: SparkSession) -> None:
    """End a fork. `stop` would be wrong: it ends Spark itself, or the local Connect server."""
    if is_connect(forked):
        client: Any = forked.client
        with tidying("a session was not released"):
            client.release_session()
        with tidying("a session's connection was not closed"):
            client.close()


@contextmanager
def tidying(told: str) -> Iterator[None]:
    """Work that nothing depends on: what failed before stays what failed, and what is done stays done."""
    try:
        yield
    except Exception as problem:  # Connect's connection raises errors of its own
        _log.warning("%s: %s", told, problem)


@contextmanager
def forked(session: SparkSession) -> Iterator[SparkSession]:
    """`fork` for the length of a block; the session that was active before is so again."""
    before = None if is_connect(session) else _active_session()
    child = fork(session)
    try:
        yield child
    finally:
        release(child)
        if before is not None:
            # createDataFrame makes its session the active one, and is the only public way to do that
            before.createDataFrame([], "nothing INT")


def spare_subqueries(session: SparkSession) -> None:
    """Switch off what fails in Spark's optimizer ("key not found") where a correlated subquery and a UNION ALL meet, as
    they do in a delta (SPARK-59042): two rules that only move projections and flatten unions, and the constraints of
    plans, from which Spark infers more filters."""
    key, rules = "spark.sql.optimizer.excludedRules", ("PushProjectionThroughUnion", "CombineUnions")
    others = [name for name in (session.conf.get(key, None) or "").split(",") if name]
    session.conf.set(key, ",".join([*others, *(f"org.apache.spark.sql.catalyst.optimizer.{rule}" for rule in rules)]))
    session.conf.set("spark.sql.constraintPropagation.enabled", False)


def mute_query_errors() -> None:
    """PySpark prints every failed analysis as a page of JSON besides raising it; raising is enough."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _active_session() -> SparkSession | None:
    try:
        return SparkSession.active()
    except PySparkException:
        return None


def _reuse(active: SparkSession, extra: Mapping[str, str]) -> SparkSession:
    if not has_delta(active):
        raise SetupError(
            "this process already runs a Spark session without Delta, and a process can run only one Spark",
            hint="Stop it first, or build it with deltaic.configure(builder) and open Deltaic on that one.",
        )
    for key, value in extra.items():
        if active.conf.get(key, None) != value:
            _set_or_refuse(active, key, value)
    return active


def _set_or_refuse(session: SparkSession, key: str, value: str) -> None:
    if not session.conf.isModifiable(key):
        hint = "Stop that session first, or do without the setting."
        raise SetupError(f"{key}={value} cannot be set on the Spark session that already runs", hint=hint)
    session.conf.set(key, value)


def _settings(master: str) -> dict[str, str]:
    """What a local session is started with, and why."""
    settings = {
        "spark.sql.extensions": DELTA_EXTENSION,
        "spark.sql.catalog.spark_catalog": DELTA_CATALOG,
        "spark.jars": ",".join([*delta_jars(), *(postgres_jars() if postgres_jars_are_cached() else [])]),
        **TABLES_OF_A_WAREHOUSE,
        # Where Spark would make a folder for each schema: else that is wherever the process was started.
        "spark.sql.warehouse.dir": _passing_folder(),
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": driver_memory(),
        # The default of 50 makes every commit and every read of an old version cost seconds on two cores.
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    settings.update([_WHOLE_PATHS_IN_PLANS])
    if master.startswith("local"):
        cores = str(cores_of(master))
        settings.update({
            "spark.sql.shuffle.partitions": cores,
            # VACUUM lists files in this many tasks; the default of 10,000 takes over a minute on two cores.
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": cores,
            # Nobody else has to reach this Spark, and a laptop's address may change or not resolve.
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        })  # fmt: skip
    return settings


@functools.cache
def _passing_folder() -> str:
    """It goes when the process ends."""
    folder = tempfile.mkdtemp(prefix="deltaic-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def cores_of(master: str) -> int:
    found = re.match(r"local\[(\d+)", master)
    return int(found.group(1)) if found else (1 if master == "local" else os.cpu_count() or 1)


def driver_memory() -> str:
    """A quarter of the machine, between 1 and 8 GB: local Spark does all its work inside the driver."""
    told = os.environ.get("DELTAIC_DRIVER_MEMORY")
    if told:
        return told
    try:
        megabytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    except (AttributeError, ValueError, OSError):
        return "1g"  # Spark's own default, where the machine does not say
    return f"{max(1024, min(8192, megabytes // 4))}m"


def _quiet_log() -> str:
    return f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').absolute().as_uri()}"


def _collector(java_options: str) -> str:
    """Java's default, G1, works beside the program, on cores that a small machine lacks."""
    chosen = re.search(r"-XX:\+Use\w+GC\b", f"{java_options} {os.environ.get('JAVA_TOOL_OPTIONS', '')}")
    return "" if chosen else "-XX:+UseParallelGC"


def _start(conf: SparkConf) -> None:
    """Start the JVM with its output in a file, so that the terminal is ours and a failed start can be told.

    A JVM that runs already (from a session that was stopped) is used again, as PySpark does.
    """
    if SparkContext._gateway is not None:
        SparkContext(conf=conf)
        return
    with _jvm_output() as log:
        try:
            gateway: Any = _launch(conf, {"stdout": log, "stderr": log} if log else None)
            SparkContext(conf=conf, gateway=gateway)
        except Exception as problem:
            require_java()
            raise SetupError(f"Spark did not start: {problem}{_last_lines(log)}") from problem


@contextmanager
def _jvm_output() -> Iterator[IO[str] | None]:
    path = os.environ.get("DELTAIC_SPARK_LOG")
    if path == "-":
        yield None
        return
    mode = "a+"
    with (
        open(path, mode, encoding="utf-8", errors="replace")
        if path
        else tempfile.TemporaryFile(mode, encoding="utf-8", errors="replace")
    ) as log:
        yield log


def _last_lines(log: IO[str] | None) -> str:
    if log is None:
        return ""
    log.seek(0)
    return "".join(f"\n    {line.rstrip()}" for line in log.readlines()[-12:])


def _copy_settings(parent: SparkSession, child: SparkSession) -> None:
    """`newSession` starts from what Spark was started with; what was changed since has to be carried over."""
    here, there = parent.conf.getAll, _settings_of_a_new_session(child)
    for key in there.keys() - here.keys():
        child.conf.unset(key)
    for key, value in here.items():
        ours = key.startswith(("spark.sql.", "spark.databricks.", "spark.deltaic.")) and key not in _OF_ONE_STATEMENT
        if ours and there.get(key) != value and _may_set(child, key):
            child.conf.set(key, value)


_NEW_SESSION_SETTINGS: dict[str, dict[str, str]] = {}


def _settings_of_a_new_session(new: SparkSession) -> dict[str, str]:
    """Listing the settings takes some 10 ms, and they are the same for every new session of one Spark."""
    application = new.sparkContext.applicationId
    if application not in _NEW_SESSION_SETTINGS:
        _NEW_SESSION_SETTINGS[application] = new.conf.getAll
    return _NEW_SESSION_SETTINGS[application]


def _may_set(session: SparkSession, key: str) -> bool:
    """Static settings are the same in every session; keys that Spark does not know can be set by anyone."""
    return session.conf.isModifiable(key) or session.conf.get(key, None) is None
