"""A Spark standalone cluster on this machine's loopback address: a master, and workers of one core each."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pyspark

LOOPBACK = "127.0.0.1"
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
_PATIENCE = 60
_OWN_MEMORY = "256m"
WORKER_MEMORY = "1g"
EXECUTOR_MEMORY = "768m"


class Cluster:
    """A folder tells whoever has it what runs: the driver, which is another process, may end and start workers too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.children: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return (self.folder / "url").read_text()

    def start(self, workers: int = 2) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
            port = probe.getsockname()[1]
        (self.folder / "url").write_text(f"spark://{LOOPBACK}:{port}")
        self._run("master", _MASTER, "--port", str(port))
        self._wait_for("master", "New state: ALIVE")
        for _ in range(workers):
            self.add_worker()

    def add_worker(self) -> int:
        """The process id of a new worker, once the master knows it."""
        name = f"worker-{len(list(self.folder.glob('worker-*.pid')))}"
        work = str(self.folder / name)
        process = self._run(name, _WORKER, "--cores", "1", "--memory", WORKER_MEMORY, "--work-dir", work, self.url)
        self._wait_for(name, "Successfully registered with master")
        return process

    @property
    def workers(self) -> list[int]:
        return [pid for file in sorted(self.folder.glob("worker-*.pid")) if _runs(pid := int(file.read_text()))]

    @property
    def executors(self) -> list[int]:
        """The processes that workers have started."""
        found = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
        pairs = [tuple(map(int, line.split())) for line in found.stdout.splitlines()]
        return [pid for pid, parent in pairs if parent in self.workers]

    def kill(self, pid: int) -> None:
        """Hard. An executor ends with its worker, and a worker starts another for one that ended."""
        _kill(pid)

    def stop(self) -> None:
        executors = self.executors
        for file in self.folder.glob("*.pid"):
            _kill(int(file.read_text()))
        for pid in executors:
            _kill(pid)
        for child in self.children:
            child.wait()

    def _run(self, name: str, kind: str, *arguments: str) -> int:
        environment = {
            **os.environ,
            # Spark binds what it serves, its web pages too, to this address.
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_DAEMON_MEMORY": _OWN_MEMORY,
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -Dspark.master.rest.enabled=false",
        }
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), kind]
        with (self.folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                [*command, "--host", LOOPBACK, "--webui-port", "0", *arguments],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self.children.append(process)
        (self.folder / f"{name}.pid").write_text(str(process.pid))
        return process.pid

    def _wait_for(self, name: str, line: str) -> None:
        log, deadline = self.folder / f"{name}.log", time.monotonic() + _PATIENCE
        while line not in log.read_text(errors="replace"):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the {name} did not start:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _runs(pid: int) -> bool:
    """Not one that has ended and waits for its parent to notice."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")
