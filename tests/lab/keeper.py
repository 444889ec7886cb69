"""Keeps the views of a case on DuckDB with the engine's own algebra, delta rules and programs."""

import zlib
from collections.abc import Iterable
from dataclasses import replace

from deltaic.algebra.keys import Declared, Reference
from deltaic.algebra.nodes import SHOWN, Aggregate, Field, Join, JoinKind, Scan, ScanColumn, State
from deltaic.algebra.quoting import quote
from deltaic.algebra.reasons import Reason
from deltaic.algebra.trees import sources, walk
from deltaic.delta.common import Columns, Shape, shapes
from deltaic.plan.choose import choose
from deltaic.plan.maintain import VIEW, Form, Known, Maintenance, Way
from deltaic.plan.program import (
    AGAIN,
    AGAIN_KEYS,
    ARTIFACT,
    OP,
    Program,
    again_program,
    program_for,
    rows_artifact,
)
from deltaic.sql.lower import lower
from deltaic.sql.parse import parse_query
from deltaic.sql.render import render
from deltaic.sql.scope import SourceInfo
from tests.lab.case import Case, View
from tests.lab.duck import Duck

USUAL = Form()


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
    def __init__(
        self,
        duck: Duck,
        view: View,
        catalog: DuckCatalog,
        technique: str = "auto",
        declared: Declared | None = None,
        references: tuple[Reference, ...] = (),
        form: Form = USUAL,
    ) -> None:
        self.duck, self.view, self.technique, self.catalog = duck, view, technique, catalog
        self.refreshes = 0
        self.table = f"{view.name}__{technique}"
        """What is stored; the view's own name shows the user's columns of it only."""
        tree, text = parse_query(view.sql)
        self.lowered = lower(tree, text, catalog)
        self.way: Maintenance | Reason = choose(
            self.lowered.node, technique, declared=declared or {}, references=references, form=form
        )

    @property
    def names(self) -> tuple[str, ...]:
        return self.lowered.names

    def relation(self, scan: Scan, view: str | None = None) -> str:
        name = (view or self.table) if scan.source == VIEW else scan.source
        suffix = "" if scan.state is State.NEW else f"__{scan.state.value}"
        whole = quote(name + suffix)
        if scan.near is None:
            return whole
        values = f"SELECT {quote(scan.near.value)} FROM {quote(scan.near.binding)}"
        column = quote(scan.near.column)
        null = f" OR ({column} IS NULL AND EXISTS (SELECT 1 FROM ({values}) AS v(x) WHERE x IS NULL))"
        return f"(SELECT * FROM {whole} WHERE {column} IN ({values}){null * scan.near.nulls})"

    def stored(self) -> dict[str, str]:
        """The algebra's column to the stored one."""
        assert isinstance(self.way, Maintenance)
        return dict(zip(self.way.root.columns, (*self.names, *self.way.hidden), strict=True))

    def create(self) -> None:
        if isinstance(self.way, Reason):
            self.duck.store(self.table, self.view.sql)
            return
        columns = ", ".join(f"{quote(a)} AS {quote(s)}" for a, s in self.stored().items())
        self.duck.store(self.table, f"SELECT {columns} FROM ({render(self.way.whole, self.relation)})")

    def refresh(self, changed: frozenset[str]) -> None:
        if isinstance(self.way, Reason):
            self.create()
            return
        grew = frozenset(filter(self.duck.only_grew, changed))
        known = Known(changed, grew, self.rows(), self.told_at_random(changed), self.in_common())
        program = program_for(self.way, known)
        if program is None:
            return
        columns = ", ".join(f"{quote(s)} AS {quote(a)}" for a, s in self.stored().items())
        self.duck.store("@view", f"SELECT {columns} FROM {quote(self.table)}")
        self.run(program, view="@view")
        if self.way.way is Way.ROWS:
            self.run(rows_artifact(self.way), view="@view")
        if self.way.way is Way.CHANGES and not self.way.by_groups(known):
            self.compute_again(self.way)
        self.apply(self.way.replaced(known))

    def in_common(self) -> dict[Shape, Columns]:
        """Every other time, the view's joins as if other views had them too, with all columns of their tables."""
        assert isinstance(self.way, Maintenance)
        if self.refreshes % 2:
            return {}
        found: dict[Shape, Columns] = {}
        for shaped in shapes(self.way.root):
            more = frozenset(
                (place, ScanColumn(replace(f, name=f"{f.name}#{place}"), f.name))
                for place, table in enumerate(shaped.shape.tables)
                for f in self.catalog.tables[table]
            )
            found[shaped.shape] = shaped.columns | more
        return found

    def told_at_random(self, names: Iterable[str]) -> dict[str, int]:
        """Some size of each: whatever is believed of the tables, the delta is the same (theorem 1 of Lee, Son, Kim)."""
        return {name: 10 ** (zlib.crc32(f"{self.refreshes} {name} {self.view.sql}".encode()) % 7) for name in names}

    def rows(self) -> dict[str, int]:
        """How many rows there are, told every other time to those that choose by it."""
        assert isinstance(self.way, Maintenance)
        self.refreshes += 1
        if not self.way.bags:
            return self.told_at_random((*sources(self.way.root), VIEW))
        if self.refreshes % 2:
            return {}
        tables = {source: source for source in sources(self.way.root)} | {VIEW: self.table}
        return {key: self.duck.rows(f"SELECT count(*) FROM {quote(name)}")[0][0] for key, name in tables.items()}

    def compute_again(self, way: Maintenance) -> None:
        keys = ", ".join(f"{quote(k)} AS {quote(f'{k}_again')}" for k in way.key)
        self.duck.store(AGAIN_KEYS, f"SELECT {keys} FROM {ARTIFACT} WHERE {OP} = 1 AND {AGAIN}")
        columns = ", ".join(quote(c) for c in (OP, *way.root.columns))
        told = f"SELECT {columns} FROM {ARTIFACT} WHERE {OP} = -1 OR NOT {AGAIN}"
        rows = render(again_program(way).artifact, self.relation)
        self.duck.store("again_rows", f"{told} UNION ALL SELECT {columns} FROM ({rows})")
        self.duck.store(ARTIFACT, "SELECT * FROM again_rows")

    def run(self, program: Program, view: str | None = None) -> None:
        def relation(scan: Scan) -> str:
            return self.relation(scan, view)

        for binding in program.bindings:
            self.duck.store(binding.name, render(binding.node, relation).replace("raise_error(", "error("))

    def apply(self, replaced: tuple[str, ...]) -> None:
        name, stored = quote(self.table), self.stored()
        on = " AND ".join(f"v.{quote(stored[k])} <=> a.{quote(k)}" for k in replaced)
        keep = ", ".join(quote(s) for s in stored.values())
        new = ", ".join(f"{quote(a)} AS {quote(s)}" for a, s in stored.items())
        self.duck.store(
            self.table,
            f"SELECT {keep} FROM {name} AS v WHERE NOT EXISTS"
            f" (SELECT 1 FROM {ARTIFACT} AS a WHERE a.{OP} = -1 AND {on})"
            f" UNION ALL SELECT {new} FROM {ARTIFACT} WHERE {OP} = 1",
        )

    def visible(self) -> str:
        hides = isinstance(self.way, Maintenance) and SHOWN in self.way.hidden
        where = f" WHERE {quote(SHOWN)}" if hides else ""
        return f"SELECT {', '.join(quote(n) for n in self.names)} FROM {quote(self.table)}{where}"


