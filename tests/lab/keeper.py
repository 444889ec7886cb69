"""Keeps the views of a case on DuckDB with the engine's own algebra, delta rules and programs."""

from deltaic.algebra.expr import quote
from deltaic.algebra.nodes import Field, Scan, State
from deltaic.algebra.reasons import Reason
from deltaic.plan.maintain import Maintenance, Way, choose
from deltaic.plan.program import ARTIFACT, OP, VIEW, Program, program_for, rows_artifact
from deltaic.sql.lower import lower
from deltaic.sql.parse import parse_query
from deltaic.sql.render import render
from deltaic.sql.scope import SourceInfo
from tests.lab.case import Case, View
from tests.lab.duck import Duck


class DuckCatalog:
    """Answers what the lowering asks from DuckDB."""

    def __init__(self, duck: Duck, tables: dict[str, tuple[Field, ...]]) -> None:
        self.duck, self.tables = duck, tables

    def table(self, parts: tuple[str, ...]) -> SourceInfo | None:
        name = parts[-1].lower()
        fields = self.tables.get(name)
        return None if fields is None else SourceInfo(name, ("main", name), fields)

    def types(self, sql: str) -> tuple[Field, ...]:
        return tuple(Field(*field) for field in self.duck.schema(sql))

    def is_builtin(self, function: str) -> bool:
        return True


class KeptView:
    def __init__(self, duck: Duck, view: View, catalog: DuckCatalog) -> None:
        self.duck, self.view = duck, view
        tree, text = parse_query(view.sql)
        self.lowered = lower(tree, text, catalog)
        self.way: Maintenance | Reason = choose(self.lowered.node)

    @property
    def table(self) -> str:
        """What is stored; the view's own name shows the user's columns of it only."""
        return f"{self.view.name}__kept"

    @property
    def names(self) -> tuple[str, ...]:
        return self.lowered.names

    def relation(self, scan: Scan) -> str:
        name = self.table if scan.source == VIEW else scan.source
        suffix = "" if scan.state is State.NEW else f"__{scan.state.value}"
        return quote(name + suffix)

    def stored(self) -> dict[str, str]:
        """The algebra's column to the stored one."""
        assert isinstance(self.way, Maintenance)
        return dict(zip(self.way.root.columns, (*self.names, *self.way.hidden), strict=True))

    def create(self) -> None:
        if isinstance(self.way, Reason):
            self.duck.store(self.table, self.view.sql)
            self.duck.define(self.view.name, self.visible())
            return
        columns = ", ".join(f"{quote(a)} AS {quote(s)}" for a, s in self.stored().items())
        self.duck.store(self.table, f"SELECT {columns} FROM ({render(self.way.root, self.relation)})")
        self.duck.define(self.view.name, self.visible())

    def refresh(self, changed: frozenset[str]) -> None:
        if isinstance(self.way, Reason):
            self.create()
            return
        program = program_for(self.way, changed)
        if program is None:
            return
        self.run(program)
        if self.way.way is Way.ROWS:
            columns = ", ".join(f"{quote(s)} AS {quote(a)}" for a, s in self.stored().items())
            self.duck.store("@view", f"SELECT {columns} FROM {quote(self.table)}")
            self.run(rows_artifact(self.way), view="@view")
        self.apply(self.way)

    def run(self, program: Program, view: str | None = None) -> None:
        def relation(scan: Scan) -> str:
            return quote(view) if view and scan.source == VIEW else self.relation(scan)

        for binding in program.bindings:
            self.duck.store(binding.name, render(binding.node, relation).replace("raise_error(", "error("))

    def apply(self, way: Maintenance) -> None:
        name, stored = quote(self.table), self.stored()
        on = " AND ".join(f"v.{quote(stored[k])} <=> a.{quote(k)}" for k in way.key)
        keep = ", ".join(quote(s) for s in stored.values())
        new = ", ".join(f"{quote(a)} AS {quote(s)}" for a, s in stored.items())
        self.duck.store(
            self.table,
            f"SELECT {keep} FROM {name} AS v WHERE NOT EXISTS"
            f" (SELECT 1 FROM {ARTIFACT} AS a WHERE a.{OP} = -1 AND {on})"
            f" UNION ALL SELECT {new} FROM {ARTIFACT} WHERE {OP} = 1",
        )

    def visible(self) -> str:
        return f"SELECT {', '.join(quote(n) for n in self.names)} FROM {quote(self.table)}"


def keep_case(duck: Duck, case: Case) -> tuple[list[KeptView], DuckCatalog]:
    tables = {t.name: tuple(Field(c.name, c.type.value.lower(), True) for c in t.columns) for t in case.tables}
    catalog = DuckCatalog(duck, tables)
    kept: list[KeptView] = []
    for view in case.views:
        view_ = KeptView(duck, view, catalog)
        view_.create()
        fields = duck.schema(view_.visible())
        tables[view.name] = tuple(Field(*field) for field in fields)
        kept.append(view_)
    return kept, catalog
