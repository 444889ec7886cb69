"""Compares two results as multisets: NULL equals NULL, NaN equals NaN, doubles may differ by rounding."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Cell: TypeAlias = object
Cells: TypeAlias = tuple[Cell, ...]
Doubles: TypeAlias = tuple[float, ...]

TOLERANCE = 1e-9


@dataclass(frozen=True)
class Difference:
    """Rows of one side that have no partner on the other, with how often."""

    missing: tuple[tuple[Cells, int], ...]
    surplus: tuple[tuple[Cells, int], ...]

    def __str__(self) -> str:
        lines = [*_listed("missing", "-", self.missing), *_listed("surplus", "+", self.surplus)]
        return "\n".join(lines)


def difference(
    expected: Iterable[Sequence[Cell]], actual: Iterable[Sequence[Cell]], tolerance: float = TOLERANCE
) -> Difference | None:
    """None where both are the same multiset.

    Rows that agree in everything but their doubles form a group; within a group rows are paired so that their
    doubles are close.
    """
    ones, twos = _groups(expected), _groups(actual)
    missing: list[Cells] = []
    surplus: list[Cells] = []
    for key in ones.keys() | twos.keys():
        left, right = _unpaired(ones.get(key, []), twos.get(key, []), tolerance)
        missing += [_row(key, doubles) for doubles in left]
        surplus += [_row(key, doubles) for doubles in right]
    if not missing and not surplus:
        return None
    return Difference(_counted(missing), _counted(surplus))


class _Double:
    """Stands in a group's key where a finite double is."""

    def __repr__(self) -> str:
        return "<double>"


_DOUBLE = _Double()


def _groups(rows: Iterable[Sequence[Cell]]) -> dict[Cells, list[Doubles]]:
    groups: dict[Cells, list[Doubles]] = defaultdict(list)
    for row in rows:
        key = tuple(_key_cell(cell) for cell in row)
        doubles = tuple(cell for cell in row if isinstance(cell, float) and math.isfinite(cell))
        groups[key].append(doubles)
    return groups


def _key_cell(cell: Cell) -> Cell:
    if isinstance(cell, float):
        return _DOUBLE if math.isfinite(cell) else str(cell)
    if isinstance(cell, bool):
        return ("bool", cell)  # in Python True equals 1
    if isinstance(cell, list):
        return ("list", *(_key_cell(item) for item in cell))
    if isinstance(cell, dict):
        return ("dict", *((name, _key_cell(item)) for name, item in cell.items()))
    return cell


def _unpaired(ones: list[Doubles], twos: list[Doubles], tolerance: float) -> tuple[list[Doubles], list[Doubles]]:
    """What is left when as many rows as possible are paired: in sorted order, or by a maximum matching."""
    ones, twos = sorted(ones), sorted(twos)
    if len(ones) == len(twos) and all(_close(a, b, tolerance) for a, b in zip(ones, twos, strict=True)):
        return [], []
    partner: dict[int, int] = {}  # of a row in twos: its row in ones
    lonely = [ones[number] for number in range(len(ones)) if not _place(number, ones, twos, partner, tolerance)]
    return lonely, [row for number, row in enumerate(twos) if number not in partner]


def _place(number: int, ones: list[Doubles], twos: list[Doubles], partner: dict[int, int], tolerance: float) -> bool:
    """Finds the row a partner, moving others to theirs if need be (augmenting paths)."""
    came_from: dict[int, int | None] = {}
    frontier: list[tuple[int, int | None]] = [(number, None)]
    while frontier:
        one, via = frontier.pop()
        for two, candidate in enumerate(twos):
            if two in came_from or not _close(ones[one], candidate, tolerance):
                continue
            came_from[two] = via
            if two not in partner:
                _augment(two, number, came_from, partner)
                return True
            frontier.append((partner[two], two))
    return False


def _augment(free: int, number: int, came_from: dict[int, int | None], partner: dict[int, int]) -> None:
    two: int | None = free
    while two is not None:
        before = came_from[two]
        partner[two] = number if before is None else partner[before]
        two = before


def _close(one: Doubles, two: Doubles, tolerance: float) -> bool:
    return all(math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance) for a, b in zip(one, two, strict=True))


def _row(key: Cells, doubles: Doubles) -> Cells:
    rest = iter(doubles)
    return tuple(next(rest) if cell is _DOUBLE else _shown(cell) for cell in key)


def _shown(cell: Cell) -> Cell:
    return cell[1] if isinstance(cell, tuple) and cell[:1] == ("bool",) else cell


def _counted(rows: list[Cells]) -> tuple[tuple[Cells, int], ...]:
    return tuple(sorted(Counter(rows).items(), key=repr))


def _listed(title: str, sign: str, rows: tuple[tuple[Cells, int], ...], most: int = 10) -> list[str]:
    if not rows:
        return []
    lines = [f"{title}: {sum(count for _, count in rows)} rows"]
    lines += [f"  {sign}{count} ({', '.join(map(_cell_text, row))})" for row, count in rows[:most]]
    return lines + [f"  ... and {len(rows) - most} more"] * (len(rows) > most)


def _cell_text(cell: Cell) -> str:
    return "NULL" if cell is None else str(cell) if not isinstance(cell, str) else repr(cell)
