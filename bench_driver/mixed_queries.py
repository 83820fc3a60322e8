"""What people ask of one stream is mixed: random queries with different keys, predicates, aggregates and windows.

A :class:`Vocabulary` says what can be asked of the tuples of a dataset. The shares of queries that are no plain
aggregations over windows are options of the workload, all 0 unless it says otherwise:

===============  =====================================================================
option           share of
===============  =====================================================================
``selections``   queries that select tuples, without a window
``sessions``     queries over sessions instead of windows
``table_joins``  aggregations over the stream joined with a static table
``distinct``     aggregations over windows that have a COUNT(DISTINCT), too
``having``       aggregations, whatever they are over, that have a HAVING
===============  =====================================================================

The first three exclude each other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from braid.bench_driver.mixed_query import Aggregate, Having, MixedQuery, SessionSpec, TableJoin
from braid.bench_driver.query_spec import WindowSpec
from braid.bench_driver.queues.mixed_datasets import CHANNELS, CITIES, HOT_AUCTIONS, PAYMENTS

KINDS = ("selections", "sessions", "table_joins")
SHARES = (*KINDS, "distinct", "having")
COUNT = Aggregate("count", "*")


@dataclass(frozen=True)
class Vocabulary:
    """What can be asked of a stream; `predicate` draws a condition, None for all tuples.

    Rows of the static table that `table` joins with are grouped by `table_key`.
    """

    keys: tuple[tuple[str, ...], ...]
    windows: tuple[WindowSpec, ...]
    aggregates: tuple[Aggregate, ...]
    max_aggregates: tuple[int, ...]
    predicate: Callable[[random.Random], str | None]
    columns: tuple[str, ...]
    counted: tuple[str, ...]
    session_keys: tuple[tuple[str, ...], ...]
    gaps_ms: tuple[int, ...]
    table: TableJoin
    table_key: str


def draw_mixed(vocabulary: Vocabulary, stream: str, options: Mapping[str, Any], rng: random.Random) -> MixedQuery:
    """Return the next query of a stream; `options` has a share, from 0 to 1, for each of `SHARES`.

    Raises:
        ValueError: a share is not from 0 to 1, or those that exclude each other are more than 1 together.
    """
    shares = {name: options[name] for name in SHARES}
    if not all(0 <= share <= 1 for share in shares.values()) or sum(shares[name] for name in KINDS) > 1:
        raise ValueError(f"shares must be from 0 to 1, and {', '.join(KINDS)} together no more than 1, got {shares}")
    # all is drawn for every query, so that a share changes no more of them than it says
    kind, distinct, having = rng.random(), rng.random() < shares["distinct"], rng.random() < shares["having"]
    plain = _aggregation(vocabulary, stream, rng)
    columns = tuple(rng.sample(vocabulary.columns, rng.randint(1, 4)))
    session_keys, gap = rng.choice(vocabulary.session_keys), SessionSpec(rng.choice(vocabulary.gaps_ms))
    counted, threshold = Aggregate("count_distinct", rng.choice(vocabulary.counted)), rng.choice((1, 2, 5, 20))
    if kind < shares["selections"]:
        return MixedQuery(stream, plain.where, columns=columns)
    keys, window, aggregates, join = plain.keys, plain.window, plain.aggregates, None
    if kind < shares["selections"] + shares["sessions"]:
        keys, window, distinct = session_keys, gap, False
    elif kind < sum(shares[name] for name in KINDS):
        keys, join = (vocabulary.table_key, *keys[1:]), vocabulary.table
    if distinct:
        aggregates = (*aggregates, counted)
    if having and COUNT not in aggregates:
        aggregates = (*aggregates, COUNT)
    condition = Having(aggregates.index(COUNT), threshold) if having else None
    return MixedQuery(stream, plain.where, keys, aggregates, window, having=condition, join=join)


def _aggregation(vocabulary: Vocabulary, stream: str, rng: random.Random) -> MixedQuery:
    return MixedQuery(
        stream,
        vocabulary.predicate(rng),
        rng.choice(vocabulary.keys),
        tuple(rng.sample(vocabulary.aggregates, rng.choice(vocabulary.max_aggregates))),
        rng.choice(vocabulary.windows),
    )


def _bid_condition(rng: random.Random) -> str:
    """Return a condition on a bid, of a random kind."""
    low = int(10 ** rng.uniform(2, 7))
    auctions = ", ".join(str(100 * hot) for hot in sorted(rng.sample(range(HOT_AUCTIONS), rng.randint(1, 8))))
    modulus = rng.randint(2, 29)
    return rng.choice(
        (
            f"price > {low}",
            f"price <= {10 * low}",
            f"price BETWEEN {low} AND {low * rng.randint(2, 89)}",
            f"MOD(auction, {modulus}) = {rng.randint(0, 1)}",
            f"bidder >= {rng.randint(1000, 3999)}",
            f"auction IN ({auctions})",
            f"MOD(price, {modulus}) <> {rng.randint(0, 2)}",
            f"price > auction * {rng.randint(1, 899)}",
            f"channel = '{rng.choice(CHANNELS)}'",
            f"channel LIKE '%{rng.randint(0, 9)}%'",
            f"LENGTH(extra) > {rng.randint(8, 37)}",
            f"extra LIKE '{rng.choice('abcdefgh')}%'",
        )
    )


def _bid_predicate(rng: random.Random) -> str:
    """Return a condition, or two under AND or OR, each of which may stand under NOT."""
    first, second = (
        f"NOT ({condition})" if rng.random() < 0.1 else condition
        for condition in (_bid_condition(rng), _bid_condition(rng))
    )
    form = rng.random()
    return f"{first} AND {second}" if form < 0.25 else f"({first} OR {second})" if form < 0.42 else first


def _trip_condition(rng: random.Random) -> str:
    """Return a condition on a trip, of a random kind."""
    low, zones = rng.randint(0, 40), sorted(rng.sample(range(1, 261), 5))
    return rng.choice(
        (
            f"fare > {low}",
            f"distance BETWEEN {low / 10} AND {low}",
            f"total >= {low}.50",
            f"vendor = {low % 3 + 1}",
            f"payment = '{rng.choice(PAYMENTS)}'",
            f"city = '{rng.choice(CITIES)}'",
            f"city LIKE 'City {low % 5}%'",
            f"zone IN ({', '.join(map(str, zones))})",
            f"zone = {zones[0]}",
            "flag",
            "tip IS NOT NULL",
            f"passengers >= {low % 5 + 1}",
            "tip > fare * 0.2",
            f"(payment = 'card' OR tip > {low % 9})",
            f"EXTRACT(SECOND FROM time) BETWEEN {low % 11} AND {low % 11 + 9}",
        )
    )


def _trip_predicate(rng: random.Random) -> str | None:
    """Return up to three conditions under AND."""
    return " AND ".join(_trip_condition(rng) for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3)))) or None


def _windows(*seconds: tuple[float, float]) -> tuple[WindowSpec, ...]:
    return tuple(WindowSpec(int(1000 * size), int(1000 * slide)) for size, slide in seconds)


def _aggregates(*pairs: tuple[str, str]) -> tuple[Aggregate, ...]:
    return tuple(Aggregate(function, argument) for function, argument in pairs)


BIDS = Vocabulary(
    keys=(("auction",), ("bidder",), ("channel",), ("MOD(auction, 10)",), ()),
    # of 1 to 10 s, one after the other or half a window apart
    windows=_windows(*((size, size / part) for size in (1, 2, 3, 5, 10) for part in (1, 2))),
    aggregates=(
        COUNT,
        Aggregate("sum", "price", is_whole=True),
        *_aggregates(("avg", "price"), ("min", "price"), ("max", "price")),
    ),
    max_aggregates=(1, 2),
    predicate=_bid_predicate,
    columns=("auction", "bidder", "price", "channel", "extra", "price * 2"),
    counted=("bidder", "auction", "channel"),
    session_keys=(("bidder",), ("auction",), ("channel",)),
    gaps_ms=(100, 500, 2000),
    table=TableJoin("bidders", "bidder", "bidder_id"),
    table_key="segment",
)
TRIPS = Vocabulary(
    keys=(
        (),
        ("zone",),
        ("city",),
        ("vendor",),
        ("payment",),
        ("zone", "payment"),
        ("vendor", "passengers"),
        ("city", "payment"),
        ("driver",),
    ),
    windows=_windows((1, 1), (2, 1), (5, 5), (10, 2), (60, 10)),
    aggregates=(
        COUNT,
        Aggregate("sum", "passengers", is_whole=True),
        *_aggregates(
            ("count", "tip"),
            ("sum", "fare"),
            ("sum", "total"),
            ("sum", "fare + tip"),
            ("avg", "tip"),
            ("avg", "tip / fare"),
            ("min", "fare"),
            ("max", "distance"),
            ("max", "total"),
            ("stddev_samp", "fare"),
            ("stddev_samp", "distance"),
            ("sum", "CASE WHEN payment = 'card' THEN fare ELSE 0 END"),
        ),
    ),
    max_aggregates=(1, 1, 2, 3),
    predicate=_trip_predicate,
    columns=("vendor", "zone", "payment", "fare", "tip", "total", "driver", "city", "fare + tip"),
    counted=("city", "driver"),
    session_keys=(("driver",), ("zone",), ("city",)),
    gaps_ms=(100, 500, 2000),
    table=TableJoin("zones", "zone", "zone_id"),
    table_key="borough",
)
VOCABULARIES: Mapping[str, Vocabulary] = {"bids": BIDS, "trips": TRIPS}
"""By the dataset whose tuples are asked for."""
