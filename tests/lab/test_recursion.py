"""DRed on DuckDB: random programs, facts that come and go, against rules that are run until nothing is new, and against
DuckDB's own recursion where it knows such."""

import contextlib
import re
from collections.abc import Sequence

import pyarrow as pa

from deltaic.algebra.nodes import WEIGHT, Field, Scan, State
from deltaic.algebra.recursion import PREFIX, Component, Predicate
from deltaic.app.rounds.coded import NULL, CodedRunner, Codes, runs_here
from deltaic.app.statements.altering import rules_without
from deltaic.delta.dred import AlteredRules, Of, relation_of
from deltaic.delta.rules import Derivation
from deltaic.errors import UnsupportedError
from deltaic.plan.recursion import Fixpoint, Part, Phase, Query, change_of, evaluated, maintained, parts
from deltaic.plan.rounds import Rounds
from deltaic.sql.lower import lower
from deltaic.sql.parse import parse_query
from deltaic.sql.render import render
from tests.lab.case import Case, Column, Table, Type
from tests.lab.choice import Choice, SeededChoice
from tests.lab.duck import Duck
from tests.lab.histories import random_history, random_row
from tests.lab.keeper import DuckCatalog
from tests.lab.oracle import difference

SHARE = 4
COLUMNS = (Column("a", Type.INT), Column("b", Type.INT))
TABLES = ("e", "f", "n")


class DuckRunner:
    def __init__(self, duck: Duck) -> None:
        self.duck = duck

    def keep(self, relation: str, query: Query) -> int:
        self.duck.store(relation, query.sql)
        return int(self.duck.rows(f"SELECT count(*) FROM {relation}")[0][0])

    def add(self, relation: str, other: str) -> None:
        self.duck.store(relation, f"SELECT * FROM {relation} UNION ALL SELECT * FROM {other}")

    def empty(self, relation: str, p: Predicate) -> None:
        listed = ", ".join(f"CAST(NULL AS {f.type}) AS {f.name}" for f in p.fields)
        self.duck.store(relation, f"SELECT * FROM (SELECT {listed}) WHERE FALSE")

    def define(self, relation: str, query: Query) -> None:
        self.duck.store(relation, query.sql)

    def change(self, p: Predicate, lost: Query, won: Query) -> None:
        signed = f"SELECT *, -1 AS {WEIGHT} FROM ({lost.sql}) UNION ALL SELECT *, 1 FROM ({won.sql})"
        self.duck.store(change_of(p), signed)


