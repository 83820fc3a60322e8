"""The query generators, mostly the thesis's: from a workload and a seed to queries, the same ones every time.

One generator of random numbers runs through all queries of a workload in order, so that the first n of m queries are
the same as n queries. Where a template selects `*`, that is the tuple as the thesis has it: without the event time.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from braid.bench_driver.mixed_queries import VOCABULARIES, draw_mixed
from braid.bench_driver.mixed_query import MixedQuery, Query
from braid.bench_driver.nexmark_query import NexmarkQuery
from braid.bench_driver.query_spec import OPERATORS, ColumnRef, Comparison, JoinSpec, QuerySpec, WindowSpec
from braid.bench_driver.queues.datasets import SHOP_BOUNDS
from braid.bench_driver.similarity import draw_pattern, draw_similar
from braid.bench_driver.workload import StreamSpec, Workload

KEY = "key"
FIELDS = tuple(f"field{i}" for i in range(5))
ATTRIBUTES = tuple(f"a{i}" for i in range(6))


def generate_queries(workload: Workload, count: int, seed: int) -> list[Query]:
    """Return `count` queries of the workload's template.

    Raises:
        ValueError: the workload lacks what its template needs: streams, an option, or an option of a stream.
    """
    rng = random.Random(seed)
    try:
        draw = _TEMPLATES[workload.template](workload, rng)
        return [draw() for _ in range(count)]
    except (LookupError, TypeError) as error:
        raise ValueError(
            f"workload {workload.name!r} must have the streams and options of template {workload.template!r},"
            f" got {[stream.name for stream in workload.streams]} and {dict(workload.options)}: {error!r}"
        ) from error


Draw = Callable[[], Query]


def _rovio_aggregation(workload: Workload, _: random.Random) -> Draw:
    """Figure 3.8: the revenue of each gem pack; all queries are alike."""
    purchases = workload.streams[0].name
    query = QuerySpec(
        streams=(purchases,),
        window=_fixed_window(workload.options),
        keys=(ColumnRef(purchases, "gem_pack"),),
        measure=ColumnRef(purchases, "price"),
    )
    return lambda: query


def _rovio_join(workload: Workload, rng: random.Random) -> Draw:
    """Figure 3.8: purchases of a gem pack that was advertised to the user.

    All queries are alike, or have random predicates (4.4.2.2), or ask for a cohort of the users each.
    """
    streams = _first_streams(workload, 2)
    purchases, ads = (stream.name for stream in streams)
    query = QuerySpec(
        streams=(purchases, ads),
        window=_fixed_window(workload.options),
        joins=tuple(JoinSpec(ColumnRef(purchases, key), ColumnRef(ads, key)) for key in SHOP_BOUNDS),
        columns=tuple(ColumnRef(purchases, name) for name in (*SHOP_BOUNDS, "price")),
    )
    cohort = workload.options["cohort"]
    if cohort:
        return lambda: replace(query, comparisons=_cohort(rng, streams[0], cohort))
    if not workload.options["random_predicates"]:
        return lambda: query

    def draw() -> QuerySpec:
        comparisons = []
        for stream in streams:
            column, option = rng.choice(list(SHOP_BOUNDS.items()))
            comparisons.append(_predicate(rng, stream.name, (column,), stream.options[option]))
        return replace(query, comparisons=tuple(comparisons))

    return draw


def _cohort(rng: random.Random, purchases: StreamSpec, size: int) -> tuple[Comparison, ...]:
    """Return the conditions that leave so many users."""
    low = rng.randrange(purchases.options["users"] - size)
    return (
        Comparison(purchases.name, "user_id", ">=", low),
        Comparison(purchases.name, "user_id", "<", low + size),
    )


def _aggregation(workload: Workload, rng: random.Random) -> Draw:
    """Figure 4.8: the sum of a field by key, with a random predicate and a random window (4.4.2.2, 4.4.2.3)."""
    stream = workload.streams[0]
    return lambda: QuerySpec(
        streams=(stream.name,),
        comparisons=(_field_predicate(stream, rng),),
        window=_random_window(workload.options, rng),
        keys=(ColumnRef(stream.name, KEY),),
        measure=ColumnRef(stream.name, FIELDS[0]),
    )


def _shared_data(workload: Workload, rng: random.Random) -> Draw:
    """Figure 5.27a: sums by key over a stream, or over all streams joined on the key, by queries of clusters in turns.

    Of each stream a query selects a range of a field that is its cluster's own, but for `shared_percent` of all tuples,
    which it shares with the clusters after that, and of those what a random predicate on another field lets through.
    """
    names, clusters = tuple(stream.name for stream in workload.streams), workload.options["clusters"]
    values = workload.streams[0].options["fields_max"]
    shared = values * workload.options["shared_percent"] / 100
    turns = itertools.cycle(range(clusters))

    def draw() -> QuerySpec:
        cluster, width = next(turns), values / clusters
        comparisons = []
        for name in names:
            low = int((cluster + 0.3 * rng.random()) * width)
            high = int((cluster + 1 - 0.3 * rng.random()) * width + shared)
            comparisons += [
                Comparison(name, FIELDS[1], ">=", low),
                Comparison(name, FIELDS[1], "<", high),
                Comparison(name, FIELDS[2], rng.choice("<>"), rng.randrange(values)),
            ]
        return QuerySpec(
            streams=names,
            comparisons=tuple(comparisons),
            window=_random_window(workload.options, rng),
            joins=_key_joins(names),
            keys=(ColumnRef(names[0], KEY),),
            measure=ColumnRef(names[0], FIELDS[0]),
        )

    return draw


def _join(workload: Workload, rng: random.Random) -> Draw:
    """Figure 4.7: two streams joined on the key, with a random predicate each and a random window (4.4.2.3)."""
    streams = _first_streams(workload, 2)
    names = tuple(stream.name for stream in streams)
    return lambda: QuerySpec(
        streams=names,
        comparisons=tuple(_field_predicate(stream, rng) for stream in streams),
        window=_random_window(workload.options, rng),
        joins=_key_joins(names),
        columns=tuple(ColumnRef(name, column) for name in names for column in (KEY, *FIELDS)),
    )


def _ordered_join(workload: Workload, _: random.Random) -> Draw:
    """Two streams joined on the key where fields of one and the other, in turns, ascend; all queries are alike.

    Of the combinations with a key, 1 in (`comparisons` + 1)! is left, and each has to be looked at. They are
    selected, or summed by columns `group_by` of the first stream if there are any.
    """
    names = tuple(stream.name for stream in _first_streams(workload, 2))
    turns = [ColumnRef(names[n % 2], FIELDS[n // 2]) for n in range(workload.options["comparisons"] + 1)]
    size_ms = workload.options["window_ms"]
    keys = tuple(ColumnRef(names[0], column) for column in workload.options["group_by"])
    query = QuerySpec(
        streams=names,
        window=WindowSpec(size_ms, size_ms),
        joins=(*_key_joins(names), *(JoinSpec(lower, higher, "<") for lower, higher in itertools.pairwise(turns))),
        keys=keys,
        measure=ColumnRef(names[1], FIELDS[0]) if keys else None,
        columns=() if keys else tuple(ColumnRef(name, KEY) for name in names),
    )
    return lambda: query


def _complex(workload: Workload, rng: random.Random) -> Draw:
    """Section 4.4.7: selections, then 1 to `joins_max` windowed joins on the key, then a windowed sum by key.

    The streams are random ones of the workload; each is selected from, as in the other joins of the chapter.
    """
    max_joins = min(workload.options["joins_max"], len(workload.streams) - 1)
    if max_joins < 1:
        raise IndexError("a join needs two streams")

    def draw() -> QuerySpec:
        streams = rng.sample(workload.streams, rng.randint(1, max_joins) + 1)
        names = tuple(stream.name for stream in streams)
        return QuerySpec(
            streams=names,
            comparisons=tuple(_field_predicate(stream, rng) for stream in streams),
            window=_random_window(workload.options, rng),
            joins=_key_joins(names),
            keys=(ColumnRef(names[0], KEY),),
            measure=ColumnRef(names[0], FIELDS[0]),
        )

    return draw


def _n_way(workload: Workload, rng: random.Random) -> Draw:
    """Figure 5.17: chains of 2 to 5 streams on random attributes, each as similar to a pattern query as wanted (5.7.2).

    The numbers of streams in `ways` take turns; the pattern of each joins the first streams of the workload. Windows
    tumble.
    """
    options = workload.options
    by_name = {stream.name: stream for stream in workload.streams}
    patterns = {
        ways: draw_pattern(rng, [stream.name for stream in _first_streams(workload, ways)], ATTRIBUTES)
        for ways in options["ways"]
    }

    turns = itertools.cycle(patterns.values())

    def draw() -> QuerySpec:
        joins = draw_similar(rng, next(turns), options["similarity"], list(by_name), ATTRIBUTES)
        names = (joins[0].left.stream, *(step.right.stream for step in joins))
        size_ms = 1000 * rng.choice(options["window_seconds"])
        return QuerySpec(
            streams=names,
            comparisons=tuple(_predicate(rng, name, ATTRIBUTES, by_name[name].options["atr_max"]) for name in names),
            window=WindowSpec(size_ms, size_ms),
            joins=joins,
            columns=tuple(ColumnRef(name, attribute) for name in names for attribute in ATTRIBUTES),
        )

    return draw


def _ring(workload: Workload, rng: random.Random) -> Draw:
    """Sums over streams in a ring, each joined with the next on an attribute of its own and the last with the first.

    Of each stream a query selects one of `shares`, in turns, of its tuples, and has the streams in random order. So how
    many combinations there are in between depends on the order in which they are joined. Windows tumble.
    """
    streams, shares = _first_streams(workload, workload.options["ways"]), workload.options["shares"]
    size_ms = 1000 * workload.options["window_seconds"]

    def draw() -> QuerySpec:
        shuffled = rng.sample(streams, len(streams))
        turns = itertools.cycle(rng.sample(shares, len(shares)))
        names = tuple(stream.name for stream in shuffled)
        ring_edges = zip(names, (*names[1:], names[0]), ATTRIBUTES, strict=False)
        return QuerySpec(
            streams=names,
            comparisons=tuple(
                Comparison(stream.name, ATTRIBUTES[-1], "<", round(share * stream.options["atr_max"]))
                for stream, share in zip(shuffled, turns, strict=False)
            ),
            window=WindowSpec(size_ms, size_ms),
            joins=tuple(
                JoinSpec(ColumnRef(left, attribute), ColumnRef(right, attribute))
                for left, right, attribute in ring_edges
            ),
            keys=(ColumnRef(names[0], ATTRIBUTES[0]),),
            measure=ColumnRef(names[0], ATTRIBUTES[-1]),
        )

    return draw


def _mixed(workload: Workload, rng: random.Random) -> Draw:
    """Queries that differ in all that queries can differ in, of the workload's only stream."""
    stream = workload.streams[0]
    vocabulary = VOCABULARIES[stream.dataset]

    def draw() -> MixedQuery:
        return draw_mixed(vocabulary, stream.name, workload.options, rng)

    return draw


