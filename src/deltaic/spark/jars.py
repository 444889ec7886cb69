"""The Delta jars: resolved once by Spark's own resolver into a cache, passed as files ever after.

Resolving at every start costs seconds and needs the network. Of the 33 jars that Delta's artifact names,
Spark already has all but Delta's own (tried: DDL, MERGE, time travel, change feed, OPTIMIZE, deletion
vectors, clone, VACUUM), so the others are excluded and never downloaded: 12 MB instead of 87.

Settings, all by environment variable, since they are needed before there is a session:
DELTAIC_JARS (a folder, or a comma-separated list: use these), DELTAIC_POSTGRES_JAR,
DELTAIC_CACHE (instead of ~/.cache/deltaic) and
DELTAIC_MAVEN_MIRROR (a repository to use instead of Maven Central).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pyspark

from deltaic.errors import SetupError
from deltaic.spark.java import require_java

MAVEN_CENTRAL = "https://repo1.maven.org/maven2/"
# Everything that Delta's artifact depends on besides io.delta itself; globs, as Ivy's exclusions take them.
_SPARK_HAS_THESE = "org.*:*,com.*:*,commons-*:*,javax.*:*,io.airlift:*,io.unitycatalog:*"
_RESOLVE_SECONDS = 600
POSTGRES_DRIVER = "org.postgresql:postgresql:42.7.8"

Resolver = Callable[[Path], str]
"""Fetches into `<folder>/jars` and returns what it printed. Whether it worked is seen from the jars."""


def delta_jars(resolve: Resolver | None = None) -> list[str]:
    """The jar files to start Spark with; fetched first if this machine has never had them."""
    given = os.environ.get("DELTAIC_JARS")
    if given:
        return _given_jars(given)
    home = cache_folder()
    if not _complete(home):
        _fill(home, resolve or _spark_resolver, coordinates(), _complete)
    return sorted(str(jar) for jar in home.glob("*.jar"))


def postgres_jars() -> list[str]:
    """PostgreSQL's JDBC driver, fetched likewise; DELTAIC_POSTGRES_JAR names one to use instead."""
    given = os.environ.get("DELTAIC_POSTGRES_JAR")
    if given:
        if "://" not in given and not Path(given).is_file():
            raise SetupError(f"DELTAIC_POSTGRES_JAR names what is not there: {given}")
        return [given]
    home = _postgres_folder()
    if not postgres_jars_are_cached():
        _fill(home, _postgres_resolver, POSTGRES_DRIVER, lambda folder: any(folder.glob("*.jar")))
    return sorted(str(jar) for jar in home.glob("*postgresql*.jar"))


def postgres_jars_are_cached() -> bool:
    return bool(os.environ.get("DELTAIC_POSTGRES_JAR")) or any(_postgres_folder().glob("*.jar"))


def _postgres_folder() -> Path:
    return cache_folder().parent / POSTGRES_DRIVER.replace(":", "-")


def jars_are_cached() -> bool:
    """Whether the next start can do without the network; lets a program announce the wait."""
    return bool(os.environ.get("DELTAIC_JARS")) or _complete(cache_folder())


def cache_folder() -> Path:
    root = os.environ.get("DELTAIC_CACHE")
    if not root:
        root = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "deltaic")
    return Path(root).absolute() / "jars" / version("delta-spark")


def coordinates() -> str:
    """Delta publishes one artifact per Spark release, for the Scala that Spark 4 is built with."""
    return f"io.delta:{_artifact()}:{version('delta-spark')}"


def repository() -> str:
    return os.environ.get("DELTAIC_MAVEN_MIRROR") or MAVEN_CENTRAL


def _artifact() -> str:
    return f"delta-spark_{'.'.join(pyspark.__version__.split('.')[:2])}_2.13"


def _complete(folder: Path) -> bool:
    """Folders appear whole (see `_publish`); this catches one that somebody emptied, or of another Spark."""
    needed = (f"{_artifact()}-{version('delta-spark')}.jar", f"delta-storage-{version('delta-spark')}.jar")
    return all(any(folder.glob(f"*{jar}")) for jar in needed)


