"""Sub-joins: what some inputs of a join are when they are joined, whatever else the query joins them with.

Queries with the same sub-join could share it (thesis 5.4.2): it has the same inputs, compared by the same keys, where
predicates and windows may differ.
"""

from __future__ import annotations

from braid.operators.joins.cost import join_graph
from braid.operators.joins.inputs import attributes_of
from braid.operators.joins.query import Join

SubJoin = tuple[object, ...]
"""Equal for equal sub-joins: for each input what it is, how it is joined, and each key with all that it is equal to."""


def sub_join(join: Join, members: frozenset[int]) -> SubJoin:
    """Return what some inputs of a join are, given by their numbers."""
    inputs = [join.inputs[number] for number in members]
    equal: dict[int, tuple[tuple[str, str], ...]] = {}
    for attribute in range(len(join.inputs[0].keys)):
        compared = [join_input for join_input in inputs if join_input.keys[attribute] is not None]
        sides = sorted((join_input.input, str(join_input.keys[attribute])) for join_input in compared)
        if len(sides) > 1:
            equal[attribute] = tuple(sides)
    parts = []
    for join_input in inputs:
        attributes = [attribute for attribute in equal if join_input.keys[attribute] is not None]
        keys = sorted((str(join_input.keys[attribute]), equal[attribute]) for attribute in attributes)
        parts.append((join_input.input, bool(join_input.outer_of), join_input.anti, tuple(keys)))
    return tuple(sorted(parts))


def sub_joins(join: Join) -> frozenset[SubJoin]:
    """Return all sub-joins of two and more inputs that are compared with each other, the whole join among them."""
    graph = join_graph(dict(enumerate(attributes_of(join))))
    frontier, member_sets = {frozenset([number]) for number in graph}, set[frozenset[int]]()
    while frontier:
        frontier = {
            members | {number}
            for members in frontier
            for member in members
            for number in graph.adj[member]
            if number not in members
        }
        member_sets |= frontier
    complete = (members for members in member_sets if all(members.issuperset(join.inputs[n].outer_of) for n in members))
    return frozenset(sub_join(join, members) for members in complete)
