"""Cases of the property lab, from a seed or from Hypothesis; run as a program it says what they are made of.

python -m tests.lab.generate --stats 2000     how often each construct occurs, how many views run
python -m tests.lab.generate --show 42        one case as a SQL script
"""

import argparse
from collections.abc import Callable

import hypothesis.strategies as st

from tests.lab.case import Case, Column, Grade, Row, Table, Type, View
from tests.lab.choice import Choice, DrawnChoice, SeededChoice
from tests.lab.context import Relation
from tests.lab.histories import random_history, random_row
from tests.lab.queries import write_view

_NAMES = {
    Type.INT: ("a", "b", "k", "group", "x.y"),
    Type.BIGINT: ("n", "m"),
    Type.STRING: ("s", "g", "é"),
    Type.DECIMAL: ("p", "amount"),
    Type.DATE: ("d", "day"),
    Type.BOOLEAN: ("f", "flag"),
    Type.DOUBLE: ("x", "y"),
}
_TYPES = [
    (4, Type.INT),
    (3, Type.STRING),
    (2, Type.BIGINT),
    (2, Type.DECIMAL),
    (2, Type.DATE),
    (1, Type.BOOLEAN),
    (3, Type.DOUBLE),
]


def case_of(seed: int) -> Case:
    """The case of a seed: the same one every time, on every machine."""
    return generate(SeededChoice(seed), seed)


@st.composite
def cases(draw: Callable[[st.SearchStrategy[int]], int]) -> Case:
    """Cases for Hypothesis, which can shrink what fails."""
    return generate(DrawnChoice(lambda low, high: draw(st.integers(low, high))))


def generate(choice: Choice, seed: int | None = None) -> Case:
    tables = tuple(_table(choice, number) for number in range(choice.weighted([(6, 2), (3, 3), (1, 4)])))
    relations = [Relation(table.name, table.columns, 30) for table in tables]
    views: list[View] = []
    read: set[str] = set()
    for number in range(choice.weighted([(6, 1), (4, 2)])):
        query, features, reads = write_view(choice, relations, number)
        view = View(f"v{number}", query.sql, query.columns, features)
        read |= reads
        views.append(view)
        relations = relations + [Relation(view.name, view.columns, query.size)] * 3
    return Case(tables, tuple(views), random_history(choice, tables, read), seed)


def _table(choice: Choice, number: int) -> Table:
    """Every table has an INT or a STRING column under a name that other tables use too."""
    first = choice.pick((Type.INT, Type.STRING))
    types = [first] + [choice.weighted(_TYPES) for _ in range(choice.integer(1, 4))]
    columns: list[Column] = []
    for type_ in types:
        free = [name for name in _NAMES[type_] if name not in {column.name for column in columns}]
        if free:
            tenths = type_ is Type.DOUBLE and choice.chance(40)
            name = free[0] if choice.chance(70) else choice.pick(free)
            columns.append(Column(name, type_, Grade.STABLE if tenths else Grade.EXACT))
    return Table(f"t{number}", tuple(columns), _rows(choice, tuple(columns)))


def _rows(choice: Choice, columns: tuple[Column, ...]) -> tuple[Row, ...]:
    low, high = choice.weighted(
        [(5, (1, choice.max_rows // 3)), (1, (0, 0)), (12, (choice.max_rows // 3, choice.max_rows))]
    )
    rows = [random_row(choice, columns) for _ in range(choice.integer(low, high))]
    if rows and choice.chance(60):
        rows += [choice.pick(rows) for _ in range(choice.integer(1, 3))]
    return tuple(rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.generate", description="Cases of the property lab.")
    parser.add_argument("--stats", type=int, metavar="N", help="what the first N seeds are made of")
    parser.add_argument("--show", type=int, metavar="SEED", help="the case of a seed, as a SQL script")
    arguments = parser.parse_args()
    if arguments.show is not None:
        print(case_of(arguments.show).script())
    if arguments.stats is not None:
        from tests.lab.statistics import report

        print(report(case_of, range(arguments.stats)))


if __name__ == "__main__":
    main()
