"""What it costs to join a relation with others (thesis eq. 5.2), and the graph of which are compared.

::

    COST(S1 ⋈ S2) = b_i1·Crd(S1) + b_i2·Crd(S2) + min(DistKey_S1, DistKey_S2) + b_m·Crd(S1 ⋈ S2)

Crd is a number of rows, DistKey of distinct values of what S1 and S2 are compared by, and the flags mean here:

- ``b_i``: a relation as it is given, a leaf of the plan, is indexed, that is counted and ordered by key. What has been
  joined is not indexed again: it is looked up in the index of the leaf that it is joined with.
- ``b_m``: combinations are formed. Where each relation is compared with one before it they are only counted.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

import networkx as nx


class Joined(Protocol):
    """What is known of a relation: :class:`braid.operators.joins.matches.relations.Relation`, or an estimate of one."""

    @property
    def rows(self) -> float:
        """How many rows it has: groups of tuples with equal keys."""

    @property
    def indexed(self) -> float:
        """How much has to be looked at to index it."""

    @property
    def attributes(self) -> Collection[int]:
        """The attributes that it is compared by."""

    @property
    def distinct(self) -> Mapping[int, float]:
        """How many different values each attribute has, NULL apart; at least one."""

    @property
    def outer_of(self) -> tuple[int, ...]:
        """The relations that a left outer join compares it with; empty for an inner join."""


@dataclass(frozen=True)
class Estimate:
    """What some relations give when they are joined: combinations (Crd), and distinct values of each attribute.

    Values are taken to be spread evenly, independently of each other, and the fewer to be among the more.
    """

    rows: float
    distinct: Mapping[int, float]

    def keys(self, attributes: Iterable[int]) -> float:
        """Return how many different values some attributes have together (DistKey)."""
        return min(math.prod(self.distinct[a] for a in attributes), self.rows)

    def joined(self, relation: Joined) -> Estimate:
        """Return what they give together with another."""
        distinct, other_distinct = self.distinct, relation.distinct
        if relation.outer_of:
            return Estimate(self.rows * max(1.0, relation.rows / math.prod(other_distinct.values())), distinct)
        keys = math.prod(max(distinct[a], count) for a, count in other_distinct.items() if a in distinct)
        fewest = {a: min(count, distinct.get(a, count)) for a, count in other_distinct.items()}
        return Estimate(self.rows * relation.rows / keys, {**distinct, **fewest})


class JoinCost:
    """The costs of joining relations, given by their numbers."""

    def __init__(self, relations: Mapping[int, Joined]) -> None:
        self._relations = relations
        self._known = {
            frozenset([number]): Estimate(relation.rows, relation.distinct) for number, relation in relations.items()
        }

    def joined(self, members: frozenset[int], number: int) -> Estimate:
        """Return what a relation gives with some that were joined before; each set is worked out once."""
        all_members = members | {number}
        if all_members not in self._known:
            self._known[all_members] = self._known[members].joined(self._relations[number])
        return self._known[all_members]

    def step(self, members: frozenset[int], number: int, is_formed: bool = True) -> float:
        """Return the cost of joining a relation with some that were joined before; ``is_formed`` is ``b_m``."""
        left, leaf = self._known[members], self._relations[number]
        right = self._known[frozenset([number])]
        attributes = [attribute for attribute in right.distinct if attribute in left.distinct]
        indexed = leaf.indexed + sum(self._relations[member].indexed for member in members if len(members) == 1)
        common_keys = min(left.keys(attributes), right.keys(attributes))
        return indexed + common_keys + (self.joined(members, number).rows if is_formed else 0.0)


def join_graph(attributes: Mapping[int, Iterable[int]]) -> nx.Graph:
    """Return the graph of which relations are compared with each other, given by which attributes each is compared."""
    graph = nx.Graph()
    graph.add_nodes_from(attributes)
    for (left, left_attributes), (right, right_attributes) in combinations(attributes.items(), 2):
        if not set(left_attributes).isdisjoint(right_attributes):
            graph.add_edge(left, right)
    return graph
