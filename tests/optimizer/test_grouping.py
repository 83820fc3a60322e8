"""Query groups: the thesis's examples, and that no grouping is taken which is estimated to cost more than another."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators.predicates.query_set import Bools
from braid.optimizer.grouping import (
    MAX_PAIRED,
    Numbers,
    Sampled,
    SampledWorkload,
    edges_of,
    expected_query_sets,
    group_queries,
    place_queries,
)
from tests.kit.examples import examples

RATE = 1_000_000.0
SAMPLE = 600
KEYS = 1000


def sampled(tests: list[Bools], columns: list[np.ndarray]) -> SampledWorkload:
    """Return the workload of tuples of which all are sampled, and half a second of which is added up at once."""
    edges = [
        [edges_of(holds) for holds in test[:, np.argsort(column)]] for test, column in zip(tests, columns, strict=True)
    ]
    return SampledWorkload([Sampled(tests, edges, columns, RATE, chunk=RATE / 2, places=KEYS, fired=KEYS)])


def of_query_sets(*query_sets: str) -> SampledWorkload:
    """Return the workload of sampled tuples, given by their query-sets, the query Q1 first."""
    bits = np.array([[bit == "1" for bit in query_set] for query_set in query_sets])
    return sampled([bits.T], [np.arange(len(bits))])


def ranges(low: list[float], high: list[float], thresholds: list[float], seed: int = 1) -> SampledWorkload:
    """Return queries that test ``low <= x < high AND y < threshold`` of tuples spread evenly over [0, 1)."""
    x, y = np.random.default_rng(seed).random((2, SAMPLE))
    tests = [
        (np.array(low)[:, None] <= x) & (x < np.array(high)[:, None]),
        y < np.array(thresholds)[:, None],
    ]
    return sampled(tests, [x, y])


def clusters(count: int, of_each: int) -> tuple[SampledWorkload, Numbers]:
    """Return queries over so many parts of a column that do not overlap, in no order, and the part of each."""
    rng = np.random.default_rng(3)
    part = rng.permutation(np.repeat(np.arange(count), of_each))
    low = (part + 0.1 * rng.random(len(part))) / count
    high = (part + 1 - 0.1 * rng.random(len(part))) / count
    return ranges(low.tolist(), high.tolist(), rng.random(len(part)).tolist()), part


def together(count: int, *members: int) -> Numbers:
    """Return groups in which some queries are together and all others alone."""
    groups = np.arange(1, count + 1)
    groups[list(members)] = 0
    return groups


def test_the_pair_of_the_thesis_gains_most() -> None:
    """Tuples t1-t4 of section 5.4.1: Q1 and Q4 share three of four, so they are the first to become a group."""
    workload = of_query_sets("100100", "101100", "100100", "100000")
    pairs = itertools.combinations(range(6), 2)
    cost = {(f"Q{first + 1}", f"Q{second + 1}"): workload.cost(together(6, first, second)) for first, second in pairs}
    assert min(cost, key=cost.__getitem__) == ("Q1", "Q4")
    groups = group_queries(workload)
    assert groups[0] == groups[3]


def test_queries_that_share_no_tuples_cost_less_apart() -> None:
    """Figure 5.7: the shared execution of Q4 and Q5 costs more than that of each by itself."""
    workload, part = clusters(4, 100)
    together = workload.cost(np.zeros(400, dtype=np.int64))
    assert workload.cost(part) < 0.8 * together
    assert workload.cost(group_queries(workload)) <= workload.cost(part)


def test_as_many_query_sets_are_expected_as_there_are() -> None:
    """Of queries that select a quarter of a plane each, their edges at places of their own."""
    rng = np.random.default_rng(2)
    x, y = rng.random((2, 200_000))
    sides = rng.random((2, 60))
    tests = [x[None] < sides[0][:, None], y[None] < sides[1][:, None]]
    (of_input,) = sampled([test[:, :4000] for test in tests], [x[:4000], y[:4000]]).inputs
    edges = [[edges_of(np.arange(61) <= place) for place in np.argsort(np.argsort(side))] for side in sides]
    query_set_count = len(np.unique(np.packbits(tests[0] & tests[1], axis=0), axis=1).T)
    assert expected_query_sets(replace(of_input, edges=edges)) == pytest.approx(query_set_count, rel=0.3)


def test_one_group_where_groups_would_only_look_at_every_tuple_once_more() -> None:
    """All select the same tuples: the more groups, the more often these are looked at."""
    workload = ranges([0.0] * 30, [1.0] * 30, [1.0] * 30)
    assert len(np.unique(group_queries(workload))) == 1


def test_a_new_query_joins_the_group_where_it_costs_least_and_moves_nobody() -> None:
    """Q4 is deleted and Q7 created (5.4.2): only Q7 is placed, where it costs least."""
    workload, part = clusters(3, 60)
    (of_input,) = workload.inputs
    without = sampled([np.delete(test, 3, axis=0) for test in of_input.tests], list(of_input.cells))
    groups, newcomer = np.delete(part, 3), 7
    placed = place_queries(without, groups, np.array([newcomer]))
    assert (np.delete(placed, newcomer) == np.delete(groups, newcomer)).all()
    anywhere = [np.concatenate([groups[:newcomer], [group], groups[newcomer + 1 :]]) for group in range(4)]
    assert without.cost(placed) == pytest.approx(min(map(without.cost, anywhere)))


def test_a_new_query_that_fits_nowhere_begins_a_group() -> None:
    """If including Q7 is not beneficial to any group, the optimizer creates a new one (5.4.2)."""
    low, high = [0.0] * 128 + [0.9], [0.5] * 128 + [1.0]
    workload = ranges(low, high, np.linspace(0.1, 1, 129).tolist())
    groups = np.zeros(129, dtype=np.int64)
    assert place_queries(workload, groups, np.array([128])).tolist() == [0] * 128 + [1]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_queries(count: int) -> None:
    workload = ranges([0.2] * count, [0.4] * count, [0.5] * count)
    assert group_queries(workload).tolist() == [0] * count


@settings(max_examples=examples(12))
@given(seed=st.integers(0, 2**32), count=st.integers(1, 2 * MAX_PAIRED), width=st.floats(0.01, 1))
def test_what_is_taken_is_estimated_to_cost_no_more_than_one_group_or_each_alone(
    seed: int, count: int, width: float
) -> None:
    rng = np.random.default_rng(seed)
    low = rng.random(count)
    workload = ranges(low.tolist(), (low + width * rng.random(count)).tolist(), rng.random(count).tolist(), seed)
    groups = group_queries(workload)
    assert groups.shape == (count,)
    assert sorted(np.unique(groups).tolist()) == list(range(len(np.unique(groups))))
    cost = workload.cost(groups)
    assert cost <= workload.cost(np.zeros(count, dtype=np.int64)) * (1 + 1e-9)
    if count <= MAX_PAIRED:
        assert cost <= workload.cost(np.arange(count)) * (1 + 1e-9)
    newcomers = np.flatnonzero(rng.random(count) < 0.3)
    placed = place_queries(workload, groups, newcomers)
    assert (np.delete(placed, newcomers) == np.delete(groups, newcomers)).all()
    assert (placed >= 0).all()
