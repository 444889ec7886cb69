"""What every room of the app works with: Spark, a catalog, and what is known of its views.

Nothing in here decides; it finds, locks, remembers, and brings the captured logs of live sources up to now.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from deltaic.app.catalogs.catalog import Catalog, path_source
from deltaic.app.catalogs.live import Captures, LiveTable
from deltaic.app.catalogs.local import LocalCatalog
from deltaic.app.refresh.compile import Compiled, compile_view
from deltaic.app.refresh.contest import unless_gone
from deltaic.app.refresh.sources import form_of
from deltaic.app.values.definition import Definition, give_settings
from deltaic.errors import DefinitionDamaged, DeltaicError, MissingError, NameProblem, ParseError, SourceError
from deltaic.spark.session import forked
from deltaic.sql.parse_statement import parse_statement
from deltaic.sql.statements import RefreshView
from deltaic.store.lock import refresh_lock
from deltaic.store.log import Log, OwnCommit, last_commit_with_marker
from deltaic.store.own_table import OwnTable
from deltaic.store.progress import Progress
from deltaic.store.table import TableRef, first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
Asked = dict[tuple[str, str], tuple[frozenset[str], ...]]
"""The keys of views, by schema and name, while one question is answered."""


class Engine:
    """`use_rs`: whether delta-rs may read and write what is small; else all of it is Spark's."""

    def __init__(self, spark: SparkSession, catalog: Catalog, *, use_rs: bool) -> None:
        self.spark, self.catalog, self.use_rs = spark, catalog, use_rs
        self.captures = Captures()
        self._mutex = RLock()
        self._compiled: dict[str, tuple[str, Compiled]] = {}
        """By a view's name: the definition, and what it was compiled to."""

    # one at a time, and each under its own settings

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
            give_settings(session, definition.settings)
            session.catalog.setCurrentDatabase(definition.current_schema)
            self.catalog.register_odd_names(session)
            yield session

    # names to definitions and tables

    def split(self, name: str) -> tuple[str, str]:
        """Schema and name of a dotted name as SQL writes it."""
        try:
            statement = parse_statement(f"REFRESH MATERIALIZED VIEW {name}")
        except ParseError:
            statement = None
        if not isinstance(statement, RefreshView) or statement != RefreshView(statement.name):
            raise NameProblem(f"{name!r} is no name", hint="Write a name with odd characters in backticks.")
        return self.catalog.qualified(statement.name)

    def definition(self, name: str) -> Definition:
        return self.catalog.definition(*self.split(name))

    def definitions(self) -> tuple[list[Definition], dict[str, DefinitionDamaged]]:
        """Of all views; and by its name, what is wrong with one that cannot be used."""
        found = {".".join(name): self._definition_or_problem(*name) for name in self.catalog.view_names()}
        found |= {".".join(name): problem for name, problem in self.catalog.without_definition().items()}
        damaged = {name: one for name, one in found.items() if isinstance(one, DefinitionDamaged)}
        return [one for one in found.values() if isinstance(one, Definition)], damaged

    def _definition_or_problem(self, schema: str, name: str) -> Definition | DefinitionDamaged | None:
        try:
            return unless_gone(self.catalog, (schema, name), partial(self.catalog.read_definition, schema, name))
        except DefinitionDamaged as problem:
            return problem
        except (SourceError, PySparkException) as problem:
            return DefinitionDamaged(f"{schema}.{name} cannot be read: {first_line(problem)}")

    def view_table(self, definition: Definition) -> OwnTable:
        ref = self.catalog.view_ref(definition.schema, definition.name)
        return OwnTable(ref, self.lock_file, self.spark, definition.clustered_by)

    # sources

    def source_ref(self, key: str) -> TableRef | None:
        """The table behind a source's key; views of the same name come first, as in a query."""
        if key.startswith("delta.`"):
            return path_source(("delta", key[len("delta.`") : -1].replace("``", "`")))
        live = self.live(key)
        if live is not None:
            return live.ref
        schema, name = key.split(".", 1)
        view = self.catalog.view_called(schema, name)
        try:
            return self.catalog.table_ref(schema, name) if view is None else self.catalog.view_ref(*view)
        except (MissingError, NameProblem, SourceError):
            return None

    def source_log(self, key: str) -> tuple[Log, int] | None:
        """A source's log, and its newest version; None if the source is gone or cannot be read."""
        ref = self.source_ref(key)
        if ref is None:
            return None
        log = Log(ref, self.spark)
        try:
            return log, log.version()
        except SourceError:
            return None

    def live(self, key: str) -> LiveTable | None:
        return None if key.startswith("delta.`") else self.catalog.live(*key.split(".", 1))

    def capture(self, definition: Definition) -> None:
        """Bring the captured logs of a view's live sources up to now."""
        last = self.last_progress(definition)
        found = [live for key in (last.sources if last else ()) if (live := self.live(key)) is not None]
        if found:
            with self.lock():
                for live in found:
                    self.captures.step(live)

    # where views are

    def last_progress(self, definition: Definition) -> Progress | None:
        return self.progress_at(definition.schema, definition.name)

    def progress_at(self, schema: str, name: str) -> Progress | None:
        """What the newest refresh of a view said of itself."""

        def asked() -> OwnCommit | None:
            return last_commit_with_marker(Log(self.catalog.view_ref(schema, name), self.spark))

        marked = unless_gone(self.catalog, (schema, name), asked)
        return Progress.of(marked.commit) if marked else None

    def progresses(self) -> dict[tuple[str, str], Progress]:
        """What the newest refresh of each view said of itself. One whose table is gone reads nothing any more."""
        found = {}
        for name in self.catalog.view_names():
            with suppress(SourceError):
                last = self.progress_at(*name)
                if last is not None:
                    found[name] = last
        return found

    def readers(self, key: str) -> dict[str, int]:
        """The views that read a source, and the version that each is at."""
        there = self.progresses()
        return {".".join(name): last.sources[key].version for name, last in there.items() if key in last.sources}

    # what views are compiled to

    def compiled(self, definition: Definition, asked: Asked | None = None) -> Compiled:
        """Compiled once, and again when the definition or a source's columns are other ones. `asked` are the answers of
        views below: in a tower of views many ways lead to the same one."""
        asked = {} if asked is None else asked
        told, compiled = self._compiled.get(definition.full_name, ("", None))
        if compiled is None or told != definition.to_json() or not self._is_of_now(compiled, asked):
            compiled = self._compile(definition, asked)
            self._compiled[definition.full_name] = (definition.to_json(), compiled)
        return compiled

    def compiled_or_none(self, definition: Definition) -> Compiled | None:
        """None if it cannot be compiled any more: its own refresh will say so."""
        try:
            return self.compiled(definition)
        except Exception as problem:  # of Spark too: the schema that it was made in may be dropped
            _log.debug("%s cannot be compiled: %s", definition.full_name, first_line(problem))
            return None

    def compile_new(self, definition: Definition) -> Compiled:
        """Compiles with the text in its place in the statement, so that errors point there; keeps it bare."""
        compiled = self._compile(definition, {})
        return replace(compiled, definition=replace(compiled.definition, query=definition.query.strip()))

    def forget(self, full_name: str) -> None:
        """A view is gone: names that come and go would pile up."""
        self._compiled.pop(full_name, None)

    def _compile(self, definition: Definition, asked: Asked) -> Compiled:
        self.catalog.keep_up()  # the query's names are asked of Spark
        with self.session_for(definition) as session:
            unique_of = partial(self._unique_of, asked)
            return compile_view(definition, self.catalog, session, unique_of, use_rs=self.use_rs)

    def _is_of_now(self, compiled: Compiled, asked: Asked) -> bool:
        """Whether all that it reads is what it was when it was compiled."""
        for key, source in compiled.sources.items():
            ref = self.source_ref(key)
            if ref is None or ref != source.ref or form_of(Log(ref, self.spark)) != source.form:
                return False
            if source.is_view and self._unique_of(asked, *key.split(".", 1)) != source.keys:
                return False
        return True

    def _unique_of(self, asked: Asked, schema: str, name: str) -> tuple[frozenset[str], ...]:
        """The keys of a view, as its query tells now: what it reads may be another view than before."""
        own = (schema.lower(), name.lower())
        if own not in asked:
            asked[own] = ()  # of a view that cannot be compiled any more: its own refresh, or its reader's, says so
            with suppress(DeltaicError):
                asked[own] = self.compiled(self.catalog.definition(schema, name), asked).unique
        return asked[own]
