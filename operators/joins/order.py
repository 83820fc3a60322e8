"""The order in which relations are joined, whatever that of FROM (thesis 5.4.2).

Where each relation is compared with one that comes before it, rows are counted without being formed, in a time that
follows the sizes of the relations: any such order will do, and small ones first do best. Otherwise combinations are
formed, and the order decides how many there are in between. It is the one that costs least of all left-deep orders, by
estimates from the window's own rows, so nothing has to be carried over when it changes from one window to the next.
Where very many orders come into question it is found in blocks (:mod:`braid.operators.joins.idp`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import networkx as nx

from braid.operators.joins.cost import JoinCost, Joined, join_graph
from braid.operators.joins.idp import SharedBy, idp, unshared

MAX_EXHAUSTIVE = 7
"""All orders of so many relations are looked at: two milliseconds at most."""
DENSE = 2
"""With so many comparisons a relation, more relations have too many orders; with fewer, blocks are a trap."""
BLOCK_SIZE = 5
"""How many relations a block has otherwise, the compound relation among them."""


def parents_of(attributes: Iterable[int], before: Mapping[int, Iterable[int]]) -> dict[int, int]:
    """Return by which attributes a relation is compared with others before it, and with which of them.

    ``before`` has the attributes of these by their numbers. All that have an attribute are equal there, so one that
    shares every attribute will do; if there is none, it is the first that has the attribute.
    """
    candidates = {a: [other for other, other_attributes in before.items() if a in other_attributes] for a in attributes}
    candidates = {attribute: others for attribute, others in candidates.items() if others}
    with_all = [other for other in before if all(other in others for others in candidates.values())]
    return {attribute: (with_all or others)[0] for attribute, others in candidates.items()}


def join_order(relations: Sequence[Joined], shared_by: SharedBy[int] = unshared) -> list[int]:
    """Return the numbers of the relations in the order in which to join them.

    Outer ones come last, in their order: what they are compared with comes before, inner ones do not depend on them.
    ``shared_by`` matters where combinations are formed: what is counted only is not there to be shared.
    """
    inner = [number for number, relation in enumerate(relations) if not relation.outer_of]
    small_first = sorted(inner, key=lambda number: relations[number].rows)
    order = _tree_order({number: relations[number].attributes for number in small_first})
    order = order or _cheapest_order({number: relations[number] for number in small_first}, shared_by)
    return [*order, *(number for number in range(len(relations)) if relations[number].outer_of)]


def written_order(relations: Sequence[Joined]) -> list[int]:
    """Return the numbers of the relations as they are written, those later that nothing before them is compared with.

    As in :func:`join_order`, outer ones come last.
    """
    attributes = {number: relation.attributes for number, relation in enumerate(relations) if not relation.outer_of}
    graph = join_graph(attributes)
    order, remaining = list[int](), list(graph)
    while remaining:
        number = next((n for n in remaining if not graph.adj[n].keys().isdisjoint(order)), remaining[0])
        order.append(number)
        remaining.remove(number)
    return [*order, *(number for number in range(len(relations)) if relations[number].outer_of)]


def compared(relations: Sequence[Joined], before: Iterable[int], number: int) -> list[tuple[int, int]]:
    """Return by which attributes a relation is compared, and with which of those before it."""
    relation = relations[number]
    if relation.outer_of:
        return [
            (a, other) for a in relation.attributes for other in relation.outer_of if a in relations[other].attributes
        ]
    inner = {other: relations[other].attributes for other in before if not relations[other].outer_of}
    return list(parents_of(relation.attributes, inner).items())


def is_counted(relations: Sequence[Joined], order: Sequence[int]) -> bool:
    """Whether each relation is compared with one before it, so that rows are counted and no combination is formed."""
    comparisons = (compared(relations, order[:place], number) for place, number in enumerate(order))
    return all(len({other for _, other in pairs}) <= 1 for pairs in comparisons)


def _tree_order(attributes: Mapping[int, Iterable[int]]) -> list[int] | None:
    """Return an order in which each relation is compared with one before it, as near to the given one as can be.

    None where no such order begins with the first.
    """
    order: list[int] = []
    remaining = list(attributes)
    while remaining:
        before = {number: attributes[number] for number in order}
        fitting = (n for n in remaining if not before or len(set(parents_of(attributes[n], before).values())) == 1)
        number = next(fitting, None)
        if number is None:
            return None
        order.append(number)
        remaining.remove(number)
    return order


def block_size(graph: nx.Graph) -> int:
    """Return how many relations of a join graph to look at in all orders at once, at least 2."""
    is_dense = graph.number_of_edges() >= DENSE * len(graph)
    return BLOCK_SIZE if len(graph) > MAX_EXHAUSTIVE and is_dense else max(2, len(graph))


def _cheapest_order(relations: Mapping[int, Joined], shared_by: SharedBy[int]) -> list[int]:
    """Return the left-deep order of relations that costs least where combinations are formed."""
    graph = join_graph({number: relation.attributes for number, relation in relations.items()})
    return list(idp(graph, JoinCost(relations).step, block_size(graph), shared_by)[-1].order)
