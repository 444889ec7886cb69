"""A PostgreSQL server: where it is, and connections to it.

The password is never part of a value of ours: it is fetched where a connection is made, and stands in no text.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from deltaic.errors import ConfigurationError, SetupError, SourceAway, SourceError
from deltaic.store.table import first_line

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

_SLOT_SECONDS = 60
"""How long a new slot waits for those who are writing; each may write for hours."""

_T = TypeVar("_T")

OLDEST = 13
"""The first PostgreSQL with 64-bit transaction ids."""

# Every text that PostgreSQL writes for us is written one way, and nothing is hidden from us silently.
_SESSION = {
    "datestyle": "ISO",
    "timezone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "3",
    "row_security": "off",  # a policy that would hide rows is an error instead
    "search_path": "pg_catalog",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",  # a snapshot is held while others read from it
}
# A server that says one of these may soon say something else; any other refusal is final.
_ENDED = (None, "57P01", "57P02", "57P03")
"""Of errors that end a connection; without a code it was not the server who ended it."""
_MAYBE_SECRET = re.compile(r"://|password\s*=", re.IGNORECASE)
_PASSING = re.compile(r"starting up|shutting down|recovery|too many|reserved for|terminating", re.IGNORECASE)


def driver() -> Any:
    """psycopg, which Deltaic needs for PostgreSQL only."""
    try:
        import psycopg
    except ImportError as missing:
        raise SetupError("psycopg is not installed", hint="pip install 'deltaic[postgres]'") from missing
    return psycopg


@dataclass(frozen=True)
class Retry:
    """How often, and with which pauses, a server that is away is asked again."""

    attempts: int = 6
    first: float = 0.2
    longest: float = 5.0

    def pauses(self) -> Iterator[float]:
        """The seconds to wait after each attempt but the last."""
        return (min(self.first * 2**attempt, self.longest) for attempt in range(self.attempts - 1))


PATIENT = Retry()


@dataclass(frozen=True)
class Server:
    """A database on a server, and where its password comes from.

    `password_env` names an environment variable, `password` is called for it, and `passfile` is a file as libpq
    reads it; without any of them libpq looks into PGPASSFILE or ~/.pgpass.
    """

    host: str
    database: str
    user: str
    port: int = 5432
    password_env: str | None = None
    passfile: str | None = None
    password: Callable[[], str] | None = field(default=None, repr=False, compare=False)
    sslmode: str = "prefer"

    def __post_init__(self) -> None:
        if any(_MAYBE_SECRET.search(str(part)) for part in (self.host, self.database, self.user)):
            raise ConfigurationError(  # and what it was is not told
                "host, database and user are names; a connection string may hold a password, and would be shown",
                hint="Give them one by one, and name an environment variable for the password (password_env).",
            )
        if self.password is not None and not callable(self.password):
            raise ConfigurationError(
                "a password is not given as a text, which would end up in logs",
                hint="Name an environment variable (password_env), a password file, or a function that returns it.",
            )

    def __str__(self) -> str:
        return f"PostgreSQL at {self.host}:{self.port}, database {self.database}"

    def _secret(self) -> str | None:
        if self.password is not None:
            return self.password()
        if self.password_env is None:
            return None
        if self.password_env not in os.environ:
            raise ConfigurationError(
                f"{self}: the environment variable {self.password_env} is not set",
                hint="It is to hold the password.",
            )
        return os.environ[self.password_env]

    def _parameters(self) -> dict[str, Any]:
        settings = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
        wanted = {
            "host": self.host,
            "port": self.port,
            "dbname": self.database,
            "user": self.user,
            "password": self._secret(),
            "passfile": self.passfile,
            "sslmode": self.sslmode,
            "connect_timeout": 10,
            "application_name": "deltaic",
            "client_encoding": "UTF8",
            "options": settings,
        }
        return {name: value for name, value in wanted.items() if value is not None}


def connect(server: Server, retry: Retry = PATIENT, *, replication: bool = False) -> Connection:
    """A connection that commits every statement by itself; SourceAway if the server does not answer in time."""
    psycopg = driver()
    parameters = {**server._parameters(), "autocommit": True, "prepare_threshold": None}
    if replication:
        parameters["replication"] = "database"
        parameters["options"] += f" -c lock_timeout={_SLOT_SECONDS}s"

    def attempt() -> Connection:
        connection: Connection = psycopg.connect(**parameters)
        return _checked(server, connection)

    return retried(server, retry, attempt, lambda error: _passing(server, error))


def retried(server: Server, retry: Retry, work: Callable[[], _T], passing: Callable[[Exception], bool]) -> _T:
    """Do it until it works, as long as what stops it may pass."""
    pauses = retry.pauses()
    while True:
        try:
            return work()
        except driver().OperationalError as error:  # noqa: PERF203 (its price is nothing beside a pause)
            if not passing(error):
                raise
            pause = next(pauses, None)
            if pause is None:
                raise away(server, first_line(error)) from None
            time.sleep(pause)


def _passing(server: Server, error: Exception) -> bool:
    if "FATAL" in str(error) and not _PASSING.search(str(error)):
        hint = "Check the user, its password and what pg_hba.conf allows."
        raise SourceError(f"{server} refused user {server.user}: {first_line(error)}", hint=hint) from None
    return True


def away(server: Server, said: str) -> SourceAway:
    return SourceAway(
        f"{server} does not answer: {said}",
        hint="Check that the server runs and that this machine can reach it, then try again. Nothing is lost: "
        "what was captured is kept, and the server keeps what was not.",
    )


def _checked(server: Server, connection: Connection) -> Connection:
    version = connection.info.server_version // 10_000
    if version < OLDEST:
        connection.close()
        raise SourceError(f"{server} is version {version}; Deltaic needs {OLDEST} or newer")
    return connection


@contextmanager
def problems_of(server: Server) -> Iterator[None]:
    """What the driver raises becomes an error of ours that names the server."""
    psycopg = driver()
    try:
        yield
    except psycopg.Error as error:
        if isinstance(error, psycopg.OperationalError) and error.sqlstate in _ENDED:
            raise away(server, first_line(error)) from None
        raise SourceError(f"{server}: {first_line(error)}") from error
