"""The warehouse: where a user's SQL arrives, and what it does to tables and views."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any

from deltaic.app.care.checking import ROWS_SHOWN, Checker
from deltaic.app.care.repairing import Repairer, check_views
from deltaic.app.catalogs.catalog import Catalog, path_source
from deltaic.app.catalogs.live import Captures, LiveTable
from deltaic.app.catalogs.local import LocalCatalog
from deltaic.app.catalogs.session import SessionCatalog
from deltaic.app.pipeline.pipeline import Pipeline
from deltaic.app.pipeline.service import Service
from deltaic.app.pipeline.status import damaged_status, history_of, status_of
from deltaic.app.refresh.compile import Compiled, compile_view
from deltaic.app.refresh.contest import contested, unless_gone
from deltaic.app.refresh.decide import Plan, Planner
from deltaic.app.refresh.explain import explain_alter, explain_create, explain_refresh
from deltaic.app.refresh.refresher import Refresher
from deltaic.app.rolling.apply import Applier
from deltaic.app.rolling.clock import AsOf, Clock
from deltaic.app.rolling.looking import Looker
from deltaic.app.rolling.propagate import Propagator
from deltaic.app.statements.altering import Alteration, altered_definition
from deltaic.app.statements.attach import attach, detach
from deltaic.app.statements.datalog import FromProgram, make_views, program_in, with_query
from deltaic.app.statements.executor import Executor
from deltaic.app.values.definition import ESCAPED, Definition, checked_properties, recorded_settings, seconds_in
from deltaic.app.values.report import Check, Repair, Report
from deltaic.errors import (
    ConfigurationError,
    DefinitionDamaged,
    DeltaicError,
    MissingError,
    NameProblem,
    SetupError,
    SourceError,
    UnsupportedError,
)
from deltaic.spark.session import TABLES_OF_A_WAREHOUSE, forked, has_delta, local_session
from deltaic.sql.parse_statement import parse_statement, split_statements
from deltaic.sql.statements import AlterView, CreateView, RefreshView
from deltaic.store.lock import refresh_lock
from deltaic.store.log import Log, last_commit_with_marker
from deltaic.store.postgres.table import PostgresTable
from deltaic.store.progress import Progress
from deltaic.store.table import TableRef
from deltaic.store.view import ViewTable

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
        return Warehouse(spark, session_catalog, use_rs)
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
    return Warehouse(session, catalog, use_rs)


class Warehouse:
    """Tables, views, and the statements that make and refresh them."""

    def __init__(self, spark: SparkSession, catalog: Catalog, use_rs: bool = True) -> None:
        self.spark, self.catalog, self.use_rs = spark, catalog, use_rs
        self._mutex = RLock()
        self._compiled: dict[str, tuple[object, Compiled]] = {}
        self.captures = Captures()
        self._closed = False

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        place = self.catalog.root if isinstance(self.catalog, LocalCatalog) else "the session's catalog"
        return f"<deltaic warehouse at {place}>"

    def close(self) -> None:
        """Lets go of the warehouse; Spark goes on for the next one."""
        self.captures.close()
        if self._closed or not isinstance(self.catalog, LocalCatalog):
            return
        self._closed = True
        root = self.catalog.root
        _open_here[root] -= 1
        if _open_here[root] == 0:
            del _open_here[root]
            self.catalog.close()

    # what a user calls

    def sql(self, statement: str) -> DataFrame:
        """Runs any Spark SQL, and the MATERIALIZED VIEW statements."""
        self.catalog.keep_up()
        return Executor(self).run(parse_statement(statement))

    def script(self, text: str) -> list[DataFrame]:
        """Runs the statements of a script, one after the other."""
        return [self.sql(statement) for statement in split_statements(text)]

    def datalog(self, text_or_path: str | os.PathLike[str]) -> list[str]:
        """Makes a view of each derived predicate that a Datalog program, or a `.dl` file, asks for. Their names."""
        return make_views(self, program_in(text_or_path))

    def table(self, name: str, *, as_of: AsOf | None = None) -> DataFrame:
        """A table or view as a DataFrame; a view also as of a time, which leaves it where it is."""
        self.catalog.keep_up()
        own = self.split(name)
        if as_of is not None:
            return contested(self.catalog, own, lambda: Looker(self, self.definition(name)).table(as_of))
        if not self.catalog.is_view_name(*own):
            return self.spark.table(name)
        return contested(
            self.catalog, own, lambda: self.spark.sql(self.catalog.reading(*self.catalog.found(*own), pinned=True))
        )

    def refresh(
        self, name: str | None = None, *, full: bool = False, as_of: AsOf | None = None
    ) -> Report | list[Report]:
        """Refreshes one view, `as_of` a time between its own and now; without a name all views, in dependency order,
        to one common time."""
        if name is None:
            if as_of is not None:
                raise ConfigurationError("as_of is for one view: refresh(name, as_of=...)")
            return self.refresh_all(full=full)
        return contested(self.catalog, self.split(name), lambda: self._refreshed(name, full, as_of))

    def _refreshed(self, name: str, full: bool, as_of: AsOf | None) -> Report:
        with self.lock():
            definition = self.definition(name)
            if as_of is None:
                return Refresher(self).refresh(definition, full=full)
            clock = Clock(self)
            moment = clock.moment(definition)
            at = clock.time_meant(moment, as_of)
            clock.check_columns(self.compiled(definition), moment.versions(at))
            applier = Applier(self, definition)
            if not full and applier.reaches(moment, at):
                return applier.apply(at)
            report = Refresher(self).refresh(definition, full=full, pins=clock.pins(moment, at))
            return replace(report, time=at)

    def propagate(self, name: str, *, upto: AsOf | None = None, steps: int | None = None) -> list[Report]:
        """Computes what changed of a view since its kept delta's high-water mark, and keeps it; in as many steps as it
        takes, or in some. The view stays as it is."""
        done: list[Report] = []

        def propagate() -> list[Report]:
            left = None if steps is None else steps - len(done)
            done.extend(Propagator(self, self.definition(name)).propagate(upto, left))
            return done

        return contested(self.catalog, self.split(name), propagate)

    def apply(self, name: str, *, to: AsOf | None = None) -> Report:
        """Folds the kept delta into the view, up to a time; without one, up to the high-water mark."""
        return contested(self.catalog, self.split(name), lambda: Applier(self, self.definition(name)).apply(to))

    def refresh_all(self, *, full: bool = False) -> list[Report]:
        """All views, in dependency order, to one common time."""
        return Pipeline(self).refresh(full=full)

    def compiled_or_none(self, definition: Definition) -> Compiled | None:
        """None if it cannot be compiled any more: its own refresh will say so."""
        try:
            return self.compiled(definition)
        except DeltaicError:
            return None

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
        Service(self, None if lag is None else seconds_in(lag), names).run(stop, tell)

    def explain(self, name_or_sql: str, *, propagate: bool = False) -> str:
        """What a refresh (or the next step of propagation) of the view would do now, or how a CREATE MATERIALIZED VIEW
        would be kept."""
        if propagate:
            return Propagator(self, self.definition(name_or_sql)).explained()
        if " " in name_or_sql.strip() and not name_or_sql.strip().startswith("`"):
            statement = parse_statement(name_or_sql)
            if isinstance(statement, CreateView):
                return self.explain_create(statement)
            if isinstance(statement, AlterView):
                return self.explain_alter(statement)
            raise ConfigurationError("explain takes a view's name, or a CREATE or ALTER MATERIALIZED VIEW statement")
        return self.explain_refresh(name_or_sql)

    def views(self) -> list[dict[str, Any]]:
        """Every view with what its table says about it."""
        definitions, damaged = self.definitions()
        found = [unless_gone(self.catalog, (d.schema, d.name), partial(status_of, self, d)) for d in definitions]
        return [*(status for status in found if status), *(damaged_status(*pair) for pair in damaged.items())]

    def history(self, name: str) -> list[dict[str, Any]]:
        """The newest 100 commits of a view's table, newest first, with what each refresh said of itself."""
        return history_of(Log(self.catalog.view_ref(*self.catalog.found(*self.split(name))), self.spark))

    def check(
        self, name: str | None = None, *, sample: int | None = None, rows: int = ROWS_SHOWN
    ) -> Check | list[Check]:
        """Compares a view with its query, as of the source versions that it was made of; without a name, all views.
        `sample`: about so many of its rows; `rows`: so many of those that differ are shown."""
        return check_views(self, name, Checker(self, sample=sample, rows=rows))

    def repair(self, name: str, *, force: bool = False) -> Repair:
        """Checks a view, and computes it anew if it is wrong; with `force` in any case."""
        return contested(self.catalog, self.split(name), lambda: Repairer(self).repair(name, force=force))

    def attach(self, name: str, table: PostgresTable, *, set_identity: bool = True) -> None:
        """Makes a table in PostgreSQL a source under a name of this warehouse, and begins to capture its changes.

        `set_identity` allows ALTER TABLE ... REPLICA IDENTITY FULL, which logical decoding needs."""
        attach(self, name, table, set_identity=set_identity)

    def detach(self, name: str) -> None:
        """Ends the capture of a live source that no view reads."""
        detach(self, name)

    # what the rooms of the app share

    def split(self, name: str) -> tuple[str, str]:
        """Schema and name of a dotted name as SQL writes it."""
        statement = parse_statement(f"REFRESH MATERIALIZED VIEW {name}")
        if not isinstance(statement, RefreshView) or statement != RefreshView(statement.name):
            raise NameProblem(f"{name!r} is no name", hint="Write a name with odd characters in backticks.")
        return self.catalog.qualified(statement.name)

    def definition(self, name: str) -> Definition:
        return self.catalog.definition(*self.split(name))

    def view_table(self, definition: Definition) -> ViewTable:
        ref = self.catalog.view_ref(definition.schema, definition.name)
        return ViewTable(ref, self.lock_file, self.spark, definition.clustered_by)

    def source_ref(self, key: str) -> TableRef | None:
        """The table behind a source's key; views of the same name come first, as in a query."""
        if key.startswith("delta.`"):
            return path_source(("delta", key[len("delta.`") : -1].replace("``", "`")))
        live = self.live(key)
        if live is not None:
            return live.ref
        schema, name = key.split(".", 1)
        views = {(s.lower(), n.lower()): (s, n) for s, n in self.catalog.view_names()}
        if (schema, name) in views:
            return self.catalog.view_ref(*views[schema, name])
        try:
            return self.catalog.table_ref(schema, name)
        except (MissingError, SourceError):
            return None

    def capture(self, definition: Definition) -> None:
        """Bring the captured logs of a view's live sources up to now."""
        last = self.last_progress(definition)
        found = [live for key in (last.sources if last else ()) if (live := self.live(key)) is not None]
        if found:
            with self.lock():
                for live in found:
                    self.captures.step(live)

    def live(self, key: str) -> LiveTable | None:
        return None if key.startswith("delta.`") else self.catalog.live(*key.split(".", 1))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One writer at a time: Delta's commits on a local disk are atomic inside one JVM only."""
        with self._mutex, refresh_lock(self.lock_file) if self.lock_file else nullcontext():
            yield

    @property
    def lock_file(self) -> Path | None:
        return self.catalog.root / ".deltaic" / "lock" if isinstance(self.catalog, LocalCatalog) else None

    @contextmanager
    def session_for(self, definition: Definition) -> Iterator[SparkSession]:
        """A session with the settings that the view was made under."""
        with forked(self.spark) as session:
            for key, value in definition.settings.items():
                session.conf.set(key, value)
            session.catalog.setCurrentDatabase(definition.current_schema)
            self.catalog.register_odd_names(session)
            yield session

    def compiled(self, definition: Definition) -> Compiled:
        """Compiled once, and again when the definition or a source's columns are other ones."""
        known = self._compiled.get(definition.full_name)
        if known is not None:
            stamp = self.stamp(definition, known[1])
            if stamp == known[0]:
                return known[1]
        with self.session_for(definition) as session:
            compiled = self.compile(definition, session)
        self._compiled[definition.full_name] = (self.stamp(definition, compiled), compiled)
        return compiled

    def forget(self, full_name: str) -> None:
        """A view is gone: names that come and go would pile up."""
        self._compiled.pop(full_name, None)

    def compile(self, definition: Definition, session: SparkSession) -> Compiled:
        return compile_view(definition, self.catalog, session, self.unique_of, use_rs=self.use_rs)

    def stamp(self, definition: Definition, compiled: Compiled) -> object:
        found: list[object] = [definition.to_json()]
        for key in compiled.sources:
            ref = self.source_ref(key)
            if ref is None:
                return object()
            snapshot = Log(ref, self.spark).snapshot()
            unique = self.unique_of(*key.split(".", 1)) if compiled.sources[key].is_view else ()
            found.append((key, ref, snapshot.table_id, json.loads(snapshot.schema_json), unique))
        return found

    def unique_of(self, schema: str, name: str) -> tuple[frozenset[str], ...]:
        """The keys of a view, as its query tells now: what it reads may be another view than before."""
        compiled = self.compiled_or_none(self.catalog.definition(schema, name))
        return compiled.unique if compiled else ()

    def definitions(self) -> tuple[list[Definition], dict[str, DefinitionDamaged]]:
        """Of all views; and by its name, what is wrong with one that cannot be used."""
        found = {".".join(name): self._definition_or_problem(*name) for name in self.catalog.view_names()}
        damaged = {name: one for name, one in found.items() if isinstance(one, DefinitionDamaged)}
        return [one for one in found.values() if isinstance(one, Definition)], damaged

    def _definition_or_problem(self, schema: str, name: str) -> Definition | DefinitionDamaged | None:
        try:
            return unless_gone(self.catalog, (schema, name), partial(self.catalog.read_definition, schema, name))
        except DefinitionDamaged as problem:
            return problem

    def last_progress(self, definition: Definition) -> Progress | None:
        return self.progress_at(definition.schema, definition.name)

    def progress_at(self, schema: str, name: str) -> Progress | None:
        """What the newest refresh of a view said of itself."""
        log = Log(self.catalog.view_ref(schema, name), self.spark)
        marked = unless_gone(self.catalog, (schema, name), partial(last_commit_with_marker, log))
        return Progress.of(marked.commit) if marked else None

    def readers(self, key: str) -> dict[str, int]:
        """The views that read a source, and the version that each is at."""
        found = {}
        for name in self.catalog.view_names():
            last = self.progress_at(*name)
            if last is not None and key in last.sources:
                found[".".join(name)] = last.sources[key].version
        return found

    def new_definition(self, create: CreateView) -> Definition:
        schema, name = self.catalog.qualified(create.name)
        told = checked_properties(create.properties)
        settings = recorded_settings(self.spark)
        if settings.get(ESCAPED, "false").lower() == "true":
            raise UnsupportedError(
                f"a view whose literals are read under {ESCAPED}",
                hint=f"SET {ESCAPED} = false, and write a backslash twice, or the literal as r'...'.",
            )
        return Definition(
            schema=schema,
            name=name,
            query=create.query,
            given=tuple(column for column, _ in create.columns),
            policy=create.policy,
            settings=settings,
            technique=told.technique,
            counts=told.counts,
            strata=told.strata,
            keys=told.keys,
            references=told.references,
            intervals=told.intervals,
            lag=told.lag,
            schedule=told.schedule,
            comment=create.comment,
            partitioned_by=create.partitioned_by,
            clustered_by=create.clustered_by,
            current_schema=self.catalog.current_schema(),
        )

    def compile_new(self, definition: Definition) -> Compiled:
        """Compiles with the text in its place in the statement, so that errors point there; keeps it bare."""
        with self.session_for(definition) as session:
            compiled = self.compile(definition, session)
        return replace(compiled, definition=replace(compiled.definition, query=definition.query.strip()))

    def explain_create(self, create: CreateView) -> str:
        return explain_create(self.compile_new(self.new_definition(self.with_query(create))))

    def with_query(self, statement: FromProgram) -> FromProgram:
        """The statement with its query, which may be in a Datalog file."""
        return with_query(self, statement)

    def alteration(self, old: Definition, query: str) -> Alteration:
        return Alteration(self, old, self.compile_new(altered_definition(old, query)))

    def explain_alter(self, alter: AlterView) -> str:
        query = self.with_query(alter).query
        alteration = self.alteration(self.catalog.definition(*self.catalog.qualified(alter.name)), query)
        return explain_alter(alteration.plan(), alteration.new)

    def explain_refresh(self, name: str) -> str:
        plan: Plan = Planner(self).plan(self.definition(name))
        return explain_refresh(plan, self.compiled(plan.definition))
