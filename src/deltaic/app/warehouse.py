"""The warehouse: what a user opens and calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Any

from deltaic.app.care.checking import Checker
from deltaic.app.care.repairing import Repairer, check_views
from deltaic.app.catalogs.local import LocalCatalog
from deltaic.app.catalogs.session import SessionCatalog
from deltaic.app.pipeline.pipeline import Pipeline
from deltaic.app.pipeline.service import Service
from deltaic.app.pipeline.status import history_of, views_of
from deltaic.app.refresh.contest import contested
from deltaic.app.refresh.engine import Engine
from deltaic.app.rolling.apply import Applier
from deltaic.app.rolling.clock import AsOf
from deltaic.app.rolling.looking import Looker
from deltaic.app.rolling.propagate import Propagator
from deltaic.app.rolling.to_time import refresh_to
from deltaic.app.statements.attach import attach, detach
from deltaic.app.statements.datalog import make_views
from deltaic.app.statements.executor import Executor
from deltaic.app.statements.explaining import explained
from deltaic.app.statements.programs import program_in
from deltaic.app.values.definition import Definition
from deltaic.app.values.properties import seconds_in
from deltaic.app.values.report import ROWS_SHOWN, Check, Repair, Report
from deltaic.errors import ConfigurationError, SetupError
from deltaic.spark.session import TABLES_OF_A_WAREHOUSE, has_delta, local_session
from deltaic.sql.parse_statement import parse_statement, split_statements
from deltaic.store.postgres.table import PostgresTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_open_here: dict[Path, int] = {}
"""The local warehouses that are open: one Spark has one catalog, so there is one at a time."""


def open_warehouse(
    path: str | os.PathLike[str] | None = None, *, spark: SparkSession | None = None, use_rs: bool = True
) -> Warehouse:
    """A local warehouse under `path`, or the catalog of a session of the user's own.

    `use_rs=False` reads and writes everything through Spark, for comparison.
    """
    if spark is not None:
        if not has_delta(spark):
            raise SetupError(
                "the session has no Delta Lake", hint="Build it with deltaic.configure(SparkSession.builder)."
            )
        session_catalog = SessionCatalog(spark, None if path is None else str(path))
        session_catalog.open()
        return Warehouse(Engine(spark, session_catalog, use_rs=use_rs))
    if path is None:
        raise ConfigurationError("deltaic.open needs a folder, or a session: open(path) or open(spark=...)")
    root = Path(path).expanduser().absolute()
    if root.exists() and not root.is_dir():
        raise ConfigurationError(f"{root} is a file; a warehouse is a folder")
    others = [str(other) for other in _open_here if other != root]
    if others:
        raise SetupError(
            f"the warehouse {others[0]} is open in this process, and one Spark has one catalog",
            hint="Close it first: warehouse.close(), or use it in a with block.",
        )
    session = local_session().newSession()
    for key, value in TABLES_OF_A_WAREHOUSE.items():  # it may be a session that somebody else made
        session.conf.set(key, value)
    catalog = LocalCatalog(session, root)
    catalog.open()
    _open_here[root] = _open_here.get(root, 0) + 1
    return Warehouse(Engine(session, catalog, use_rs=use_rs))


class Warehouse:
    """Tables, views, and the statements that make and refresh them: what a user calls. `engine` does it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._closed = False

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def engine(self) -> Engine:
        """What does all of it. After `close` there is none: Spark's names may be those of another warehouse by then."""
        if self._closed:
            raise SetupError(f"{self!r} is closed", hint="deltaic.open opens it again.")
        return self._engine

    def __repr__(self) -> str:
        catalog = self._engine.catalog
        place = catalog.root if isinstance(catalog, LocalCatalog) else "the session's catalog"
        return f"<deltaic warehouse at {place}>"

    @property
    def spark(self) -> SparkSession:
        """The session that statements run in; its settings are those of new views."""
        return self.engine.spark

    def close(self) -> None:
        """Lets go of the warehouse; Spark goes on for the next one."""
        if self._closed:
            return
        self._closed = True
        catalog = self._engine.catalog
        try:
            self._engine.captures.close()
        finally:
            if isinstance(catalog, LocalCatalog):
                _open_here[catalog.root] -= 1
                if _open_here[catalog.root] == 0:
                    del _open_here[catalog.root]
                    catalog.close()

    # statements

    def sql(self, statement: str) -> DataFrame:
        """Runs any Spark SQL, and the MATERIALIZED VIEW statements."""
        self.engine.catalog.keep_up()
        return Executor(self.engine).run(parse_statement(statement))

    def script(self, text: str) -> list[DataFrame]:
        """Runs the statements of a script, one after the other."""
        return [self.sql(statement) for statement in split_statements(text)]

    def datalog(self, text_or_path: str | os.PathLike[str]) -> list[str]:
        """Makes a view of each derived predicate that a Datalog program, or a `.dl` file, asks for. Their names."""
        return make_views(self.engine, program_in(text_or_path))

    def explain(self, name_or_sql: str, *, propagate: bool = False) -> str:
        """What a refresh (or the next step of propagation) of the view would do now, or how a CREATE MATERIALIZED VIEW
        would be kept."""
        if propagate:
            return Propagator(self.engine, self.definition(name_or_sql)).explained()
        return explained(self.engine, name_or_sql)

    # reading

    def table(self, name: str, *, as_of: AsOf | None = None) -> DataFrame:
        """A table or view as a DataFrame; a view also as of a time, which leaves it where it is."""
        catalog = self.engine.catalog
        catalog.keep_up()
        own = self.engine.split(name)
        if as_of is not None:
            return contested(catalog, own, lambda: Looker(self.engine, self.definition(name)).table(as_of))
        if not catalog.is_view_name(*own):
            return self.spark.table(name)
        return contested(catalog, own, lambda: self.spark.sql(catalog.reading(*catalog.found(*own), pinned=True)))

    def definition(self, name: str) -> Definition:
        """The query of a view, with all that it was told."""
        return self.engine.definition(name)

    def views(self) -> list[dict[str, Any]]:
        """Every view with what its table says about it."""
        return views_of(self.engine)

    def history(self, name: str) -> list[dict[str, Any]]:
        """The newest 100 commits of a view's table, newest first, with what each refresh said of itself."""
        return history_of(self.engine, self.engine.split(name))

    # refreshing

    def refresh(
        self, name: str | None = None, *, full: bool = False, as_of: AsOf | None = None
    ) -> Report | list[Report]:
        """Refreshes one view, `as_of` a time between its own and now; without a name all views, in dependency order,
        to one common time."""
        if name is not None:
            return refresh_to(self.engine, self.engine.split(name), as_of, full=full)
        if as_of is not None:
            raise ConfigurationError("as_of is for one view: refresh(name, as_of=...)")
        return self.refresh_all(full=full)

    def refresh_all(self, *, full: bool = False) -> list[Report]:
        """All views, in dependency order, to one common time."""
        return Pipeline(self.engine).refresh(full=full)

    def propagate(self, name: str, *, upto: AsOf | None = None, steps: int | None = None) -> list[Report]:
        """Computes what changed of a view since its kept delta's high-water mark, and keeps it; in as many steps as it
        takes, or in some. The view stays as it is."""
        done: list[Report] = []

        def propagate() -> list[Report]:
            left = None if steps is None else steps - len(done)
            done.extend(Propagator(self.engine, self.definition(name)).propagate(upto, left))
            return done

        return contested(self.engine.catalog, self.engine.split(name), propagate)

    def apply(self, name: str, *, to: AsOf | None = None) -> Report:
        """Folds the kept delta into the view, up to a time; without one, up to the high-water mark."""
        return contested(
            self.engine.catalog,
            self.engine.split(name),
            lambda: Applier(self.engine, self.definition(name)).apply(to),
        )

    def run(
        self,
        stop: Event,
        *,
        lag: str | None = None,
        views: Sequence[str] = (),
        tell: Callable[[str], None] = print,
    ) -> None:
        """Keeps views at their target lag until `stop` is set; `lag` is for those that name none."""
        names = frozenset(self.definition(name).full_name.lower() for name in views)
        Service(self.engine, None if lag is None else seconds_in(lag), names).run(stop, tell)

    # care

    def check(
        self, name: str | None = None, *, sample: int | None = None, rows: int = ROWS_SHOWN
    ) -> Check | list[Check]:
        """Compares a view with its query, as of the source versions that it was made of; without a name, all views.
        `sample`: about so many of its rows; `rows`: so many of those that differ are shown."""
        return check_views(self.engine, name, Checker(self.engine, sample=sample, rows=rows))

    def repair(self, name: str, *, force: bool = False) -> Repair:
        """Checks a view, and computes it anew if it is wrong; with `force` in any case."""
        return contested(
            self.engine.catalog, self.engine.split(name), lambda: Repairer(self.engine).repair(name, force=force)
        )

    # live sources

    def attach(self, name: str, table: PostgresTable, *, set_identity: bool = True) -> None:
        """Makes a table in PostgreSQL a source under a name of this warehouse, and begins to capture its changes.

        `set_identity` allows ALTER TABLE ... REPLICA IDENTITY FULL, which logical decoding needs."""
        attach(self.engine, name, table, set_identity=set_identity)

    def detach(self, name: str) -> None:
        """Ends the capture of a live source that no view reads."""
        detach(self.engine, name)
