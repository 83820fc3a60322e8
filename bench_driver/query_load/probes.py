"""Choose the few queries whose results the consumer reads: spread over the list, and giving rows often enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from braid.bench_driver.mixed_query import MixedQuery, Query
from braid.bench_driver.nexmark_query import NexmarkQuery
from braid.bench_driver.query_spec import Comparison
from braid.bench_driver.queues.datasets import find_dataset
from braid.bench_driver.workload import StreamSpec

# whose rows are read
READ_PROBES, READ_ALL, READ_NONE = "probes", "all", "none"

PROBES = 4
MIN_SHARE = 0.2
LONGEST_SLIDE_MS = 4_000


def choose_probes(queries: Sequence[Query], streams: Sequence[StreamSpec], most: int = PROBES) -> list[int]:
    """Return the places of up to `most` queries, ascending.

    The list is cut into as many runs of equal length. In each, the first query that lets through at least a fifth of
    the tuples and has a window at least every 4 s; where there is none, the one that comes closest, the share of the
    tuples first: a probe that hardly ever gives a row measures nothing. A query of NEXMark without event times is none.
    """
    by_name = {stream.name: stream for stream in streams}
    count = min(most, len(queries))
    chosen = []
    for number in range(count):
        run = range(number * len(queries) // count, (number + 1) * len(queries) // count)
        places = [place for place in run if _tells_event_times(queries[place])]
        if not places:
            continue
        shares = {place: share_of(queries[place], by_name) for place in places}
        chosen.append(
            max(
                places,
                key=lambda p: (min(shares[p], MIN_SHARE), queries[p].slide_ms <= LONGEST_SLIDE_MS, -p),
            )
        )
    return chosen


def _tells_event_times(query: Query) -> bool:
    return not isinstance(query, NexmarkQuery) or bool(query.event_times)


def share_of(query: Query, streams: Mapping[str, StreamSpec]) -> float:
    """Estimate the share of tuples that pass a query's predicates: independent, uniform columns.

    Predicates of mixed queries are not looked into: half of the tuples. NEXMark's probes have none.
    """
    if isinstance(query, NexmarkQuery):
        return 1.0
    if isinstance(query, MixedQuery):
        return 0.5 if query.where else 1.0
    share = 1.0
    for comparison in query.comparisons:
        share *= _share(comparison, streams[comparison.stream])
    return share


def _share(comparison: Comparison, stream: StreamSpec) -> float:
    dataset = find_dataset(stream.dataset)
    option = dataset.bounds.get(comparison.column)
    if option is None:
        return 0.5  # nothing is known of the column
    top = float(dataset.options(stream.options)[option])
    constant = comparison.constant
    below = min(max(constant / top, 0.0), 1.0)
    equal = 1.0 / top if 0 <= constant < top else 0.0
    shares = {
        "=": equal,
        "<": below,
        "<=": min(below + equal, 1.0),
        ">": 1.0 - min(below + equal, 1.0),
        ">=": 1.0 - below,
    }
    return shares[comparison.operator]
