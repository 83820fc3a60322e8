"""The data that is measured with: columns, options, and a seeded maker of tuples for each dataset.

The last column of every dataset is the event time, which is not made here: a tuple gets it when it is generated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braid.bench_driver.queues import nexmark_datasets as nexmark
from braid.bench_driver.queues.mixed_datasets import BID_COLUMNS, TRIP_COLUMNS, make_bids, make_trips
from braid.bench_driver.queues.schedule import Schedule, Times

TIME = "time"
RING_ROWS = 1 << 20
UNIFORM, NORMAL = "uniform", "normal"
ASTREAM_FIELDS = tuple(f"field{i}" for i in range(5))
AJOIN_ATTRIBUTES = tuple(f"a{i}" for i in range(6))

Columns = dict[str, Any]
"""Arrays of numpy or, where there are NULLs or texts, of Arrow."""


@dataclass(frozen=True)
class Dataset:
    """Tuples of one kind: SQL columns, options with their defaults, and how `count` tuples are made.

    `bounds` has the columns of whole numbers from 0 on, and the option that bounds each from above. `period` tells,
    given all options, after how many tuples their order repeats: a ring of tuples must have a multiple. `complete`
    returns columns of tuples out of what was made for them, when they come, and how many groups of the workload's
    tuples came by then. So many `rows` are made.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    defaults: Mapping[str, Any]
    make: Callable[[np.random.Generator, int, Mapping[str, Any]], Columns]
    bounds: Mapping[str, str] = field(default_factory=dict)
    period: Callable[[Mapping[str, Any]], int] = lambda _: 1
    complete: Callable[[Mapping[str, pa.Array], Times, Schedule], Columns] | None = None
    rows: int = RING_ROWS

    @property
    def time(self) -> str:
        """The column of event times."""
        return self.columns[-1][0]

    def options(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """Return all options, with defaults for those not given.

        Raises:
            ValueError: an option is unknown or its value is not possible.
        """
        unknown = sorted(set(chosen) - set(self.defaults))
        if unknown:
            known = ", ".join(self.defaults)
            raise ValueError(f"dataset {self.name!r} has the options {known}; it has no {', '.join(unknown)}")
        for name, value in chosen.items():
            self._check(name, value)
        return {**self.defaults, **chosen}

    def _check(self, option: str, value: Any) -> None:
        if isinstance(self.defaults[option], bool):
            is_valid, expected = isinstance(value, bool), "true or false"
        elif isinstance(self.defaults[option], int):
            is_valid = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 10_000_000
            expected = "a whole number from 1 to 10000000"
        else:
            is_valid, expected = value in (UNIFORM, NORMAL), f"{UNIFORM!r} or {NORMAL!r}"
        if not is_valid:
            raise ValueError(f"option {option!r} of dataset {self.name!r} must be {expected}, got {value!r}")


def find_dataset(name: str) -> Dataset:
    """Return a dataset by name; ValueError names those there are."""
    if name not in DATASETS:
        raise ValueError(f"there is no dataset {name!r}; there are {', '.join(DATASETS)}")
    return DATASETS[name]


def _make_ads(random: np.random.Generator, count: int, options: Mapping[str, Any]) -> Columns:
    draw = _normal if options["distribution"] == NORMAL else _uniform
    return {
        "user_id": draw(random, count, options["users"]).astype(np.int64),
        "gem_pack": draw(random, count, options["gem_packs"]).astype(np.int32),
    }


def _make_purchases(random: np.random.Generator, count: int, options: Mapping[str, Any]) -> Columns:
    cents = random.integers(99, 10_000, count)
    return {**_make_ads(random, count, options), "price": cents / 100}


def _make_astream(random: np.random.Generator, count: int, options: Mapping[str, Any]) -> Columns:
    """Thesis 4.4.2.1: the key is the one before plus 1, modulo the number of keys; the fields are random."""
    keys = 1 if options["one_key"] else options["keys"]
    fields = {name: _uniform(random, count, options["fields_max"]) for name in ASTREAM_FIELDS}
    return {"key": (np.arange(count) % keys).astype(np.int32), **fields}


def _make_ajoin(random: np.random.Generator, count: int, options: Mapping[str, Any]) -> Columns:
    """Thesis 5.7.2: every attribute is uniform between 0 and ATR_MAX."""
    return {name: _uniform(random, count, options["atr_max"]) for name in AJOIN_ATTRIBUTES}


def _uniform(random: np.random.Generator, count: int, limit: int) -> npt.NDArray[np.int32]:
    return random.integers(0, limit, count, dtype=np.int32)


def _normal(random: np.random.Generator, count: int, limit: int) -> npt.NDArray[np.int32]:
    """Return keys in `[0, limit)`, normal about the middle; the limits are three standard deviations away."""
    keys = random.normal(limit / 2, limit / 6, count)
    while (outside := (keys < 0) | (keys >= limit)).any():
        keys[outside] = random.normal(limit / 2, limit / 6, int(outside.sum()))
    return keys.astype(np.int32)


_SHOP_OPTIONS = {"users": 1000, "gem_packs": 10, "distribution": UNIFORM}
SHOP_BOUNDS = {"user_id": "users", "gem_pack": "gem_packs"}

DATASETS: Mapping[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            "purchases",
            (("user_id", "BIGINT"), ("gem_pack", "INT"), ("price", "DOUBLE"), (TIME, "TIMESTAMP")),
            _SHOP_OPTIONS,
            _make_purchases,
            SHOP_BOUNDS,
        ),
        Dataset(
            "ads",
            (("user_id", "BIGINT"), ("gem_pack", "INT"), (TIME, "TIMESTAMP")),
            _SHOP_OPTIONS,
            _make_ads,
            SHOP_BOUNDS,
        ),
        Dataset(
            "astream",
            (("key", "INT"), *((name, "INT") for name in ASTREAM_FIELDS), (TIME, "TIMESTAMP")),
            {"keys": 1000, "fields_max": 1000, "one_key": False},
            _make_astream,
            {"key": "keys"} | dict.fromkeys(ASTREAM_FIELDS, "fields_max"),
            period=lambda options: 1 if options["one_key"] else options["keys"],
        ),
        Dataset(
            "ajoin",
            (*((name, "INT") for name in AJOIN_ATTRIBUTES), (TIME, "TIMESTAMP")),
            {"atr_max": 500},
            _make_ajoin,
            dict.fromkeys(AJOIN_ATTRIBUTES, "atr_max"),
        ),
        Dataset("bids", (*BID_COLUMNS, (TIME, "TIMESTAMP")), {}, make_bids),
        Dataset("trips", (*TRIP_COLUMNS, (TIME, "TIMESTAMP")), {}, make_trips),
        Dataset(
            "nexmark-persons",
            nexmark.PERSON_COLUMNS,
            {},
            nexmark.make_persons,
            complete=nexmark.complete_persons,
            rows=RING_ROWS >> 5,
        ),
        Dataset(
            "nexmark-auctions",
            nexmark.AUCTION_COLUMNS,
            {},
            nexmark.make_auctions,
            complete=nexmark.complete_auctions,
            rows=RING_ROWS >> 4,
        ),
        Dataset("nexmark-bids", nexmark.BID_COLUMNS, {}, nexmark.make_bids, complete=nexmark.complete_bids),
    )
}
