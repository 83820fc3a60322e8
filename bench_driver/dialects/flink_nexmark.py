"""NEXMark's tables as Flink's own `datagen` makes them up, with the distributions of `queues/nexmark_datasets.py`.

Where it has a rate, `datagen` gives the tuples of a second at once and in no order. So their event times are spread
over the second before, the watermark is a second behind, and ids follow from event times: some come twice, others
never.
"""

from __future__ import annotations

import random
import string
from collections.abc import Mapping
from dataclasses import dataclass

from braid.bench_driver.dialects.common import text
from braid.bench_driver.queues.mixed_datasets import CHANNELS as HOT_CHANNELS
from braid.bench_driver.queues.nexmark_datasets import (
    ACTIVE_PERSONS,
    AUCTIONS,
    CATEGORIES,
    CITIES,
    FIRST_CATEGORY,
    FIRST_ID,
    FIRST_NAMES,
    HOT_OF,
    IN_FLIGHT,
    LAST_NAMES,
    LEAD,
    OTHER_CHANNELS,
    P_HOT_AUCTION,
    P_HOT_BIDDER,
    P_HOT_CHANNEL,
    P_HOT_SELLER,
    PERSONS,
    STATES,
)
from braid.bench_driver.workload import StreamSpec

SECOND_US = 1_000_000
LETTERS = "".join(random.Random(1).choices(string.ascii_lowercase, k=600))
STARTS = 100  # of a text, within the letters


@dataclass(frozen=True)
class _Table:
    """What `datagen` draws for each tuple (least, greatest), and what the columns are of that."""

    drawn: Mapping[str, tuple[str, float, float]]
    columns: Mapping[str, str]


def source_sql(stream: StreamSpec, rate: int, began: int) -> str:
    """Return the statement that declares a stream of a workload with this rate, whose ids grow from when it `began`.

    That is in seconds since 1970, two ago at least.
    """
    table = _TABLES[stream.dataset](stream.share.groups(rate), began)
    drawn = {"us": ("INT", 0, SECOND_US - 1), "letters_from": ("INT", 1, STARTS), **table.drawn}
    declared = [f"`{name}` {kind}" for name, (kind, _, _) in drawn.items()]
    declared += [f"`{name}` AS {sql}" for name, sql in {"dateTime": _time("0"), **table.columns}.items()]
    declared.append("WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '1' SECOND")
    options = {"connector": "datagen", "rows-per-second": str(stream.share.rate(rate))}
    for name, (_, least, greatest) in drawn.items():
        options |= {f"fields.{name}.min": str(least), f"fields.{name}.max": str(greatest)}
    option_list = ", ".join(f"{text(key)} = {text(value)}" for key, value in options.items())
    return f"CREATE TABLE `{stream.name}` ({', '.join(declared)}) WITH ({option_list})"


def _persons(groups: int, began: int) -> _Table:
    names = [f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]
    return _Table(
        {
            "name_place": ("INT", 0, len(names) - 1),
            "city_place": ("INT", 0, len(CITIES) - 1),
            "state_place": ("INT", 0, len(STATES) - 1),
            "card": ("INT", 1000, 9999),
        },
        {
            "id": f"{FIRST_ID} + {_newest(PERSONS * groups, began)}",
            "name": _one_of(names, "name_place"),
            "emailAddress": f"{_letters('7')} || '@' || {_letters('5')} || '.com'",
            "creditCard": "CAST(card AS STRING) || ' ' || CAST(11000 - card AS STRING) || ' 1234 5678'",
            "city": _one_of(CITIES, "city_place"),
            "state": _one_of(STATES, "state_place"),
            "extra": _letters("104 + MOD(us, 53)"),
        },
    )


