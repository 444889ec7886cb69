"""The jar cache, with a resolver that needs no network."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from deltaic.errors import SetupError
from deltaic.spark import jars

DELTA = version("delta-spark")
NAMES = (f"io.delta_delta-spark_4.2_2.13-{DELTA}.jar", f"io.delta_delta-storage-{DELTA}.jar")


def put_jars(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (folder / name).write_text("jar")


class FakeResolver:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, folder: Path) -> str:
        self.calls += 1
        put_jars(folder / "jars")
        return "resolved"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("DELTAIC_JARS", raising=False)
    monkeypatch.delenv("DELTAIC_MAVEN_MIRROR", raising=False)
    monkeypatch.setenv("DELTAIC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "jars" / DELTA


def test_resolves_once_then_passes_files(cache: Path) -> None:
    resolver = FakeResolver()
    assert not jars.jars_are_cached()
    first = jars.delta_jars(resolver)
    assert jars.jars_are_cached()
    assert jars.delta_jars(resolver) == first == [str(cache / name) for name in NAMES]
    assert resolver.calls == 1
    assert [left.name for left in cache.parent.iterdir()] == [DELTA], "no scratch folder stays behind"


def test_an_incomplete_cache_is_replaced(cache: Path) -> None:
    put_jars(cache)
    (cache / NAMES[0]).unlink()
    assert len(jars.delta_jars(FakeResolver())) == len(NAMES)


def test_a_second_start_that_filled_the_cache_first_wins(cache: Path) -> None:
    def slow(folder: Path) -> str:
        put_jars(folder / "jars")
        put_jars(cache)
        (cache / "theirs.jar").write_text("jar")
        return "resolved"

    assert str(cache / "theirs.jar") in jars.delta_jars(slow)


def test_a_failed_download_says_what_was_tried_and_what_to_do(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTAIC_MAVEN_MIRROR", "https://user:secret@mirror.example/maven")
    with pytest.raises(SetupError) as failed:
        jars.delta_jars(lambda folder: "first\n\tat java.Frame\nUNRESOLVED https://user:secret@mirror.example/x\n")
    message = str(failed.value)
    for part in (
        jars.coordinates(),
        "mirror.example/maven",
        "UNRESOLVED",
        "DELTAIC_MAVEN_MIRROR",
        "DELTAIC_JARS",
    ):
        assert part in message
    assert "secret" not in message
    assert "java.Frame" not in message
    assert not cache.exists()


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DELTAIC_CACHE", str(tmp_path / "file"))
    with pytest.raises(SetupError, match="DELTAIC_CACHE"):
        jars.delta_jars(FakeResolver())


def test_jars_given_as_a_folder_or_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_jars(tmp_path / "given")
    (tmp_path / "given" / "hadoop-client.jar").write_text("jar")
    expected = [str(tmp_path / "given" / name) for name in NAMES]
    for value in (str(tmp_path / "given"), ", ".join(expected)):
        monkeypatch.setenv("DELTAIC_JARS", value)
        assert jars.delta_jars() == expected


@pytest.mark.parametrize("value", ["missing.jar", "empty"])
def test_jars_given_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("DELTAIC_JARS", str(tmp_path / value))
    with pytest.raises(SetupError, match="DELTAIC_JARS"):
        jars.delta_jars()


def test_a_mirror_takes_the_place_of_central() -> None:
    settings = jars._ivy_settings('https://mirror.example/a&"b')
    assert "repo1.maven.org" not in settings
    assert "root='https://mirror.example/a&amp;\"b/'" in settings
