"""A PostgreSQL server of the tests' own, out of the system's packages, in a folder that goes with it."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltaic.store.postgres.table import PostgresTable, Server, connect

if TYPE_CHECKING:
    from deltaic.store.postgres.server import Connection

PASSWORD = "s3cr3t-Pa55"
PASSWORD_VARIABLE = "DELTAIC_TEST_PGPASSWORD"
MISSING = (
    "PostgreSQL's server programs are not here: scripts/ensure_postgres.sh installs them (Debian: apt-get install "
    "postgresql), or set DELTAIC_TEST_POSTGRES to the folder that holds initdb"
)
_QUICK = {"fsync": "off", "shared_buffers": "32MB", "max_wal_senders": "4", "max_replication_slots": "8"}


def programs() -> Path | None:
    """The folder of initdb and postgres."""
    given = os.environ.get("DELTAIC_TEST_POSTGRES")
    found = shutil.which("initdb")
    folders = [given, *sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)]
    folders.append(os.path.dirname(os.path.realpath(found)) if found else None)
    return next((Path(folder) for folder in folders if folder and (Path(folder) / "initdb").exists()), None)


class PostgresProcess:
    """One server on 127.0.0.1, with fsync off. It refuses root, so as root it runs as somebody else."""

    def __init__(self, folder: Path, binaries: Path, settings: Mapping[str, str]) -> None:
        self._folder, self._binaries, self._settings = folder, binaries, settings
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()
        os.environ[PASSWORD_VARIABLE] = PASSWORD
        self._user = _other_user() if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(folder, self._user)
        secret = folder / "secret"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        options = ["-U", "deltaic", "--auth=scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"]
        self._run([str(binaries / "initdb"), "-D", str(folder / "data"), f"--pwfile={secret}", *options])

    @property
    def server(self) -> Server:
        return Server("127.0.0.1", "postgres", "deltaic", self.port, password_env=PASSWORD_VARIABLE)

    def next_epoch(self) -> None:
        self._run([str(self._binaries / "pg_resetwal"), "-e", "1", "-D", str(self._folder / "data")])

    def start(self) -> None:
        settings = {"port": str(self.port), "listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
        options = [f"-c{name}={value}" for name, value in {**settings, **_QUICK, **self._settings}.items()]
        log = (self._folder / "server.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._folder / "data", *options],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self._folder, **self._as_user(),
            )  # fmt: skip
        for _ in range(300):
            if self._answers():
                return
            time.sleep(0.1)
        raise RuntimeError(f"the server did not start:\n{(self._folder / 'server.log').read_text()[-3000:]}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(2)  # fast shutdown: sessions are ended
            self._process.wait(60)
            self._process = None

    def _answers(self) -> bool:
        ready = [str(self._binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0

    def _run(self, command: list[str]) -> None:
        ran = subprocess.run(command, cwd=self._folder, capture_output=True, check=False, **self._as_user())
        assert ran.returncode == 0, ran.stderr.decode()

    def _as_user(self) -> dict[str, Any]:
        return {} if self._user is None else {"user": self._user, "group": pwd.getpwnam(self._user).pw_gid}


@contextmanager
def postgres(*, reset_xid: bool = False, **settings: str) -> Iterator[PostgresProcess]:
    """A server for the length of a block, or a skipped test that says how to get one.

    `reset_xid`: one that has counted its transactions into the next 2^32.
    """
    binaries = programs()
    if binaries is None:
        pytest.skip(MISSING)
    folder = Path(tempfile.mkdtemp(prefix="deltaic-postgres-"))  # pytest's folders are closed to other users
    try:
        process = PostgresProcess(folder, binaries, settings)
        if reset_xid:
            process.next_epoch()
        process.start()
        try:
            yield process
        finally:
            process.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _other_user() -> str:
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Database:
    """A schema for one test, and what its captures leave in the server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.schema = f"s{uuid.uuid4().hex[:10]}"
        self.name = f"deltaic_{self.schema}"
        self._open: list[Connection] = []
        self.admin = self.connection()
        self.admin.execute(f"CREATE SCHEMA {self.schema}".encode())
        self.admin.execute(f"SET search_path = {self.schema}".encode())

    def connection(self) -> Connection:
        """One more, that sees this schema's tables by their names."""
        found = connect(self.server)
        found.execute(f"SET search_path = {self.schema}".encode())
        self._open.append(found)
        return found

    def run(self, *statements: str) -> None:
        """Each its own transaction."""
        for statement in statements:
            self.admin.execute(statement.encode())

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.admin.execute(query.encode()).fetchall()

    def table(self, name: str = "t", only: tuple[str, ...] | None = None) -> PostgresTable:
        return PostgresTable(self.server, self.schema, name, only)

    def close(self) -> None:
        for connection in self._open[1:]:
            connection.close()
        self.run(
            f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name LIKE '{self.name}%'",
            f"DROP PUBLICATION IF EXISTS {self.name}",
            f"DROP SCHEMA {self.schema} CASCADE",
        )
        self.admin.close()
