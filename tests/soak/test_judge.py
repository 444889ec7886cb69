"""The judge of a soak, with workers that only sleep. No Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak import __main__ as soak


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> soak.Soak:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\nexec sleep 60\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    return soak.Soak(tmp_path, 0.01, 1)


def test_a_worker_is_killed(judge: soak.Soak) -> None:
    worker = judge.start("work", 1)
    judge.watch(worker, 0.2)
    assert (worker.returncode, judge.kills) == (-9, 1)
    assert not judge.tally.findings


def test_a_worker_that_does_not_end_is_a_finding(judge: soak.Soak) -> None:
    judge.ended(judge.start("settle", 0), 0.2)
    assert judge.tally.findings == ["a worker ended with -9, after at most 0 s"]
    assert judge.judged() == 1


def test_no_worker_outlives_its_judge(judge: soak.Soak, monkeypatch: pytest.MonkeyPatch) -> None:
    workers: list[subprocess.Popen[bytes]] = []

    def ended(worker: subprocess.Popen[bytes], _: float) -> None:
        workers.append(worker)
        raise SystemExit(1)  # as SIGTERM does

    monkeypatch.setattr(judge, "ended", ended)
    monkeypatch.setattr(judge, "watch", lambda worker, _: judge.kill(worker))
    with pytest.raises(SystemExit):
        judge.run()
    assert [worker.returncode for worker in workers] == [-9]