class Kept:
    """The predicates of a query, kept on DuckDB."""

    def __init__(self, duck: Duck, sql: str) -> None:
        self.duck = duck
        self.components = self.lowered(sql)
        self.rounds = Rounds(DuckRunner(duck), most=200)
        self.coded = 0
        """How often rounds were run in codes, too."""
        for component in self.components:
            fixpoint = evaluated(component)
            self.leaves(fixpoint)
            self.rounds.evaluate(parts(fixpoint.phases[0][1], self.named))

    def lowered(self, sql: str) -> tuple[Component, ...]:
        fields = tuple(Field(c.name, "int") for c in COLUMNS)
        return lower(*parse_query(sql), DuckCatalog(self.duck, dict.fromkeys(TABLES, fields))).components

    def alter(self, sql: str) -> bool:
        """Other rules for the same predicates, as a change; False if they are for others."""
        before, components = {p.source: p for p in self.predicates}, self.lowered(sql)
        now = {p.source: p for component in components for p in component.predicates}
        if {s: (p.name, p.types) for s, p in before.items()} != {s: (p.name, p.types) for s, p in now.items()}:
            return False
        removed = {s: tuple(rules_without(p.rules, now[s].rules)) for s, p in before.items()}
        added = {s: tuple(rules_without(p.rules, before[s].rules)) for s, p in now.items()}
        rules = AlteredRules({s: r for s, r in removed.items() if r}, {s: r for s, r in added.items() if r})
        self.keep_old()
        self.components, moved = components, set[str]()
        for component in components:
            if component.reads & moved or component.sources & rules.predicates:
                moved |= component.sources
                self.maintain(component, maintained(component, Derivation(frozenset(moved)), rules))
        return True

    def keep_old(self) -> None:
        for p in self.predicates:
            old, new = (relation_of(p.source, of) for of in (Of.OLD, Of.NEW))
            self.duck.store(old, f"SELECT * FROM {new}")

    def maintain(self, component: Component, fixpoint: Fixpoint) -> None:
        self.leaves(fixpoint)
        phases = {phase: parts(rounds, self.named) for phase, rounds in fixpoint.phases}
        self.rounds.maintain(phases)
        for p in component.predicates:
            self.check_change(p)
        self.check_coded(component, fixpoint, phases)

    def named(self, scan: Scan) -> str:
        if scan.source.startswith(PREFIX):
            return f"__deltaic_{scan.source.removeprefix('@')}_{scan.state.value}"
        return {State.NEW: scan.source, State.OLD: f"{scan.source}__old", State.CHANGE: f"{scan.source}__change"}[
            scan.state
        ]

    def leaves(self, fixpoint: Fixpoint) -> None:
        for binding in fixpoint.leaves:
            self.duck.store(binding.name, render(binding.node, self.named))

    @property
    def predicates(self) -> list[Predicate]:
        return [p for component in self.components for p in component.predicates]

    def rows(self, p: Predicate, of: Of = Of.NEW) -> list[tuple[object, ...]]:
        listed = ", ".join(f.name for f in p.fields)
        return self.duck.rows(f"SELECT {listed} FROM {relation_of(p.source, of)}")

    def refresh(self, changed: frozenset[str]) -> None:
        self.keep_old()
        moved = set(changed)
        for component in self.components:
            if component.reads & moved:
                moved |= component.sources
                self.maintain(component, maintained(component, Derivation(frozenset(moved))))

    def check_coded(self, component: Component, fixpoint: Fixpoint, phases: dict[Phase, tuple[Part, ...]]) -> None:
        """Rules that can find the same in this process."""
        queries = [q for of in phases.values() for part in of for q in (part.first, part.again) if q is not None]
        if not runs_here(query.node for query in queries):
            return
        codes = Codes()
        engine = CodedRunner(codes)

        def loaded(relation: str) -> pa.Table:
            columns = zip(*self.duck.rows(f"SELECT * FROM {relation}"), strict=True)
            names = [name for name, *_ in self.duck.schema(f"SELECT * FROM {relation}")]
            found = [pa.array(column, pa.int64()) for column in columns] or [pa.array([], pa.int64()) for _ in names]
            rows = pa.table(dict(zip(names, found, strict=True)))
            return pa.table({n: rows[n] if n == WEIGHT else codes.encoded("int", rows[n]) for n in names})

        for binding in fixpoint.leaves:
            leaf = binding.name.removesuffix("_new")
            if leaf != binding.name:
                moved = f"{leaf}_moved" in {b.name for b in fixpoint.leaves}
                names = {of: f"{leaf}_{of}" for of in ("new", "old", "gone", "come")}
                engine.learn_leaf(names, loaded(binding.name), loaded(f"{leaf}_moved") if moved else None)
        for p in self.predicates:
            engine.relations[relation_of(p.source, Of.OLD)] = loaded(relation_of(p.source, Of.OLD))
        Rounds(engine, most=200).maintain(phases)
        self.coded += 1
        for p in component.predicates:
            change = engine.changes[p.source].to_pylist()
            found = [tuple(None if v == NULL else v for v in row.values()) for row in change]
            listed = ", ".join(f.name for f in p.fields)
            wanted = self.duck.rows(f"SELECT {listed}, {WEIGHT} FROM {change_of(p)}")
            assert difference(wanted, found) is None, f"{p.name} in codes"

    def check_change(self, p: Predicate) -> None:
        """The change is what became of the old rows, each once."""
        listed = ", ".join(f.name for f in p.fields)
        change = self.duck.rows(f"SELECT {listed}, {WEIGHT} FROM {change_of(p)}")
        old, new = set(self.rows(p, Of.OLD)), set(self.rows(p))
        wanted = [(*row, 1) for row in new - old] + [(*row, -1) for row in old - new]
        assert difference(wanted, change) is None, p.name

    def naive(self, component: Component) -> dict[str, set[tuple[object, ...]]]:
        """Every rule over everything, until there is nothing new."""
        found: dict[str, set[tuple[object, ...]]] = {p.source: set() for p in component.predicates}
        engine = DuckRunner(self.duck)

        def named(scan: Scan) -> str:
            return f"naive_{scan.source[1:]}" if scan.source.startswith(PREFIX) else scan.source

        for p in component.predicates:
            engine.empty(f"naive_{p.source[1:]}", p)
        while True:
            before = sum(map(len, found.values()))
            for p in component.predicates:
                for number, rule in enumerate(p.rules):
                    self.duck.store(f"naive_rule{number}", render(rule, named))
                    found[p.source] |= set(self.duck.rows(f"SELECT * FROM naive_rule{number}"))
            for p in component.predicates:
                rows = " UNION ".join(f"SELECT * FROM ({render(rule, named)})" for rule in p.rules)
                listed = ", ".join(f.name for f in p.fields)
                self.duck.store(f"naive_{p.source[1:]}", f"SELECT * FROM ({rows}) AS q({listed})")
            if sum(map(len, found.values())) == before:
                return found

    def check(self) -> None:
        for component in self.components:
            wanted = self.naive(component)
            for p in component.predicates:
                assert difference(wanted[p.source], self.rows(p)) is None, p.name


