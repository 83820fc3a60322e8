"""Max-min shares of a batch."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from braid.engine.planning.fair_shares import fair_shares

STREAMS = st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 10**10), st.floats(1.0, 1e4)), min_size=1)


@given(STREAMS, st.floats(1.0, 1e9))
@example({"a": (1, 4.0), "b": (4, 1.0)}, 5.0)
def test_nobody_gets_less_than_an_even_share_for_the_sake_of_one_who_gets_more(
    streams: dict[str, tuple[int, float]], budget: float
) -> None:
    waiting = {stream: count for stream, (count, _) in streams.items()}
    costs = {stream: cost for stream, (_, cost) in streams.items()}
    shares = fair_shares(waiting, costs, budget)
    spent = {stream: shares[stream] * costs[stream] for stream in streams}
    assert sum(spent.values()) <= budget + sum(costs.values()) + 1e-6 * budget
    for stream in streams:
        assert min(1, waiting[stream]) <= shares[stream] <= waiting[stream]
        if shares[stream] < waiting[stream]:
            others = max(spent.values()) if spent else 0
            assert spent[stream] + costs[stream] >= min(others, budget / len(streams)) * (1 - 1e-9)


def test_a_stream_with_billions_waiting_leaves_another_its_few() -> None:
    assert fair_shares({"large": 10**10, "small": 500}, {"large": 1.0, "small": 1.0}, 200_000) == {
        "small": 500,
        "large": 199_500,
    }
