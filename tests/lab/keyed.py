"""Cases with keys and references that hold: customers, their orders, the lines of these. Some lines have no order."""

from tests.lab.case import Batch, Case, Column, Row, Statement, Table, Type, View
from tests.lab.choice import Choice, SeededChoice

KEYS = {"c": (frozenset({"id"}),), "o": (frozenset({"id"}),)}
_COLUMNS = {
    "c": (Column("id", Type.INT), Column("town", Type.INT)),
    "o": (Column("id", Type.INT), Column("c", Type.INT), Column("item", Type.INT)),
    "l": (Column("o", Type.INT), Column("part", Type.INT)),
}
_VIEWS = (
    "SELECT DISTINCT o.c, o.item, c.town FROM o JOIN c ON o.c = c.id",
    "SELECT DISTINCT o.item FROM o JOIN c ON o.c = c.id",
    "SELECT DISTINCT o.id, l.part FROM o JOIN l ON l.o = o.id JOIN c ON c.id = o.c",
    "SELECT DISTINCT c.id, l.part FROM c JOIN o ON o.c = c.id JOIN l ON l.o = o.id",
    "SELECT DISTINCT l.part, c.town FROM l JOIN o ON l.o = o.id JOIN c ON c.id = o.c",
    "SELECT DISTINCT o.item, o.c, c.town FROM l JOIN o ON l.o = o.id JOIN c ON c.id = o.c WHERE l.part > 0",
    "SELECT DISTINCT c.id, c.town, o.item FROM c JOIN o ON o.c = c.id",
    "SELECT DISTINCT l.o, c.town FROM l JOIN o ON l.o = o.id JOIN c ON c.id = o.c WHERE c.town <> 1",
)


def keyed_case(seed: int) -> Case:
    choice = SeededChoice(seed)
    world = _World(choice)
    for _ in range(choice.integer(2, 5)):
        world.customer()
    for _ in range(choice.integer(2, 8)):
        world.order()
    tables = tuple(
        Table(name, columns, tuple(rows)) for (name, columns), rows in zip(_COLUMNS.items(), world.rows(), strict=True)
    )
    history = tuple(world.batch() for _ in range(4))
    sql = choice.pick(_VIEWS)
    view = View("v0", sql, tuple(Column(f"c{n}", Type.INT) for n in range(3)))
    return Case(tables, (view,), history, seed)


class _World:
    """An order always has its customer; a line may have lost its order."""

    def __init__(self, choice: Choice) -> None:
        self.choice, self.next = choice, 0
        self.customers: dict[int, int] = {}
        self.orders: dict[int, tuple[int, int]] = {}
        self.lines: list[tuple[int, int]] = []

    def fresh(self) -> int:
        self.next += 1
        return self.next

    def value(self) -> int:
        return self.choice.integer(0, 2)

    def customer(self) -> Row:
        number = self.fresh()
        self.customers[number] = self.value()
        return (number, self.customers[number])

    def order(self) -> tuple[Row, list[Row]]:
        number = self.fresh()
        self.orders[number] = (self.choice.pick(tuple(self.customers)), self.value())
        lines: list[Row] = [(number, self.value()) for _ in range(self.choice.integer(0, 3))]
        self.lines += [(int(str(o)), int(str(p))) for o, p in lines]
        return (number, *self.orders[number]), lines

    def rows(self) -> tuple[list[Row], list[Row], list[Row]]:
        orders: list[Row] = [(number, *rest) for number, rest in self.orders.items()]
        return list(self.customers.items()), orders, list(self.lines)

    def batch(self) -> Batch:
        found: list[Statement] = []
        for _ in range(self.choice.integer(1, 3)):
            found += self.choice.pick(
                (self.order_comes, self.order_goes, self.lines_go, self.town_moves, self.item_moves)
            )()
        return tuple(found)

    def order_comes(self) -> list[Statement]:
        comes = [_insert("c", [self.customer()])] if self.choice.chance(40) else []
        order, lines = self.order()
        return [*comes, _insert("o", [order]), *([_insert("l", lines)] if lines else [])]

    def order_goes(self) -> list[Statement]:
        if not self.orders:
            return []
        number = self.choice.pick(tuple(self.orders))
        del self.orders[number]
        gone = [Statement("o", "delete", f"DELETE FROM o WHERE id = {number}")]
        return (
            [*gone, Statement("l", "delete", f"DELETE FROM l WHERE o = {number}")] if self.choice.chance(50) else gone
        )

    def lines_go(self) -> list[Statement]:
        return [Statement("l", "delete", f"DELETE FROM l WHERE part = {self.value()} AND o % 2 = {self.value() % 2}")]

    def town_moves(self) -> list[Statement]:
        number = self.choice.pick(tuple(self.customers))
        return [Statement("c", "update", f"UPDATE c SET town = {self.value()} WHERE id = {number}")]

    def item_moves(self) -> list[Statement]:
        return [Statement("o", "update", f"UPDATE o SET item = {self.value()} WHERE item = {self.value()}")]


def _insert(table: str, rows: list[Row]) -> Statement:
    return Statement(table, "insert", Table(table, _COLUMNS[table]).insert_sql(rows), tuple(rows))