Program = dict[str, list[str]]
"""The branches of each predicate."""


def random_program(choice: Choice) -> Program:
    """Predicates p, q and u over the tables, each of two columns of numbers, in components that the dice decide."""
    names = ["p", "q", "u"][: choice.integer(1, 3)]
    mutual = choice.integer(0, 2) == 0
    found: Program = {}
    for place, name in enumerate(names):
        reach = names if mutual else names[: place + 1]
        below = [] if mutual else names[:place]
        found[name] = [base(choice, below) for _ in range(choice.integer(1, 2))]
        reached = reach if choice.integer(0, 3) else [name]
        found[name] += [step(choice, reached, below) for _ in range(choice.integer(1, 2))]
    return found


def text_of(program: Program) -> str:
    ctes = [f"{name}(a, b) AS ({' UNION '.join(branches)})" for name, branches in program.items()]
    return f"WITH RECURSIVE {', '.join(ctes)} SELECT * FROM {[*program][-1]}"


def duck_text(program: Program) -> str | None:
    """As DuckDB takes it, which has one branch that recurs, and in that only what the round before found; None for
    programs whose predicates need others of their component, or themselves more than once in a branch."""
    ctes, known = [], set[str]()
    for name, branches in program.items():
        read = [re.findall(r"\b(?:FROM|JOIN) ([pqu])\b", branch) for branch in branches]
        if any(set(names) - known - {name} or names.count(name) > 1 for names in read):
            return None
        known.add(name)
        begin = [b for b, names in zip(branches, read, strict=True) if name not in names]
        again = [b for b, names in zip(branches, read, strict=True) if name in names]
        if not begin:
            return None
        recurring = f" UNION ({' UNION ALL '.join(again)})" if again else ""
        ctes.append(f"{name}(a, b) AS (({' UNION '.join(begin)}){recurring})")
    return f"WITH RECURSIVE {', '.join(ctes)}"


def altered(choice: Choice, program: Program) -> Program:
    """A rule less, or one more, of some predicates."""
    found = {name: list(branches) for name, branches in program.items()}
    for name, branches in found.items():
        if choice.integer(0, 1) and len(branches) > 1:
            branches.pop(choice.integer(0, len(branches) - 1))
        if choice.integer(0, 1):
            branches.append(step(choice, [name], []))
    return found


