from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from deltaic.errors import ConcurrentRefresh
from deltaic.store.lock import refresh_lock

HOLD = """
import sys, time
from deltaic.store.lock import refresh_lock
with refresh_lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def held_by_another_process(lock: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_another_process_waits_and_says_for_whom(tmp_path: Path) -> None:
    lock = tmp_path / ".deltaic" / "lock"
    with held_by_another_process(lock) as holder:
        try:
            with (
                pytest.raises(ConcurrentRefresh, match=f"process {holder.pid}"),
                refresh_lock(lock, timeout=0.1),
            ):
                pass
        finally:
            holder.kill()


def test_a_killed_holder_leaves_the_lock_free(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with held_by_another_process(lock) as holder:
        holder.kill()
    with refresh_lock(lock, timeout=5):
        pass


def test_threads_exclude_each_other(tmp_path: Path) -> None:
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        with refresh_lock(tmp_path / "lock"):
            inside += 1
            most = max(most, inside)
            time.sleep(0.01)
            inside -= 1

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_the_holder_may_take_it_again(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with refresh_lock(lock), refresh_lock(lock, timeout=0):
        pass
    with refresh_lock(lock, timeout=0):
        pass


def test_an_error_inside_releases_it(tmp_path: Path) -> None:
    def fail() -> None:
        with refresh_lock(tmp_path / "lock"):
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    with refresh_lock(tmp_path / "lock", timeout=0):
        pass
