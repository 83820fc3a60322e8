"""How much of the evaluation of streams queries share, against counting query by query."""

from __future__ import annotations

from braid.api.metrics.stream_series import SharingSeries
from tests.session.records import record

STREAMS = {"s-1": "purchases", "s-2": "ads"}


def counted(sharing: SharingSeries, streams: dict[str, str] | None = None) -> dict[tuple[str, str], float]:
    """Return the value of each sample by the name of its metric and its stream."""
    families = sharing.families(STREAMS if streams is None else streams)
    return {(s.name, s.labels["stream"]): s.value for family in families for s in family.samples}


def test_tuples_count_once_a_query_and_once_an_operator() -> None:
    sharing = SharingSeries()
    first_sums = record(1, operator="sums", stream_names={"s-1": "purchases"})
    second_sums = record(2, operator="sums", stream_names={"s-1": "purchases"})
    joined = record(3, operator="join", stream_names=STREAMS)
    batch = {"streams": {"s-1": {"tuples": 10}, "s-2": {"tuples": 3}, "s-3": {"tuples": 5}}}
    sharing.absorb(batch)
    assert set(counted(sharing).values()) == {0}
    for query in (first_sums, second_sums, joined):
        sharing.add(query)
    sharing.absorb(batch)
    expected = {("query", "purchases"): 30, ("operator", "purchases"): 20, ("query", "ads"): 3, ("operator", "ads"): 3}
    assert counted(sharing) == {(f"braid_stream_{n}_tuples_total", s): value for (n, s), value in expected.items()}
    for query in (joined, first_sums):
        sharing.remove(query)
    sharing.absorb(batch)
    expected |= {("query", "purchases"): 40, ("operator", "purchases"): 30}
    assert counted(sharing) == {(f"braid_stream_{n}_tuples_total", s): value for (n, s), value in expected.items()}
    sharing.remove(second_sums)
    sharing.absorb(batch)
    assert counted(sharing)["braid_stream_operator_tuples_total", "purchases"] == 30


def test_a_dropped_stream_is_forgotten() -> None:
    sharing = SharingSeries()
    sharing.add(record(1))
    sharing.absorb({"streams": {"s-1": {"tuples": 10}}})
    assert counted(sharing, {}) == {}
    assert set(counted(sharing).values()) == {0}
