"""Candidates and existing rows of a reducing algorithm in one relation, told apart by flags."""

from __future__ import annotations

from collections.abc import Mapping

from deltaic.algebra.expr import Expr, col, join_parts, text
from deltaic.algebra.nodes import RESERVED, Item, Node, Project
from deltaic.algebra.trees import keep

COMES, GOES, STAYS = "__deltaic_comes", "__deltaic_goes", "__deltaic_stays"
"""Whether a row is a candidate to be inserted, one to be deleted, an existing row."""
FLAGS = (COMES, GOES, STAYS)


def flag_item(name: str, expr: Expr) -> Item:
    return Item(name, expr, "boolean", False)


def flags_of(*values: str) -> tuple[Item, ...]:
    return tuple(flag_item(name, text(value)) for name, value in zip(FLAGS, values, strict=False))


def any_of(name: str) -> Item:
    return flag_item(name, join_parts("bool_or(", col(name), ")"))


def any_over(name: str, flag: str, exprs: tuple[Expr, ...]) -> Item:
    pieces: list[str | Expr] = ["bool_or(", col(flag), ") OVER ("]
    for number, expr in enumerate(exprs):
        pieces.extend([", " if number else "PARTITION BY ", expr])
    return flag_item(name, join_parts(*pieces, ")"))


def with_flags(rows: Node, values: Mapping[str, Expr]) -> Project:
    """The rows with these flags instead, and without helpers."""
    items = [i for i in keep(rows) if i.name in FLAGS or not i.name.startswith(RESERVED)]
    return Project(rows, tuple(flag_item(i.name, values[i.name]) if i.name in values else i for i in items))
