"""Persons, auctions and bids of NEXMark, with the distributions of its generators for Apache Beam and Flink.

These are taken from there: a person, three auctions and 46 bids in each group of 50; ids that grow from 1000; half of
the bids for the newest hot auction, three quarters of the auctions by the newest hot seller, and as many bids by the
newest hot bidder, where one of a hundred is hot; other ids of those that are active, or a few ahead; prices whose
logarithm is uniform over six decades; auctions that are open, on average, for as long as a hundred new ones take; four
hot channels, and 10 000 others of which nine in ten have a number in their url.

Ids and `expires` follow from when a tuple comes. What is made beforehand is where in its range an id lies, from 0 on to
less than 1, or `HOT`.

Tucker et al., NEXMark: A Benchmark for Queries over Data Streams; https://github.com/nexmark/nexmark, its generators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braid.bench_driver.queues.mixed_datasets import CHANNELS as HOT_CHANNELS
from braid.bench_driver.queues.mixed_datasets import letters
from braid.bench_driver.queues.schedule import SECOND_US, Schedule, Times

TIME = "dateTime"
PERSONS, AUCTIONS, BIDS = 1, 3, 46
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
HOT_OF, HOT = 100, -1.0
IN_FLIGHT, ACTIVE_PERSONS, LEAD = 100, 1000, 10
P_HOT_AUCTION, P_HOT_SELLER, P_HOT_BIDDER, P_HOT_CHANNEL, P_URL_WITH_ID = 1 / 2, 3 / 4, 3 / 4, 1 / 2, 9 / 10
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100
NUMBER_BYTES = 8
OTHER_CHANNELS = 10_000
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = ("Tucson", "Oakland", "San Diego", "Boise", "Salem", "Eugene", "Tacoma", "Spokane", "Kent", "Casper")
FIRST_NAMES = ("Ada", "Bela", "Cleo", "Dora", "Emil", "Fritz", "Greta", "Hugo", "Ines", "Jan", "Kaya")
LAST_NAMES = ("Ames", "Brandt", "Cole", "Diaz", "Engel", "Frost", "Gray", "Hill", "Ito")

PERSON_COLUMNS = (
    ("id", "BIGINT"),
    *((name, "VARCHAR") for name in ("name", "emailAddress", "creditCard", "city", "state", "extra")),
    (TIME, "TIMESTAMP"),
)
AUCTION_COLUMNS = (
    ("id", "BIGINT"),
    ("itemName", "VARCHAR"),
    ("description", "VARCHAR"),
    ("initialBid", "BIGINT"),
    ("reserve", "BIGINT"),
    ("expires", "TIMESTAMP"),
    ("seller", "BIGINT"),
    ("category", "BIGINT"),
    ("extra", "VARCHAR"),
    (TIME, "TIMESTAMP"),
)
BID_COLUMNS = (
    *((name, "BIGINT") for name in ("auction", "bidder", "price")),
    *((name, "VARCHAR") for name in ("channel", "url", "extra")),
    (TIME, "TIMESTAMP"),
)

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


def make_persons(random: np.random.Generator, count: int, _: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of so many persons; their ids are 0."""
    names = [f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]
    texts = {
        "name": _choice(random, count, names),
        "emailAddress": _joined(_letters(random, count, 7), "@", _letters(random, count, 5), ".com"),
        "creditCard": pc.binary_join_element_wise(*(_digits(random, count) for _ in range(4)), " "),
        "city": _choice(random, count, CITIES),
        "state": _choice(random, count, STATES),
    }
    return {"id": np.zeros(count, np.int64), **texts, "extra": _extra(random, count, PERSON_BYTES, 2, texts)}