def other_techniques(view: KeptView) -> list[str]:
    """What a view is kept by as well: the base rule where another may be at work, and one of the techniques of old."""
    joins = [n for n in walk(view.lowered.node) if isinstance(n, Join)]
    grouped = any(isinstance(n, Aggregate) for n in walk(view.lowered.node))
    found = ["base"] if grouped or any(join.kind is not JoinKind.INNER for join in joins) else []
    return [*found, ("counting", "quass", "blakeley")[len(view.view.sql) % 3]] if grouped or joins else found


def tables_of(case: Case) -> dict[str, tuple[Field, ...]]:
    return {t.name: tuple(Field(c.name, c.type.value.lower(), True) for c in t.columns) for t in case.tables}


def keep_case(duck: Duck, case: Case) -> tuple[list[KeptView], DuckCatalog]:
    """The case's views; one that a better rule keeps is kept by others beside it."""
    tables = tables_of(case)
    catalog = DuckCatalog(duck, tables)
    kept: list[KeptView] = []
    for view in case.views:
        view_ = KeptView(duck, view, catalog)
        view_.create()
        duck.define(view.name, view_.visible())
        fields = duck.schema(view_.visible())
        for technique in other_techniques(view_) if isinstance(view_.way, Maintenance) else ():
            other = KeptView(duck, view, catalog, technique)
            other.create()
            kept.append(other)
        tables[view.name] = tuple(Field(*field) for field in fields)
        kept.append(view_)
    return kept, catalog
