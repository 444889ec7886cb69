"""Trees of nodes: walked, made over other inputs, projected onto themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from deltaic.algebra.expr import col, text
from deltaic.algebra.nodes import Field, Filter, Item, Node, Operator, Project, Ref, Scan, Values


def pass_through(field: Field) -> Item:
    return Item(field.name, col(field.name), field.type, field.nullable)


def keep(node: Node) -> tuple[Item, ...]:
    """The items that project a node onto itself."""
    return tuple(pass_through(field) for field in node.schema)


def null_item(field: Field) -> Item:
    return Item(field.name, text(f"CAST(NULL AS {field.type})"), field.type, True)


def with_inputs(node: Node, turn: Callable[[Node], Node]) -> Node:
    """The node over what `turn` makes of its inputs: of each field that is a node, or a tuple of nodes."""
    turned: dict[str, Any] = {}
    for name in node.__match_args__ if node.inputs else ():
        match getattr(node, name):
            case Operator() as below:
                turned[name] = turn(below)  # type: ignore[arg-type]
            case (Operator(), *_) as below:
                turned[name] = tuple(map(turn, below))
    return replace(node, **turned) if turned else node


def with_leaves(node: Node, turn: Callable[[Node], Node]) -> Node:
    """The tree with every scan, reference and list of values replaced by what `turn` makes of it."""
    leaf = isinstance(node, Scan | Ref | Values)
    return turn(node) if leaf else with_inputs(node, lambda below: with_leaves(below, turn))


def walk(node: Node) -> list[Node]:
    """The node and everything below it, parents first."""
    found: list[Node] = []
    waiting = [node]
    while waiting:
        current = waiting.pop()
        found.append(current)
        waiting.extend(reversed(current.inputs))
    return found


def top_of(node: Node) -> Node:
    """The first operator that does more than to choose or rename."""
    while isinstance(node, Filter | Project):
        node = node.input
    return node


def with_top(node: Node, new: Node) -> Node:
    """The same with another operator in the place of its top."""
    return replace(node, input=with_top(node.input, new)) if isinstance(node, Filter | Project) else new


def sources(node: Node) -> tuple[str, ...]:
    """The sources that a tree reads, each once, in the order they appear."""
    return tuple(dict.fromkeys(n.source for n in walk(node) if isinstance(n, Scan)))