def _nexmark(workload: Workload, _: random.Random) -> Draw:
    """NEXMark's queries of the numbers `queries`, in turns."""
    turns = itertools.cycle([NexmarkQuery(number) for number in workload.options["queries"]])
    return lambda: next(turns)


_TEMPLATES: dict[str, Callable[[Workload, random.Random], Draw]] = {
    "rovio-aggregation": _rovio_aggregation,
    "rovio-join": _rovio_join,
    "aggregation": _aggregation,
    "shared-data": _shared_data,
    "join": _join,
    "ordered-join": _ordered_join,
    "complex": _complex,
    "n-way": _n_way,
    "ring": _ring,
    "mixed": _mixed,
    "nexmark": _nexmark,
}


def _first_streams(workload: Workload, count: int) -> tuple[StreamSpec, ...]:
    if count < 2 or len(workload.streams) < count:
        raise IndexError(f"a join of {count} streams needs at least 2, and as many streams in the workload")
    return workload.streams[:count]


def _key_joins(streams: Sequence[str]) -> tuple[JoinSpec, ...]:
    """Return the steps that join each stream with the next on the key."""
    return tuple(JoinSpec(ColumnRef(left, KEY), ColumnRef(right, KEY)) for left, right in itertools.pairwise(streams))


def _fixed_window(options: Any) -> WindowSpec:
    size, slide = options["window_seconds"]
    return WindowSpec(1000 * size, 1000 * slide)


def _random_window(options: Any, rng: random.Random) -> WindowSpec:
    """Return a window of random(1, max) seconds that slides by random(1, length) seconds (4.4.2.3)."""
    size = rng.randint(1, options["window_max_seconds"])
    return WindowSpec(1000 * size, 1000 * rng.randint(1, size))


def _field_predicate(stream: StreamSpec, rng: random.Random) -> Comparison:
    """Return a random field compared by a random operator with a random constant (4.4.2.2)."""
    return _predicate(rng, stream.name, FIELDS, stream.options["fields_max"])


def _predicate(rng: random.Random, stream: str, columns: Sequence[str], values: int) -> Comparison:
    return Comparison(stream, rng.choice(columns), rng.choice(OPERATORS), rng.randrange(values))