def _given_jars(given: str) -> list[str]:
    hint = "DELTAIC_JARS takes a folder that holds Delta's jars, or a comma-separated list of them."
    if Path(given).is_dir():
        jars = sorted(str(jar.absolute()) for jar in Path(given).glob("*delta-*.jar"))
    else:
        jars = [jar.strip() for jar in given.split(",") if jar.strip()]
        # An address (s3://, https://) is Spark's to open.
        missing = [jar for jar in jars if "://" not in jar and not Path(jar).is_file()]
        if missing:
            raise SetupError(f"DELTAIC_JARS names what is not there: {', '.join(missing)}", hint=hint)
    if not any("delta-spark" in os.path.basename(jar) for jar in jars):
        what = f"DELTAIC_JARS ({given}) has no delta-spark jar; {coordinates()} is needed"
        raise SetupError(what, hint=hint)
    return jars


def _fill(home: Path, resolve: Resolver, wanted: str, complete: Callable[[Path], bool]) -> None:
    """Fetch beside the cache, then move into place: a kill or a second start leaves no half-filled folder."""
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=home.parent) as scratch:
            output = resolve(Path(scratch))
            fetched = Path(scratch) / "jars"
            if not complete(fetched):
                raise _not_fetched(wanted, output)
            _publish(fetched, home, complete)
    except OSError as problem:
        hint = "Set DELTAIC_CACHE to a folder that can be written."
        raise SetupError(f"the jars cannot be kept in {home.parent}: {problem}", hint=hint) from problem


def _publish(fetched: Path, home: Path, complete: Callable[[Path], bool]) -> None:
    try:
        fetched.rename(home)
    except OSError:
        # A folder is there already: one that another start has just filled, or the incomplete one we replace.
        if not complete(home):
            shutil.rmtree(home, ignore_errors=True)
            fetched.rename(home)


def _spark_resolver(folder: Path) -> str:
    return _resolved(folder, coordinates(), _SPARK_HAS_THESE)


def _postgres_resolver(folder: Path) -> str:
    return _resolved(folder, POSTGRES_DRIVER, "org.checkerframework:*")  # annotations, for compilers only


def _resolved(folder: Path, wanted: str, excluded: str) -> str:
    """`spark-submit --packages` with a program that does nothing: resolving is all that is left to do."""
    require_java()
    settings, nothing = folder / "ivysettings.xml", folder / "nothing.py"
    settings.write_text(_ivy_settings(repository()), encoding="utf-8")
    nothing.touch()
    home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    script = "spark-submit.cmd" if os.name == "nt" else "spark-submit"
    command = [os.path.join(home, "bin", script), "--master", "local[1]"]
    command += ["--packages", wanted, "--exclude-packages", excluded]
    command += ["--conf", f"spark.jars.ivy={folder}", "--conf", f"spark.jars.ivySettings={settings}"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    try:
        ran = subprocess.run(
            [*command, str(nothing)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=_RESOLVE_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"gave up after {_RESOLVE_SECONDS} seconds"
    return ran.stdout


def _ivy_settings(url: str) -> str:
    """One repository only: Spark's default chain also asks hosts that have never had Delta."""
    root = quoteattr(url if url.endswith("/") else url + "/")
    return (
        '<ivysettings><settings defaultResolver="maven"/><resolvers>'
        f'<ibiblio name="maven" m2compatible="true" root={root}/>'
        "</resolvers></ivysettings>\n"
    )


def _not_fetched(wanted: str, output: str) -> SetupError:
    # Without Ivy's rulers of colons and the JVM's stack traces, the last dozen lines hold the cause.
    lines = [line.strip() for line in output.splitlines() if line.strip(" :\t") and "\tat " not in line]
    said = "\n".join(f"    {line}" for line in lines[-12:]) or "    (nothing)"
    tried = f"{wanted} could not be fetched from {repository()}; the resolver's last words:\n{said}"
    hint = (
        "Set DELTAIC_MAVEN_MIRROR to a Maven repository that this machine can reach, or DELTAIC_JARS to a "
        "folder that holds the jars. Behind a proxy: "
        "SPARK_SUBMIT_OPTS='-Dhttps.proxyHost=... -Dhttps.proxyPort=...'."
    )
    return SetupError(without_passwords(tried), hint=hint)


def without_passwords(text: str) -> str:
    """A mirror's address may carry a login; messages end up in logs and issues."""
    return re.sub(r"://[^/@\s]+@", "://***@", text)
