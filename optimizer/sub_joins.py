"""Sub-joins: what some inputs of a join are when they are joined, whatever else the query joins them with.

Queries with the same sub-join could share it (thesis 5.4.2): it has the same inputs, compared by the same keys, where
predicates and windows may differ.
"""

from __future__ import annotations

from operators.joins.cost import join_graph
from operators.joins.parts import attributes_of
from operators.queries import Join

SubJoin = tuple[object, ...]
"""Equal for equal sub-joins: for each input what it is, how it is joined, and each key with all that it is equal to."""


def sub_join(join: Join, members: frozenset[int]) -> SubJoin:
    """Return what some inputs of a join are, given by their numbers."""
    inputs = [join.inputs[number] for number in members]
    equal: dict[int, tuple[tuple[str, str], ...]] = {}
    for attribute in range(len(join.inputs[0].keys)):
        sides = sorted((each.input, str(each.keys[attribute])) for each in inputs if each.keys[attribute] is not None)
        if len(sides) > 1:
            equal[attribute] = tuple(sides)
    found = []
    for each in inputs:
        keys = sorted((str(each.keys[a]), sides) for a, sides in equal.items() if each.keys[a] is not None)
        found.append((each.input, bool(each.outer_of), each.anti, tuple(keys)))
    return tuple(sorted(found))


def sub_joins(join: Join) -> frozenset[SubJoin]:
    """Return all sub-joins of two and more inputs that are compared with each other, the whole join among them."""
    graph = join_graph(dict(enumerate(attributes_of(join))))
    sets, found = {frozenset([number]) for number in graph}, set[frozenset[int]]()
    while sets:
        sets = {
            members | {number}
            for members in sets
            for each in members
            for number in graph.adj[each]
            if number not in members
        }
        found |= sets
    whole = (members for members in found if all(members.issuperset(join.inputs[n].outer_of) for n in members))
    return frozenset(sub_join(join, members) for members in whole)