def make_auctions(random: np.random.Generator, count: int, _: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of so many auctions; ids are 0, sellers and `expires` lie somewhere in their range."""
    texts = {
        "itemName": letters(random, random.integers(3, 20, count)),
        "description": letters(random, random.integers(3, 100, count)),
    }
    initial = _prices(random, count)
    return {
        "id": np.zeros(count, np.int64),
        **texts,
        "initialBid": initial,
        "reserve": initial + _prices(random, count),
        "expires": random.random(count),
        "seller": _places(random, count, P_HOT_SELLER),
        "category": FIRST_CATEGORY + random.integers(0, CATEGORIES, count),
        "extra": _extra(random, count, AUCTION_BYTES, 7, texts),
    }


def make_bids(random: np.random.Generator, count: int, _: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of so many bids; auctions and bidders lie somewhere in their range."""
    channels = pa.array([*HOT_CHANNELS, *(f"channel-{number}" for number in range(OTHER_CHANNELS))])
    numbers = np.arange(OTHER_CHANNELS) * 7919 % OTHER_CHANNELS
    has_number = random.random(OTHER_CHANNELS) < P_URL_WITH_ID
    endings = [f"&channel_id={number}" if has else "" for number, has in zip(numbers, has_number, strict=True)]
    folders = [part for _ in range(3) for part in ("/", _letters(random, len(channels), 5))]
    page = pa.array([f"/item.htm?query=1{ending}" for ending in [*[""] * len(HOT_CHANNELS), *endings]])
    urls = _joined("https://www.nexmark.com", *folders, page)
    hot, other = random.integers(0, len(HOT_CHANNELS), count), random.integers(len(HOT_CHANNELS), len(channels), count)
    places = pa.array(np.where(random.random(count) < P_HOT_CHANNEL, hot, other))
    return {
        "auction": _places(random, count, P_HOT_AUCTION),
        "bidder": _places(random, count, P_HOT_BIDDER),
        "price": _prices(random, count),
        "channel": channels.take(places),
        "url": urls.take(places),
        "extra": _extra(random, count, BID_BYTES, 4, {}),
    }


def complete_persons(_: Mapping[str, pa.Array], times: Times, groups: Schedule) -> dict[str, Any]:
    """Return the ids of persons that come at these times."""
    return {"id": FIRST_ID + _numbers(times, groups, PERSONS)}


def complete_auctions(columns: Mapping[str, pa.Array], times: Times, groups: Schedule) -> dict[str, Any]:
    """Return the ids, sellers and ends of auctions that come at these times."""
    rates = np.array([segment.tuples_per_second for segment in groups.segments])[_segments(times, groups)]
    open_us = SECOND_US * IN_FLIGHT / (AUCTIONS * rates)
    lasts_us = 1000 + (2 * open_us * columns["expires"].to_numpy()).astype(np.int64)
    sellers = _ids(columns["seller"].to_numpy(), _newest(times, groups, PERSONS), ACTIVE_PERSONS - 1, 0)
    expires = (times + lasts_us).view("datetime64[us]")
    return {"id": FIRST_ID + _numbers(times, groups, AUCTIONS), "expires": expires, "seller": sellers}


def complete_bids(columns: Mapping[str, pa.Array], times: Times, groups: Schedule) -> dict[str, Any]:
    """Return the auctions and bidders of bids that come at these times."""
    auctions, persons = _newest(times, groups, AUCTIONS), _newest(times, groups, PERSONS)
    return {
        "auction": _ids(columns["auction"].to_numpy(), auctions, IN_FLIGHT, 0),
        "bidder": _ids(columns["bidder"].to_numpy(), persons, ACTIVE_PERSONS - 1, 1),
    }


def _segments(times: Times, groups: Schedule) -> Numbers:
    """Return the place of the segment that each time is in."""
    return np.searchsorted(np.array([segment.at_us for segment in groups.segments]), times, side="right") - 1


def _newest(times: Times, groups: Schedule, each: int, round_up_us: int = 0) -> Numbers:
    """Return the number, from 0 on, of the newest tuple at each time where every group has `each`."""
    places = _segments(times, groups)
    at_us = np.array([segment.at_us for segment in groups.segments])[places]
    before = np.array([each * segment.first_offset for segment in groups.segments])[places]
    rates = np.array([each * segment.tuples_per_second for segment in groups.segments])[places]
    return before + ((times - at_us) * rates + round_up_us) // SECOND_US


def _numbers(times: Times, groups: Schedule, each: int) -> Numbers:
    """Return the numbers, from 0 on, of the tuples that come at these times, which are rounded down."""
    return _newest(times, groups, each, SECOND_US - 1)


def _ids(places: Floats, newest: Numbers, back: int, hot: int) -> Numbers:
    """Return ids: the newest hot one, or what lies at a place between `back` before the newest and `LEAD` ahead."""
    first = np.maximum(newest - back, 0)
    ids = first + (places * (newest + LEAD + 1 - first)).astype(np.int64)
    return FIRST_ID + np.where(places == HOT, newest // HOT_OF * HOT_OF + hot, ids)


def _places(random: np.random.Generator, count: int, p_hot: float) -> Floats:
    return np.where(random.random(count) < p_hot, HOT, random.random(count))


def _prices(random: np.random.Generator, count: int) -> Numbers:
    return np.rint(100 * 10 ** random.uniform(0, 6, count)).astype(np.int64)


def _choice(random: np.random.Generator, count: int, values: Any) -> pa.Array:
    return pa.array(values).take(pa.array(random.integers(0, len(values), count)))


def _letters(random: np.random.Generator, count: int, length: int) -> pa.Array:
    return letters(random, np.full(count, length))


def _digits(random: np.random.Generator, count: int) -> pa.Array:
    """Return numbers of four digits."""
    return pc.utf8_slice_codeunits(pa.array(random.integers(10_000, 20_000, count)).cast(pa.string()), 1)


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _extra(random: np.random.Generator, count: int, size: int, numbers: int, texts: Mapping[str, pa.Array]) -> pa.Array:
    """Return letters that make tuples of so many numbers, and texts, some `size` bytes long, a fifth more or less."""
    rest = np.full(count, size - NUMBER_BYTES * numbers)
    for text in texts.values():
        rest -= pc.binary_length(text).to_numpy()
    return letters(random, random.integers(rest * 4 // 5, rest * 6 // 5 + 1))