def base(choice: Choice, below: Sequence[str]) -> str:
    table = choice.pick((*TABLES, *below))
    return choice.pick((
        f"SELECT a, b FROM {table}",
        f"SELECT b, a FROM {table} WHERE a IS NOT NULL",
        f"SELECT x.a, y.b FROM {table} x JOIN n y ON x.b = y.a",
        f"SELECT a, max(b) AS m FROM {table} GROUP BY a",
        f"SELECT a, b FROM {table} x WHERE NOT EXISTS (SELECT 1 FROM f WHERE f.a = x.b)",
    ))  # fmt: skip


def step(choice: Choice, reach: Sequence[str], below: Sequence[str]) -> str:
    """A branch that reads a predicate of its own component, or of several."""
    p, q = choice.pick(tuple(reach)), choice.pick(tuple(reach))
    table, other = choice.pick((*TABLES, *below)), choice.pick((*TABLES, *below))
    joined = choice.pick((
        f"{table} x JOIN {p} y ON x.b = y.a",
        f"{p} x JOIN {table} y ON x.b = y.a",
        f"{p} x JOIN {q} y ON x.b = y.a",
        f"{p} x JOIN {table} y ON x.b <=> y.a JOIN {other} z ON z.a = y.b",
        f"{p} x JOIN {table} y ON x.a = y.a AND x.b > y.b",
        f"{table} x JOIN {p} z ON x.b = z.a JOIN {other} y ON z.b = y.a",
    ))  # fmt: skip
    where = choice.pick((
        "",
        "",
        " WHERE x.a <> y.b",
        f" WHERE NOT EXISTS (SELECT 1 FROM {other} k WHERE k.a = y.b)",
        f" WHERE y.b NOT IN (SELECT b FROM {other})",
        f" WHERE x.a IN (SELECT a FROM {other} WHERE b > 1)",
        f" WHERE EXISTS (SELECT 1 FROM {p} k WHERE k.a = y.b)",
    ))  # fmt: skip
    what = choice.pick(("x.a, y.b", "x.a, y.b", "x.a, y.b", "y.b, x.a", "DISTINCT x.a, y.b", "x.a, y.b % 3"))
    return f"SELECT {what} FROM {joined}{where}"


def case_of(seed: int) -> tuple[Case, Program]:
    choice = SeededChoice(seed)
    tables = tuple(
        Table(name, COLUMNS, tuple(random_row(choice, COLUMNS) for _ in range(choice.integer(0, 7)))) for name in TABLES
    )
    return Case(tables, (), random_history(choice, tables, list(TABLES)), seed), random_program(choice)


def check_by_duck(kept: Kept, program: Program) -> bool:
    """Whether DuckDB could be asked."""
    text = duck_text(program)
    for p in kept.predicates if text else ():
        found = kept.duck.rows(f"{text} SELECT a, b FROM {p.name}")
        assert difference(found, kept.rows(p)) is None, f"{p.name} by DuckDB's recursion"
    return text is not None


def run(duck: Duck, case: Case, program: Program) -> tuple[int, int]:
    """How often rounds were run in codes, too; and how often DuckDB's recursion told the same."""
    duck.reset(case)
    kept = Kept(duck, text_of(program))
    kept.check()
    choice, asked = SeededChoice(case.seed or 0), int(check_by_duck(kept, program))
    for batch in case.history:
        other = altered(choice, program)
        with contextlib.suppress(UnsupportedError):
            if kept.alter(text_of(other)):
                program = other
            kept.check()
        duck.snapshot()
        duck.apply(batch)
        changed = frozenset(statement.table for statement in batch)
        for table in changed:
            duck.change(table)
        kept.refresh(changed)
        kept.check()
        asked += check_by_duck(kept, program)
    return kept.coded, asked


def test_random_programs(first_seed: int, duck: Duck) -> None:
    for seed in range(first_seed, first_seed + SHARE):
        case, program = case_of(seed)
        try:
            run(duck, case, program)
        except BaseException as problem:
            problem.add_note(f"seed {seed}: {text_of(program)}\n{case.script()}")
            raise


def test_phases_fill_what_they_are_for() -> None:
    assert [phase.fills for phase in Phase] == [Of.COME, Of.GONE, Of.BACK, Of.COME]
