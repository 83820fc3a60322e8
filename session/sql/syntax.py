"""The syntax tree of scalar expressions, before names and types are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from braid.operators import expressions
from braid.sources.core.schema import INT

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
    depth, size = 1 + max(node.depth for node in children), 1 + sum(node.size for node in children)
    return Node("call", children[0].at, function, children, depth, size)


def conjunction(nodes: Sequence[Node]) -> Node | None:
    """Return the AND of some conditions, None of none."""
    if len(nodes) <= 1:
        return nodes[0] if nodes else None
    return call_node("and", *nodes)


def zero(at: int) -> Node:
    """Return the number 0."""
    return Node("literal", at, expressions.Literal(0, INT))


def always_zero(node: Node) -> Node:
    """Return 0 as an expression over the columns of another one, since inputs are compared by columns."""
    return call_node("case", call_node("is_null", node), zero(node.at), zero(node.at))


def conjuncts(node: Node) -> Iterator[Node]:
    """Yield the parts of the top-level AND."""
    if node.kind == "call" and node.value == "and":
        for child in node.children:
            yield from conjuncts(child)
    else:
        yield node
