"""Random Datalog programs, kept on DuckDB as facts and rules come and go, against what they mean."""

from deltaic.algebra.nodes import Field
from deltaic.algebra.reasons import Code, NotLowered
from deltaic.algebra.recursion import Component
from deltaic.sql.datalog.check import Table, checked
from deltaic.sql.datalog.parse import parse_program
from deltaic.sql.datalog.to_sql import view_query
from deltaic.sql.lower import Lowered, lower
from deltaic.sql.parse import parse_query
from deltaic.sql.render import render
from tests.lab import case
from tests.lab.choice import SeededChoice
from tests.lab.datalog_meaning import meaning
from tests.lab.datalog_programs import TABLES, Program, altered, random_program
from tests.lab.duck import Duck
from tests.lab.histories import random_history, random_row
from tests.lab.keeper import DuckCatalog
from tests.lab.oracle import difference
from tests.lab.test_recursion import COLUMNS, Kept

SHARE = 2
BASE = dict.fromkeys(TABLES, Table(tuple((column.name, "int") for column in COLUMNS)))
FIELDS = dict.fromkeys(TABLES, tuple(Field(column.name, "int") for column in COLUMNS))


class KeptProgram(Kept):
    """The recursive predicates that one of a program's predicates needs."""

    def __init__(self, duck: Duck, program: Program) -> None:
        self.program = program
        self.of: dict[str, Lowered] = {}
        super().__init__(duck, self.sql)

    @property
    def name(self) -> str:
        return self.program.predicates[-1]

    @property
    def sql(self) -> str:
        return view_query(checked(parse_program(self.program.text), BASE.get), self.name).sql

    def lowered(self, sql: str) -> tuple[Component, ...]:
        if sql not in self.of:
            self.of[sql] = lower(*parse_query(sql), DuckCatalog(self.duck, FIELDS))
        return self.of[sql].components

    def changed_to(self, program: Program) -> "KeptProgram":
        """Kept under other rules; anew, if there are other predicates."""
        self.program = program
        now = [(p.name, p.types) for component in self.lowered(self.sql) for p in component.predicates]
        if sorted(now) != sorted((p.name, p.types) for p in self.predicates):
            return KeptProgram(self.duck, program)
        return self if self.alter(self.sql) else KeptProgram(self.duck, program)

    def check_meaning(self, seed: int) -> None:
        tables = {name: set(self.duck.rows(f"SELECT a, b FROM {name}")) for name in TABLES}
        found = self.duck.rows(render(self.of[self.sql].node, self.named))
        wrong = difference(meaning(self.program, tables)[self.name], found)
        assert wrong is None, f"seed {seed}, {self.name} of\n{self.program.text}\nover {tables}:\n{wrong}"


def run(duck: Duck, seed: int) -> None:
    choice = SeededChoice(seed)
    rows = {name: tuple(random_row(choice, COLUMNS) for _ in range(choice.integer(0, 7))) for name in TABLES}
    tables = tuple(case.Table(name, COLUMNS, rows[name]) for name in TABLES)
    duck.reset(case.Case(tables, (), (), seed))
    kept = KeptProgram(duck, random_program(choice))
    kept.check_meaning(seed)
    for batch in random_history(choice, tables, TABLES)[:2]:
        kept = kept.changed_to(altered(choice, kept.program))
        kept.check_meaning(seed)
        duck.snapshot()
        duck.apply(batch)
        changed = frozenset(statement.table for statement in batch)
        for table in changed:
            duck.change(table)
        kept.refresh(changed)
        kept.check_meaning(seed)


def run_if_kept(duck: Duck, seed: int) -> None:
    """A program that is too large to be kept is recomputed."""
    try:
        run(duck, seed)
    except NotLowered as refusal:
        if refusal.reason.code is not Code.TOO_LARGE:
            raise


def test_random_programs(first_seed: int, duck: Duck) -> None:
    for seed in range(first_seed, first_seed + SHARE):
        run_if_kept(duck, seed)
