"""Where the lab's randomness comes from: a seed, or Hypothesis, which can also shrink a case.

The first alternative of every choice is the simplest one, so that shrinking ends at simple cases.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choice(ABC):
    """A source of decisions. Everything is derived from `integer`."""

    max_rows: int = 30

    @abstractmethod
    def integer(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""

    def chance(self, percent: int) -> bool:
        return self.integer(0, 99) >= 100 - percent

    def pick(self, items: Sequence[T]) -> T:
        return items[self.integer(0, len(items) - 1)]

    def weighted(self, options: Sequence[tuple[int, T]]) -> T:
        left = self.integer(0, sum(weight for weight, _ in options) - 1)
        for weight, item in options:
            if left < weight:
                return item
            left -= weight
        raise AssertionError("weights were exhausted")

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """`count` different items, in random order (fewer where there are fewer)."""
        rest = list(items)
        return [rest.pop(self.integer(0, len(rest) - 1)) for _ in range(min(count, len(rest)))]


class SeededChoice(Choice):
    """Decisions of a seed: the same seed gives the same case on every machine."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return low + int(self._random.random() * (high - low + 1))


class DrawnChoice(Choice):
    """Decisions drawn by Hypothesis; tables are kept small, for it limits how much a test may draw."""

    max_rows = 8

    def __init__(self, draw_integer: Callable[[int, int], int]) -> None:
        self._draw_integer = draw_integer

    def integer(self, low: int, high: int) -> int:
        return self._draw_integer(low, high)