def _auctions(groups: int, began: int) -> _Table:
    open_ms = 1000 * IN_FLIGHT / (AUCTIONS * groups)
    sellers = _newest(PERSONS * groups, began)
    return _Table(
        {
            "bid_power": ("DOUBLE", 0.0, 6.0),
            "reserve_power": ("DOUBLE", 0.0, 6.0),
            "open_share_ms": ("DOUBLE", 0.0, 2 * open_ms),
            "seller_place": _place(P_HOT_SELLER),
            "category": ("BIGINT", FIRST_CATEGORY, FIRST_CATEGORY + CATEGORIES - 1),
        },
        {
            "id": f"{FIRST_ID} + {_newest(AUCTIONS * groups, began)}",
            "itemName": _letters("3 + MOD(us, 17)"),
            "description": _letters("3 + MOD(us, 97)"),
            "initialBid": _price("bid_power"),
            "reserve": f"{_price('bid_power')} + {_price('reserve_power')}",
            "expires": _time("1 + CAST(open_share_ms AS BIGINT)"),
            "seller": _id(sellers, "seller_place", ACTIVE_PERSONS - 1, 0),
            "extra": _letters("305 + MOD(us, 154)"),
        },
    )


def _bids(groups: int, began: int) -> _Table:
    hot_channel = _one_of(HOT_CHANNELS, f"MOD(-channel_number, {len(HOT_CHANNELS)})")
    hot = round(OTHER_CHANNELS * P_HOT_CHANNEL / (1 - P_HOT_CHANNEL))
    folders = " || '/' || ".join(
        f"SUBSTRING({text(LETTERS)}, 1 + MOD(ABS(channel_number), {places}), 5)" for places in (97, 89, 83)
    )
    ending = f"'&channel_id=' || CAST(MOD(channel_number * 7919, {OTHER_CHANNELS}) AS STRING)"
    return _Table(
        {
            "auction_place": _place(P_HOT_AUCTION),
            "bidder_place": _place(P_HOT_BIDDER),
            "price_power": ("DOUBLE", 0.0, 6.0),
            "channel_number": ("INT", -hot, OTHER_CHANNELS - 1),
        },
        {
            "auction": _id(_newest(AUCTIONS * groups, began), "auction_place", IN_FLIGHT, 0),
            "bidder": _id(_newest(PERSONS * groups, began), "bidder_place", ACTIVE_PERSONS - 1, 1),
            "price": _price("price_power"),
            "channel": f"CASE WHEN channel_number < 0 THEN {hot_channel}"
            " ELSE 'channel-' || CAST(channel_number AS STRING) END",
            "url": f"'https://www.nexmark.com/' || {folders} || '/item.htm?query=1'"
            f" || CASE WHEN channel_number >= 0 AND MOD(channel_number, 10) < 9 THEN {ending} ELSE '' END",
            "extra": _letters("54 + MOD(us, 28)"),
        },
    )


_TABLES = {"nexmark-persons": _persons, "nexmark-auctions": _auctions, "nexmark-bids": _bids}
SOURCES = frozenset(_TABLES)
"""The datasets that there are tables of."""


def _time(later_ms: str) -> str:
    """Return a tuple's event time, or so many milliseconds later."""
    ms = f"1000 * (UNIX_TIMESTAMP() - 1) + us / 1000 + {later_ms}"
    return f"CAST(TO_TIMESTAMP_LTZ({ms}, 3) AS TIMESTAMP(3))"


def _newest(per_second: int, began: int) -> str:
    """Return the number of what is the newest at a tuple's event time."""
    return f"((UNIX_TIMESTAMP() - {began + 1}) * {per_second} + us * CAST({per_second} AS BIGINT) / {SECOND_US})"


def _place(p_hot: float) -> tuple[str, float, float]:
    """Return the draw of a place from 0 to 1, or with this probability of less than 0, for what is hot."""
    return "DOUBLE", -p_hot / (1 - p_hot), 1.0


def _id(newest: str, place: str, back: int, hot: int) -> str:
    first = f"GREATEST({newest} - {back}, 0)"
    other = f"{first} + CAST({place} * ({newest} + {LEAD + 1} - {first}) AS BIGINT)"
    return f"{FIRST_ID} + CASE WHEN {place} < 0 THEN {newest} / {HOT_OF} * {HOT_OF} + {hot} ELSE {other} END"


def _price(power: str) -> str:
    return f"CAST(100 * POWER(10, {power}) AS BIGINT)"


def _one_of(values: list[str] | tuple[str, ...], place: str) -> str:
    return f"SPLIT_INDEX({text(','.join(values))}, ',', {place})"


def _letters(length: str) -> str:
    return f"SUBSTRING({text(LETTERS)}, letters_from, {length})"
