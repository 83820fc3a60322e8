"""What sampled tuples say of the queries of an operator, for those that may be evaluated in groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from braid.operators.expressions import Expression, columns_of
from braid.operators.kinds import source_operators
from braid.operators.live_queries import UNGROUPED
from braid.operators.predicates.index import PredicateIndex
from braid.operators.queries import Query
from braid.optimizer.grouping import Sampled, SampledWorkload, edges_of
from braid.optimizer.plan_changes import Member
from braid.optimizer.statistics import Statistics

MIN_SAMPLE = 512

Workloads = list[tuple[Sequence[Member], SampledWorkload]]
"""Queries that test the same columns, and what samples say of them."""


class _Input(NamedTuple):
    """An input of a query: what tells it from others, the id of its stream, and what the query asks of it."""

    name: str
    stream: str
    where: Expression | None


class OperatorSamples:
    """Looks at samples for the queries of one operator; what queries ask is analysed once."""

    def __init__(self) -> None:
        self._indexes: dict[int, PredicateIndex] = {}

    def workloads(
        self, members: Sequence[Member], statistics: Statistics, rate: float, only_mixed: bool = False
    ) -> Workloads | None:
        """Return what samples say, None before they are large enough; ``rate`` tuples a second come of all inputs.

        Left out are queries that test one column of each input, for these have no groups; with ``only_mixed`` also
        those that test columns of which all queries, or none, are in a group.
        """
        inputs = {member.id: _inputs(member.query) for member in members}
        members = [
            member for member in members if any(_tests_several(query_input.where) for query_input in inputs[member.id])
        ]
        if not members:
            return []
        first_inputs = inputs[members[0].id]
        for number in range(len(first_inputs)):
            index = self._indexes.setdefault(number, PredicateIndex())
            index.update({member.id: inputs[member.id][number].where for member in members})
        rates = _rates(statistics, members[0].query.streams, rate)
        result: Workloads = []
        for dimensions, peers in self._alike(members, len(first_inputs)).items():
            if only_mixed and len({member.group == UNGROUPED for member in peers}) < 2:
                continue
            sampled = []
            for number, query_input in enumerate(first_inputs):
                if len(dimensions[number]) > 1:
                    input_sample = self._sampled(number, dimensions[number], peers, query_input, statistics, rates)
                    if input_sample is None:
                        return None
                    sampled.append(input_sample)
            result.append((peers, SampledWorkload(sampled)))
        return result

    def _alike(self, members: Sequence[Member], inputs: int) -> dict[tuple[tuple[str, ...], ...], list[Member]]:
        """Return queries by what they test of each input, where it is more than one column of some."""
        alike: dict[tuple[tuple[str, ...], ...], list[Member]] = {}
        for member in members:
            dimensions = tuple(self._indexes[number].predicates[member.id].dimensions for number in range(inputs))
            if max(map(len, dimensions)) > 1:
                alike.setdefault(dimensions, []).append(member)
        return alike

    def _sampled(
        self,
        number: int,
        dimensions: tuple[str, ...],
        members: Sequence[Member],
        query_input: _Input,
        statistics: Statistics,
        rates: Mapping[str, float],
    ) -> Sampled | None:
        index = self._indexes[number]
        tuples = statistics.sample(query_input.name, index.columns_of(dimensions))
        if tuples is None or tuples.length < MIN_SAMPLE:
            return None
        cells = {name: index.dimensions[name].cells_of(tuples) for name in dimensions}
        masks = [index.masks_of(member.id) for member in members]
        tests = [np.stack([mask[name][cells[name]] for mask in masks]) for name in dimensions]
        edges = [[edges_of(mask[name]) for mask in masks] for name in dimensions]
        chunk = statistics.chunk(source_operators(members[0].query)[number])
        return Sampled(
            tests,
            edges,
            [cells[name] for name in dimensions],
            rates[query_input.stream],
            chunk.tuples,
            places=chunk.slices * chunk.keys,
            fired=_windows_a_second(members) * chunk.keys,
        )


def _windows_a_second(members: Sequence[Member]) -> float:
    """Return how many windows end a second of the stream, those of equal queries counted once."""
    windows = {member.query.window for member in members}
    return sum(window.ends_per_second for window in windows if window is not None)


def _inputs(query: Query) -> list[_Input]:
    return [_Input(source.input, source.stream, source.where) for source in query.inputs]


def _tests_several(where: Expression | None) -> bool:
    return where is not None and len(set(columns_of(where))) > 1


def _rates(statistics: Statistics, streams: Sequence[str], rate: float) -> dict[str, float]:
    """Hand the tuples that come of all streams out to each, as they have come of late."""
    current = {stream: statistics.tuples_per_second(stream) for stream in streams}
    return {stream: rate * tuples / max(sum(current.values()), 1e-9) for stream, tuples in current.items()}
