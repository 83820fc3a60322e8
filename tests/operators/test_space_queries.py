"""Queries of one cell space: the cells of some of them, as coarse as these allow."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.aggregation.space_queries import SpaceQueries, by_space
from braid.operators.expressions import Call, Expression
from braid.operators.live_queries import LiveQuery
from braid.operators.query_parts import COUNT_ALL, Measure
from braid.operators.stream_operators import StreamOperators
from braid.sources.core.schema import BOOLEAN
from tests.operators.pipeline import STREAM, V, aggregation, batch_of, compare, live_of, predicate_of

VALUES = [None, *range(-1, 8)]

tests = st.one_of(
    st.tuples(st.sampled_from(["<", "<=", "=", "<>", ">", ">="]), st.integers(-2, 8)).map(lambda t: compare(V, *t)),
    st.just(Call("is_null", (V,), BOOLEAN)),
)
predicates = st.lists(tests, min_size=1, max_size=3).map(
    lambda parts: parts[0] if len(parts) == 1 else Call("or", tuple(parts), BOOLEAN)
)


@given(st.lists(predicates, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_cells_of_some_queries_are_those_that_they_select(wheres: list[Expression], rng: random.Random) -> None:
    live = live_of(*map(aggregation, wheres))
    (queries,) = by_space(live.by_slot.values(), predicate_of).values()
    tuples = batch_of([{"k": 1, "v": v, "t": 5} for v in VALUES])
    buckets = [bucket for _, bucket in StreamOperators(live, STREAM, 1).process(tuples, None).buckets]
    if not buckets:
        assert not any(predicate_of(query).truths["v"].at(value) for query in queries for value in VALUES)
        return
    (bucket,) = buckets
    places = np.array(sorted(rng.sample(range(len(queries)), rng.randint(1, len(queries)))))
    runs, cells, (new_cells,) = SpaceQueries(queries, predicate_of).cells([bucket], places)
    masks = runs.masks(cells)
    for number, at in enumerate(places.tolist()):
        truth = predicate_of(queries[at]).truths["v"]
        for value in VALUES:
            cell = new_cells[_cell_of(bucket.cells.boundaries, value)]
            assert (cell >= 0 and bool(masks[number, cell])) == truth.at(value)
    boundaries = {b for at in places.tolist() for b in predicate_of(queries[at]).truths["v"].boundaries}
    assert cells == len(boundaries) + 2, "as coarse as they allow"


def _cell_of(boundaries: tuple[int, ...], value: int | None) -> int:
    return len(boundaries) + 1 if value is None else int(np.searchsorted(boundaries, value, side="right"))


def test_measures_that_are_alike_are_listed_once() -> None:
    total, least = Measure("sum", V), Measure("min", V)
    lists = [(COUNT_ALL,), (total, COUNT_ALL), (COUNT_ALL,), (least,)]
    queries = list(live_of(*(aggregation(measures=measures) for measures in lists)).by_slot.values())
    space = SpaceQueries(queries, predicate_of)
    assert space.measures == [(COUNT_ALL,), (total, COUNT_ALL), (least,)]
    assert space.measures_of.tolist() == [0, 1, 0, 2]
    assert space.measures_among(np.array([0, 1])) == (total,)
    assert space.measures_among(np.array([1, 3])) == (total, least)


@pytest.mark.parametrize("having", [None, compare(V, ">", 1)])
def test_who_has_a_having(having: Expression | None) -> None:
    queries: list[LiveQuery] = list(live_of(aggregation(having=having), aggregation()).by_slot.values())
    assert SpaceQueries(queries, predicate_of).having.tolist() == [having is not None, False]
