"""A stable text form of a tree: what explain shows and what golden files hold."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch

from deltaic.algebra.nodes import (
    Aggregate,
    Apply,
    Filter,
    Generate,
    Item,
    Join,
    Node,
    Project,
    Ref,
    Scan,
    State,
    UnionAll,
    Values,
    Window,
)


def print_tree(node: Node, note: Callable[[Node], str] | None = None) -> str:
    """One node a line, inputs indented below it; `note` may add a remark to a node's line."""
    lines: list[str] = []
    waiting = [(node, 0)]
    while waiting:
        current, depth = waiting.pop()
        remark = note(current) if note else ""
        lines.append("  " * depth + label(current) + (f"   -- {remark}" if remark else ""))
        waiting.extend((child, depth + 1) for child in reversed(current.inputs))
    return "\n".join(lines)


@singledispatch
def label(node: Node) -> str:
    raise TypeError(f"the printer has no case for {type(node).__name__}")


def _items(items: tuple[Item, ...]) -> str:
    return ", ".join(item.name if item.expr.column == item.name else f"{item.name} = {item.expr}" for item in items)


@label.register
def _(node: Scan) -> str:
    state = "" if node.state is State.NEW else f"[{node.state.value}]"
    return f"Scan {node.source}{state}({', '.join(node.columns)})"


@label.register
def _(node: Ref) -> str:
    return f"Ref {node.name}({', '.join(node.columns)})"


@label.register
def _(node: Values) -> str:
    return f"Values {len(node.rows)} rows({', '.join(node.columns)})"


@label.register
def _(node: Project) -> str:
    return f"Project {_items(node.items)}"


@label.register
def _(node: Filter) -> str:
    return f"Filter {node.predicate}"


@label.register
def _(node: Join) -> str:
    return f"Join {node.kind.value.lower()} on {node.on if node.on else 'true'}"


@label.register
def _(node: Apply) -> str:
    select = ", ".join(str(expr) for expr in node.select)
    needles = f"({', '.join(str(expr) for expr in node.needles)}) in " if node.needles else ""
    made = f"Apply {node.output.name} = {node.kind.value} {needles}[{select}]"
    return f"{made} on {node.on if node.on else 'true'}"


@label.register
def _(node: Generate) -> str:
    outer = "outer " if node.outer else ""
    return f"Generate {outer}{node.generator} as {', '.join(field.name for field in node.generated)}"


@label.register
def _(node: Aggregate) -> str:
    return f"Aggregate by [{_items(node.groups)}] {_items(node.aggregates)}".rstrip()


@label.register
def _(node: Window) -> str:
    partition = ", ".join(str(expr) for expr in node.partition)
    return f"Window by [{partition}] {_items(node.items)}"


@label.register
def _(node: UnionAll) -> str:
    return f"UnionAll({', '.join(node.columns)})"
