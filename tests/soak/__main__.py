"""`make soak`: an hour of random work on one warehouse, by processes that are killed; this one is the judge.

    python -m tests.soak [minutes] [--seed N] [--folder F]

In the first half workers are killed at random moments, and started again. The second half is one worker's, so that its
memory and its times can be looked at. Then all is settled and compared. Exit code 1 on any finding.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.processes import busy_seconds, java_of, live, resident, seconds_of_session

from tests.soak.measures import Sizes, Tally, drift, growth, is_disturbed

MEMORY = "2g"
ROOM = 0.2, 80
"""What may be gained over half of a worker's time: a share, and megabytes."""


class Soak:
    def __init__(self, folder: Path, minutes: float, seed: int) -> None:
        self.folder, self.minutes, self.seed = folder, minutes, seed
        self.choice = random.Random(seed)
        self.tally = Tally(folder / "events.jsonl")
        self.kills = self.workers = 0
        self.worker: subprocess.Popen[bytes] | None = None
        self.begun = self.told = time.monotonic()
        self.most: dict[str, float] = {}
        self.memory: dict[str, list[tuple[float, float]]] = {}
        self.others: list[float] = []
        """Processors that others than the worker used, at each look."""
        self.used: tuple[int, float] | None = None

    def run(self) -> int:
        """The judgement; no worker outlives it."""
        try:
            return self.judgement()
        finally:
            if self.worker is not None and self.worker.poll() is None:
                self.kill(self.worker)

    def judgement(self) -> int:
        until = self.begun + self.minutes * 60
        while time.monotonic() < self.begun + self.minutes * 30:
            self.watch(self.start("work", self.minutes), self.choice.uniform(40, 150))
        self.memory.clear()
        self.others.clear()
        self.tally.read()
        first = len(self.tally.events)
        left = (until - time.monotonic()) / 60
        self.ended(self.start("work", left), left * 60 + 300)
        self.tally.read()
        self.tally.findings += [*self.memory_found(), *self.drift_found(self.tally.events[first:])]
        self.ended(self.start("settle", 0), 900)
        self.tally.read()
        self.tally.findings += self.sizes().problems()
        return self.judged()

    # workers

    def start(self, kind: str, minutes: float) -> subprocess.Popen[bytes]:
        self.workers += 1
        environment = {**os.environ, "DELTAIC_DRIVER_MEMORY": MEMORY}
        command = [sys.executable, "-m", "tests.soak.worker", str(self.folder), str(self.seed + self.workers), kind]
        with (self.folder / "output.log").open("ab") as output:
            self.worker = subprocess.Popen(
                [*command, f"{minutes:.3f}"], env=environment, stdout=output, stderr=output, start_new_session=True
            )
        return self.worker

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """With its JVM, which is in its group."""
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

    def watch(self, worker: subprocess.Popen[bytes], seconds: float) -> None:
        """Look on for a while, and then end it, with its JVM, whatever it is doing."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if worker.poll() is not None:
                self.tally.findings.append(f"a worker ended by itself, with {worker.returncode}")
                return
            time.sleep(0.05)
            self.look(worker.pid)
        self.kill(worker)
        self.kills += 1

    def ended(self, worker: subprocess.Popen[bytes], seconds: float) -> None:
        """Look on until it ends by itself."""
        until = time.monotonic() + seconds
        while worker.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
            self.look(worker.pid)
        if worker.poll() is None:
            self.kill(worker)
        if worker.returncode:
            self.tally.findings.append(f"a worker ended with {worker.returncode}, after at most {seconds:.0f} s")

    # looking on

    def look(self, pid: int) -> None:
        """Memory four times a minute; a line for people, and the sizes of tables, once."""
        now = time.monotonic()
        passed = now - self.told
        if passed < 15:
            return
        self.told = now
        self.note_others(pid, passed)
        self.note(now, "Python MB", resident(pid))
        java = java_of(pid)
        self.note(now, "JVM MB", resident(java) if java else None)
        if int((now - self.begun) / 60) > int((now - 15 - self.begun) / 60):
            self.note(now, "live MB", live(java))
            self.tell(now)

    def note_others(self, pid: int, passed: float) -> None:
        before, self.used = self.used, (pid, busy_seconds() - seconds_of_session(pid))
        if before is not None and before[0] == pid:
            self.others.append((self.used[1] - before[1]) / passed)

    def note(self, now: float, what: str, value: float | None) -> None:
        if value is not None:
            self.memory.setdefault(what, []).append((now - self.begun, value))
            self.most[what] = max(self.most.get(what, 0), value)

    def tell(self, now: float) -> None:
        self.tally.read()
        sizes = self.sizes()
        for what, size in (("files", sizes.files), ("log", sizes.log), ("MB", sizes.megabytes)):
            self.most[what] = max(self.most.get(what, 0), size)
        print(f"{(now - self.begun) / 60:5.1f} min  {self.figures()}  largest table: {sizes}", flush=True)

    def sizes(self) -> Sizes:
        root = self.folder / "wh"
        sources = {"s", "u", "edge"}
        views = [folder for folder in root.glob("default/*") if folder.name not in sources]
        own = root / ".deltaic"
        return Sizes.of([*views, *own.glob("times"), *own.glob("*/*/*")])

    def figures(self) -> str:
        counts = self.tally.counts
        names = ("refresh", "refreshes full", "write", "check", "checks uncertain", "alter", "drop", "looked back")
        told = [f"{counts[name]} {name}" for name in names]
        memory = [f"{what} {points[-1][1]:.0f}" for what, points in self.memory.items()]
        return ", ".join([*told, f"{self.kills} kills", f"{len(self.tally.findings)} findings", *memory])

    # judging

    def memory_found(self) -> list[str]:
        found = []
        for what, points in self.memory.items():
            more, mean = growth(points), sum(value for _, value in points) / len(points)
            if more > ROOM[0] * mean + ROOM[1]:
                found.append(f"{what} grew by {more:.0f} over the second half of a worker that was not killed")
        return found

    def drift_found(self, events: list[dict[str, Any]]) -> list[str]:
        if is_disturbed(self.others):
            print("others used the machine more and more: how long refreshes took is not judged")
            return []
        return drift(events)

    def judged(self) -> int:
        print(f"\n{self.figures()}\nmost of all: {self.most}\nall that was told: {dict(self.tally.counts)}")
        for finding in self.tally.findings:
            print(f"\nFINDING {finding}")
        print(
            f"seed {self.seed}, {self.minutes:g} minutes, {self.workers} workers, {len(self.tally.findings)} findings"
        )
        print(f"what the workers told is in {self.folder}" if self.tally.findings else "nothing was found")
        return 1 if self.tally.findings else 0


def main() -> None:
    asked = argparse.ArgumentParser(prog="python -m tests.soak", description="Random work, kills, and a judge.")
    asked.add_argument("minutes", nargs="?", type=float, default=60)
    asked.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000)
    asked.add_argument("--folder", type=Path, help="where the warehouse and the logs go; kept, if it is given")
    told = asked.parse_args()
    folder = told.folder or Path(tempfile.mkdtemp(prefix="deltaic-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {told.seed}, in {folder}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    found = Soak(folder, told.minutes, told.seed).run()
    if not found and told.folder is None:
        shutil.rmtree(folder)
    sys.exit(found)


if __name__ == "__main__":
    main()
