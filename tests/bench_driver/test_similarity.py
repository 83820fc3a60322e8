"""Equation 5.3 on the thesis's examples, and joins that are as similar as wanted."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.bench_driver.query_spec import ColumnRef, JoinSpec
from braid.bench_driver.similarity import draw_pattern, draw_similar

STREAMS = ("s1", "s2", "s3", "s4", "s5")
ATTRIBUTES = ("a0", "a1", "a2", "a3", "a4", "a5")


def similarity(query: Sequence[JoinSpec], pattern: Sequence[JoinSpec]) -> float:
    """Return equation 5.3: ComS * ComSJA / AllS²."""
    attributes, of_pattern = (
        {side for step in joins for side in (step.left, step.right)} for joins in (query, pattern)
    )
    streams, streams_of_pattern = ({side.stream for side in sides} for sides in (attributes, of_pattern))
    common_streams, common_attributes = streams & streams_of_pattern, attributes & of_pattern
    return len(common_streams) * len(common_attributes) / len(streams_of_pattern) ** 2


def _joins(*steps: str) -> tuple[JoinSpec, ...]:
    """Read steps such as `A.a=B.b`."""
    sides = [[ColumnRef(*side.split(".")) for side in step.split("=")] for step in steps]
    return tuple(JoinSpec(left, right) for left, right in sides)


def test_the_thesis_s_example_is_half_similar() -> None:
    # 2 common sources, of which one join attribute is common, by the square of 2
    assert similarity(_joins("A.a=B.a"), _joins("A.a=B.b")) == 2 * 1 / 4


def test_joins_without_a_common_attribute_or_stream_are_not_similar() -> None:
    pattern = _joins("A.a=B.b1", "B.b2=C.c")
    assert similarity(_joins("A.x=B.x", "B.y=C.y"), pattern) == 0
    assert similarity(_joins("D.a=E.b1", "E.b2=F.c"), pattern) == 0
    assert similarity(pattern, pattern) == 3 * 4 / 9


@given(seed=st.integers(0, 10_000), ways=st.integers(2, 5), target=st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]))
def test_drawn_joins_are_a_chain_as_similar_as_whole_numbers_allow(seed: int, ways: int, target: float) -> None:
    rng = random.Random(seed)
    pattern = draw_pattern(rng, STREAMS[:ways], ATTRIBUTES)
    joins = draw_similar(rng, pattern, target, STREAMS, ATTRIBUTES)
    assert len(joins) == len(pattern) == ways - 1
    chain = [joins[0].left.stream, *(step.right.stream for step in joins)]
    assert [step.left.stream for step in joins] == chain[:-1]
    assert len(set(chain)) == ways
    # one attribute more or less would be further away
    common = len(set(chain) & set(STREAMS[:ways]))
    assert abs(similarity(joins, pattern) - target) <= common / (2 * ways**2) + 1e-9


@given(seed=st.integers(0, 10_000), ways=st.integers(2, 5))
def test_common_streams_are_neighbours_in_the_query(seed: int, ways: int) -> None:
    rng = random.Random(seed)
    streams = [f"s{i}" for i in range(1, 11)]
    pattern = draw_pattern(rng, streams[:ways], ATTRIBUTES)
    joins = draw_similar(rng, pattern, 0.5, streams, ATTRIBUTES)
    common = [s in streams[:ways] for s in (joins[0].left.stream, *(step.right.stream for step in joins))]
    assert "".join("x" if is_common else " " for is_common in common).strip().count(" ") == 0


def test_half_similar_two_way_joins_share_both_streams_and_one_attribute() -> None:
    rng = random.Random(1)
    pattern = draw_pattern(rng, STREAMS[:2], ATTRIBUTES)
    queries = [draw_similar(rng, pattern, 0.5, STREAMS, ATTRIBUTES) for _ in range(100)]
    assert [similarity(joins, pattern) for joins in queries] == [pytest.approx(0.5)] * 100
    kept_left = sum(joins[0].left == pattern[0].left for joins in queries)
    assert 20 < kept_left < 80
