"""A missing or an old Java is named, with the way to get one."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaic.errors import SetupError
from deltaic.spark.java import java_command, java_version, require_java


def fake_java(home: Path, says: str) -> None:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("says", "found"),
    [
        ("""echo 'openjdk version "17.0.15" 2025-04-15' >&2""", 17),
        ("""echo 'java version "1.8.0_402"' >&2""", 8),
        ("""echo 'openjdk version "21" 2023-09-19' >&2""", 21),
        ("echo 'Unable to locate a Java Runtime.' >&2; exit 1", None),
    ],
)
def test_the_version_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, found: int | None) -> None:
    fake_java(tmp_path, says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    command = java_command()
    assert command is not None
    assert java_version(command) == found
    if found is not None and found >= 17:
        require_java()
    else:
        with pytest.raises(SetupError, match="adoptium"):
            require_java()


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="no java on the PATH"):
        require_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match="JAVA_HOME is"):
        require_java()
