"""Persons, auctions and bids of NEXMark, with the distributions of its generators for Apache Beam and Flink.

These are taken from there: a person, three auctions and 46 bids in 50 events; ids that grow from 1000; half of the
bids for the newest hot auction, three quarters of the auctions by the newest hot seller, and as many bids by the newest
hot bidder, where one of a hundred is hot; other ids of those that are active, or a few ahead; prices whose logarithm is
uniform over six decades; auctions that are open, on average, for as long as a hundred new ones take; four hot channels,
and 10 000 others of which nine in ten have a number in their url.

Tucker et al., NEXMark: A Benchmark for Queries over Data Streams; https://github.com/nexmark/nexmark, its generators.
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

Event = tuple[str, dict[str, Any]]

PERSONS, AUCTIONS, BIDS = 1, 3, 46
EVENTS = PERSONS + AUCTIONS + BIDS
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
HOT_OF = 100
IN_FLIGHT, ACTIVE_PERSONS, LEAD = 100, 1000, 10
P_HOT_AUCTION, P_HOT_SELLER, P_HOT_BIDDER, P_HOT_CHANNEL, P_URL_WITH_ID = 1 / 2, 3 / 4, 3 / 4, 1 / 2, 9 / 10
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = ("Tucson", "Oakland", "San Diego", "Boise", "Salem", "Eugene", "Tacoma", "Spokane", "Kent", "Casper")
FIRST_NAMES = ("Ada", "Bela", "Cleo", "Dora", "Emil", "Fritz", "Greta", "Hugo", "Ines", "Jan", "Kaya")
LAST_NAMES = ("Ames", "Brandt", "Cole", "Diaz", "Engel", "Frost", "Gray", "Hill", "Ito")


@dataclass(frozen=True)
class Burst:
    """So many ``seconds`` of events from ``start`` on."""

    start: datetime
    seconds: int


def events(seed: int, per_second: int, bursts: Sequence[Burst]) -> Iterator[Event]:
    """Yield ``person``, ``auction`` or ``bid`` with a row for each event, in the order of their times.

    Times (``dateTime``, and ``expires`` of auctions) are naive UTC in whole milliseconds.
    """
    made = _Generator(random.Random(seed), per_second)
    number = 0
    for burst in bursts:
        for count in range(burst.seconds * per_second):
            yield made.event(number, burst.start + timedelta(milliseconds=1000 * count // per_second))
            number += 1


class _Generator:
    def __init__(self, draw: random.Random, per_second: int) -> None:
        self._draw = draw
        self._expiry_ms = 2 * 1000 * IN_FLIGHT * EVENTS // AUCTIONS // per_second
        self._urls = {name: self._url() for name in HOT_CHANNELS}

    def event(self, number: int, time: datetime) -> Event:
        """Return an event; ids follow from its number."""
        epoch, offset = divmod(number, EVENTS)
        person = epoch
        auction = epoch * AUCTIONS + min(offset - PERSONS, AUCTIONS - 1)
        if offset < PERSONS:
            return "person", self._person(person, time)
        if offset < PERSONS + AUCTIONS:
            return "auction", self._auction(auction, person, time)
        return "bid", self._bid(auction, person, time)

    def _person(self, person: int, time: datetime) -> dict[str, Any]:
        choice = self._draw.choice
        return self._with_extra(
            {
                "id": FIRST_ID + person,
                "name": f"{choice(FIRST_NAMES)} {choice(LAST_NAMES)}",
                "emailAddress": f"{self._letters(7)}@{self._letters(5)}.com",
                "creditCard": " ".join(f"{self._draw.randrange(10_000):04}" for _ in range(4)),
                "city": choice(CITIES),
                "state": choice(STATES),
                "dateTime": time,
            },
            PERSON_BYTES,
        )

    def _auction(self, auction: int, person: int, time: datetime) -> dict[str, Any]:
        is_hot = self._draw.random() < P_HOT_SELLER
        initial = self._price()
        return self._with_extra(
            {
                "id": FIRST_ID + auction,
                "itemName": self._letters(self._draw.randrange(3, 20)),
                "description": self._letters(self._draw.randrange(3, 100)),
                "initialBid": initial,
                "reserve": initial + self._price(),
                "dateTime": time,
                "expires": time + timedelta(milliseconds=1 + self._draw.randrange(self._expiry_ms)),
                "seller": FIRST_ID + (person // HOT_OF * HOT_OF if is_hot else self._active_person(person)),
                "category": FIRST_CATEGORY + self._draw.randrange(CATEGORIES),
            },
            AUCTION_BYTES,
        )

    def _bid(self, auction: int, person: int, time: datetime) -> dict[str, Any]:
        of_hot, by_hot = self._draw.random() < P_HOT_AUCTION, self._draw.random() < P_HOT_BIDDER
        channel = self._channel()
        row = {
            "auction": FIRST_ID + (auction // HOT_OF * HOT_OF if of_hot else self._open_auction(auction)),
            "bidder": FIRST_ID + (person // HOT_OF * HOT_OF + 1 if by_hot else self._active_person(person)),
            "price": self._price(),
            "dateTime": time,
        }
        return {**self._with_extra(row, BID_BYTES), "channel": channel, "url": self._urls[channel]}

    def _active_person(self, last: int) -> int:
        return self._draw.randrange(max(last + 1 - ACTIVE_PERSONS, 0), last + 1 + LEAD)

    def _open_auction(self, last: int) -> int:
        return self._draw.randrange(max(last - IN_FLIGHT, 0), last + 1 + LEAD)

    def _price(self) -> int:
        return round(100 * 10 ** self._draw.uniform(0, 6))

    def _channel(self) -> str:
        if self._draw.random() < P_HOT_CHANNEL:
            return self._draw.choice(HOT_CHANNELS)
        number = self._draw.randrange(CHANNELS)
        channel = f"channel-{number}"
        if channel not in self._urls:
            with_id = self._draw.random() < P_URL_WITH_ID
            self._urls[channel] = self._url() + (f"&channel_id={number * 7919 % CHANNELS}" if with_id else "")
        return channel

    def _url(self) -> str:
        folders = "/".join(self._letters(5) for _ in range(3))
        return f"https://www.nexmark.com/{folders}/item.htm?query=1"

    def _with_extra(self, row: dict[str, Any], size: int) -> dict[str, Any]:
        """Return a row with letters that make it some ``size`` bytes long, a fifth more or less."""
        rest = size - sum(len(value) if isinstance(value, str) else 8 for value in row.values())
        return {**row, "extra": self._letters(self._draw.randint(rest * 4 // 5, rest * 6 // 5))}

    def _letters(self, count: int) -> str:
        return "".join(self._draw.choices(string.ascii_lowercase, k=count))
