"""Bringing views back: what is wrong is computed anew, in one commit, and checked again.

A view whose table cannot even be read is made anew from what is left of its log, which says what its query was.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from deltaic.app.care.checking import Checker
from deltaic.app.catalogs.catalog import KEPT_DELTA
from deltaic.app.catalogs.folders import set_aside
from deltaic.app.catalogs.local import LocalCatalog
from deltaic.app.catalogs.on_folders import lost
from deltaic.app.refresh.engine import Engine
from deltaic.app.refresh.refresher import Refresher
from deltaic.app.statements.making import materialize
from deltaic.app.values.definition import Definition, definition_in
from deltaic.app.values.report import DAMAGED, Check, Repair
from deltaic.errors import DefinitionDamaged, DeltaicError, MissingError, SourceError, UnsupportedError
from deltaic.store.damage import properties_in
from deltaic.store.log import Log

Name = tuple[str, str]


def check_views(engine: Engine, name: str | None, checker: Checker) -> Check | list[Check]:
    """One view, or all of them, those too that cannot be asked what they are."""
    broken = damaged(engine)

    def checked(own: Name) -> Check:
        problem = broken.get(_lower(own))
        if problem is not None:
            return _unreadable(own, problem)
        found = checker.check(engine.catalog.definition(*own))
        if not found.right and engine.catalog.is_gone(*own):
            raise MissingError(f"{'.'.join(own)} was dropped meanwhile")
        return found

    if name is not None:
        return checked(engine.split(name))
    return [checked(own) for own in views_to_check(engine)]


def views_to_check(engine: Engine) -> list[Name]:
    """All views, and what cannot be read and was one."""
    lost = [name for name in engine.catalog.damaged() if _is_view(engine, name)]
    return list(dict.fromkeys([*lost, *engine.catalog.view_names()]))


def damaged(engine: Engine) -> dict[Name, DeltaicError]:
    return {_lower(name): problem for name, problem in engine.catalog.damaged().items()}


def _lower(name: Name) -> Name:
    return name[0].lower(), name[1].lower()


def _unreadable(name: Name, problem: DeltaicError) -> Check:
    hint = "deltaic repair, or Warehouse.repair(name), makes it anew of what its log still says."
    return Check(".".join(name), DAMAGED, notes=(problem.what,), hint=hint)


def _is_view(engine: Engine, name: Name) -> bool:
    """Whether what cannot be read was a view, as far as its log tells."""
    return not isinstance(engine.catalog, LocalCatalog) or engine.catalog.was_view(*name)


class Repairer:
    def __init__(self, engine: Engine) -> None:
        self.engine, self.catalog = engine, engine.catalog

    def repair(self, name: str, *, force: bool = False) -> Repair:
        with self.engine.lock():
            own = self.engine.split(name)
            broken = damaged(self.engine).get(_lower(own)) or self.lost(own)
            if broken is None:
                return self.recompute(self.catalog.definition(*own), force)
            if not isinstance(broken, DefinitionDamaged | SourceError):
                raise broken  # it is not damaged: made by a newer Deltaic, say
            definition = self.rebuild(own, broken)
            after = Checker(self.engine).check(definition)
            return Repair(definition.full_name, "rebuilt", _unreadable(own, broken), after)

    def lost(self, name: Name) -> DefinitionDamaged | None:
        """A table that was a view, and has lost its definition."""
        views = map(_lower, self.catalog.view_names())
        if _lower(name) in views or not isinstance(self.catalog, LocalCatalog) or not _is_view(self.engine, name):
            return None
        return lost(*name)

    def recompute(self, definition: Definition, force: bool) -> Repair:
        before = Checker(self.engine).check(definition)
        if not before.wrong and not force:
            return Repair(definition.full_name, "none", before, before)
        # what was kept of its changes may be as wrong as it is
        self.catalog.discard_hidden(KEPT_DELTA, definition.schema, definition.name)
        report = Refresher(self.engine).refresh(definition, full=True)
        after = Checker(self.engine).check(self.catalog.definition(definition.schema, definition.name))
        return Repair(definition.full_name, "recomputed", before, after, report)

    def rebuild(self, name: Name, problem: DeltaicError) -> Definition:
        """Makes the view anew of the newest definition in its log: in its table, if that has a log that can be read,
        else in the place of it. Killed at any instant, either the old table is there or the new one."""
        if not isinstance(self.catalog, LocalCatalog):
            raise UnsupportedError(
                f"{'.'.join(name)} cannot be read ({problem.what}), and its table is the session's catalog's",
                hint="Drop its table and CREATE the materialized view again.",
            )
        folder = self.catalog.folder(*name)
        definition = self.left_in(folder, name, problem)
        self.catalog.hide(*name)
        self.catalog.discard_hidden(KEPT_DELTA, definition.schema, definition.name)
        if isinstance(problem, DefinitionDamaged):
            self.let_columns_change(name)
            materialize(self.engine, definition, None, replacing=True)
        else:
            if folder.parent.parent != self.catalog.root:
                raise UnsupportedError(f"{'.'.join(name)} is in {folder}, outside of the warehouse")
            with set_aside(self.catalog.root, folder):
                materialize(self.engine, definition, {}, replacing=False)
        return self.catalog.definition(definition.schema, definition.name)

    def let_columns_change(self, name: Name) -> None:
        """Somebody made the table anew. Where it has a change feed, Delta does not let columns be stored otherwise."""
        ref = self.catalog.view_ref(*name)
        properties = Log(ref).snapshot().properties
        if "delta.columnMapping.mode" not in properties and properties.get("delta.enableChangeDataFeed") == "true":
            self.engine.spark.sql(f"ALTER TABLE {ref.relation} SET TBLPROPERTIES (delta.enableChangeDataFeed = false)")

    def left_in(self, folder: Path, name: Name, problem: DeltaicError) -> Definition:
        for properties in properties_in(folder):
            with suppress(DefinitionDamaged):
                return definition_in(properties, *name)
        raise UnsupportedError(
            f"{'.'.join(name)} cannot be repaired: {problem.what}; and nothing in its log says what its query was",
            hint=f"Move {folder} away, and CREATE the materialized view again.",
        )
