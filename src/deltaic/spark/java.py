"""Find the Java that Spark will start, and say how to get one where there is none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from deltaic.errors import SetupError

OLDEST = 17
HOW_TO_GET_IT = (
    f"Install a JDK {OLDEST} or 21 (https://adoptium.net; Debian and Ubuntu: apt-get install "
    "openjdk-17-jre-headless; macOS: brew install openjdk@17), then put java on the PATH or set JAVA_HOME."
)


def java_command() -> str | None:
    """The program Spark's own scripts would start: JAVA_HOME first, then the PATH."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(os.path.join(home, "bin", "java")) if home else shutil.which("java")


def java_version(command: str) -> int | None:
    """The major version, or None where the program does not run (macOS has such a stand-in)."""
    try:
        told = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return int(found.group(1)) if found else None


def require_java() -> None:
    """Refuse to go on without a Java that Spark can run on. Starts a process: not for every call."""
    command = java_command()
    if command is None:
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME is {home}, which holds no bin/java" if home else "there is no java on the PATH"
        raise SetupError(f"Spark needs Java {OLDEST} or newer, and {where}", hint=HOW_TO_GET_IT)
    version = java_version(command)
    if version is None or version < OLDEST:
        found = f"is Java {version}" if version else "does not run"
        raise SetupError(f"Spark needs Java {OLDEST} or newer, and {command} {found}", hint=HOW_TO_GET_IT)
