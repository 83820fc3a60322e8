"""Tuples that mixed queries are asked of: bids, much as NEXMark's, and taxi trips; and static tables to join them with.

Half of the bids are for a few hot auctions and a quarter are of a few hot bidders. Prices spread over six decades. Most
trips begin in few zones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

HOT_AUCTIONS, HOT_BIDDERS = 40, 20
COLD_AUCTIONS, COLD_BIDDERS = (1000, 6000), (1000, 4000)
CHANNELS = ("Google", "Apple", "Baidu", "Facebook")
OTHER_CHANNELS = 5000
EXTRA_LETTERS = 40
PAYMENTS = ("cash", "card", "app", "voucher", "dispute")
CITIES = tuple(f"City {number}" for number in range(60))
ZONES, DRIVERS = 260, 20_000
SIDE_KEYS = 10_000

BID_COLUMNS = (
    ("auction", "BIGINT"),
    ("bidder", "BIGINT"),
    ("price", "BIGINT"),
    ("channel", "VARCHAR"),
    ("extra", "VARCHAR"),
)
TRIP_COLUMNS = (
    ("vendor", "INT"),
    ("passengers", "INT"),
    ("distance", "DOUBLE"),
    ("zone", "INT"),
    ("payment", "VARCHAR"),
    ("fare", "DOUBLE"),
    ("tip", "DOUBLE"),
    ("total", "DECIMAL(10,2)"),
    ("flag", "BOOLEAN"),
    ("driver", "BIGINT"),
    ("city", "VARCHAR"),
)


def make_bids(random: np.random.Generator, count: int, _: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of so many bids."""
    is_hot = random.random(count) < 0.5
    hot_auctions = 100 * random.integers(0, HOT_AUCTIONS, count)
    from_hot = random.random(count) < 0.25
    names = pa.array([*CHANNELS, *(f"channel-{number}" for number in range(OTHER_CHANNELS))])
    usual = random.integers(0, len(CHANNELS), count)
    unusual = random.integers(len(CHANNELS), len(names), count)
    return {
        "auction": np.where(is_hot, hot_auctions, random.integers(*COLD_AUCTIONS, count)),
        "bidder": np.where(from_hot, random.integers(0, HOT_BIDDERS, count), random.integers(*COLD_BIDDERS, count)),
        "price": np.exp(random.uniform(4.6, 18.4, count)).astype(np.int64),
        "channel": names.take(pa.array(np.where(random.random(count) < 0.6, usual, unusual))),
        "extra": letters(random, random.integers(0, EXTRA_LETTERS, count)),
    }


def letters(random: np.random.Generator, lengths: npt.NDArray[np.int64]) -> pa.Array:
    """Return texts of these lengths, NULL for 0."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    letters = random.integers(ord("a"), ord("z") + 1, int(offsets[-1]), dtype=np.uint8)
    known = pa.py_buffer(np.packbits(lengths > 0, bitorder="little"))
    return pa.Array.from_buffers(pa.string(), len(lengths), [known, pa.py_buffer(offsets), pa.py_buffer(letters)])


def make_trips(random: np.random.Generator, count: int, _: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of so many trips."""
    cents = (random.gamma(3, 6, count) * 100).astype(np.int64) + 250
    fare = cents / 100
    total = [None, pa.py_buffer(np.stack([cents, np.zeros_like(cents)], axis=1))]
    payments = random.choice(len(PAYMENTS), count, p=[0.3, 0.5, 0.15, 0.04, 0.01])
    tip = np.round(fare * random.choice([0, 0.1, 0.2, 0.25], count), 2)
    return {
        "vendor": random.integers(1, 4, count, dtype=np.int32),
        "passengers": random.integers(1, 7, count, dtype=np.int32),
        "distance": np.round(random.gamma(2, 2, count), 1),
        "zone": (random.zipf(1.3, count) % ZONES + 1).astype(np.int32),
        "payment": pa.array(PAYMENTS).take(pa.array(payments)),
        "fare": fare,
        "tip": pa.array(tip, mask=random.random(count) < 0.1),
        "total": pa.Array.from_buffers(pa.decimal128(10, 2), count, total),
        "flag": random.random(count) < 0.02,
        "driver": random.integers(0, DRIVERS, count),
        "city": pa.array(CITIES).take(pa.array(random.integers(0, len(CITIES), count))),
    }


def static_table(name: str) -> pa.Table:
    """Return the rows of a static table; ValueError names those there are."""
    if name == "bidders":
        ids = np.concatenate([np.arange(HOT_BIDDERS), np.arange(*COLD_BIDDERS)])
        return pa.table({"bidder_id": ids, "segment": [f"segment-{number % 10}" for number in ids]})
    if name == "zones":
        ids = np.arange(1, ZONES + 1, dtype=np.int32)
        return pa.table({"zone_id": ids, "borough": [f"borough-{number % 6}" for number in ids]})
    if name == "side_input":
        keys = np.arange(SIDE_KEYS)
        return pa.table({"key": keys, "value": [f"value {key % 17}" for key in keys]})
    raise ValueError(f"there is no static table {name!r}; there are {', '.join(TABLE_COLUMNS)}")


TABLE_COLUMNS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "bidders": (("bidder_id", "BIGINT"), ("segment", "VARCHAR")),
    "zones": (("zone_id", "INT"), ("borough", "VARCHAR")),
    "side_input": (("key", "BIGINT"), ("value", "VARCHAR")),
}
"""The columns of static tables with their types in SQL."""
