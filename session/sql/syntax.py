"""The syntax tree of scalar expressions, before names and types are known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

NodeKind = Literal["name", "star", "literal", "interval", "call", "aggregate", "cast", "subquery"]


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A node: what it is, where it stands (an offset in the text), and the depth and size of its tree.

    ========= =================================================== =====================
    kind      value                                               children
    ========= =================================================== =====================
    name      the parts of the name, such as ``("p", "price")``   none
    star      the qualifier of ``p.*``, or None                   none
    literal   an :class:`braid.operators.expressions.Literal`           none
    interval  ``(months, microseconds)``                          none
    call      a key of ``braid.operators.functions.FUNCTIONS``          its arguments
    aggregate a value of ``AGGREGATES``, or ``count_distinct``    its argument or a star
    cast      a :class:`braid.sources.core.schema.ColumnType`                the value
    subquery  a :class:`braid.session.sql.statements.Select`            none
    ========= =================================================== =====================
    """

    kind: NodeKind
    at: int
    value: Any
    children: tuple[Node, ...] = ()
    depth: int = 1
    size: int = 1


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and everything below it, in order of the text, without recursion."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(reversed(current.children))


def call_node(function: str, *children: Node) -> Node:
    """Return a call of a function that stands where its first argument does."""
    return Node("call", children[0].at, function, children)


def conjuncts(node: Node) -> Iterator[Node]:
    """Yield the parts of the top-level AND."""
    if node.kind == "call" and node.value == "and":
        for child in node.children:
            yield from conjuncts(child)
    else:
        yield node
