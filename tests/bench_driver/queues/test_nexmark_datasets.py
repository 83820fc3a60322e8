"""Persons, auctions and bids have NEXMark's distributions, and ids that follow from when they come."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pytest

from braid.bench_driver.queues.datasets import find_dataset
from braid.bench_driver.queues.ring import Ring
from braid.bench_driver.queues.schedule import RatePart, Schedule, Share
from braid.bench_driver.queues.tuple_queue import TupleQueue

COUNT, RATE = 20_000, 50_000
AT, SECOND = 1_700_000_000_000_000, 1_000_000
SHARES = {"persons": Share(1, 50), "auctions": Share(3, 50), "bids": Share(46, 50)}

Columns = dict[str, Any]


def schedule(rate: int) -> Schedule:
    return Schedule().after(0, AT, [RatePart(None, rate)])


def batch(kind: str, first: int = 0) -> Columns:
    """Return the columns of tuples, numbers and times as arrays of numpy."""
    ring = Ring(find_dataset(f"nexmark-{kind}"), {}, 1, kind, COUNT)
    share, offset = SHARES[kind], first * ring.rows
    times = schedule(share.rate(RATE)).times(offset, offset + COUNT)
    made = ring.batch(offset, times, schedule(share.groups(RATE)))
    return {
        name: column.to_numpy() if column.type != "string" else column
        for name, column in zip(made.schema.names, made.columns, strict=True)
    }


def newest(columns: Columns, each: int) -> npt.NDArray[np.int64]:
    """Return the id of the newest of `each` in 50 at the time of every tuple."""
    elapsed = columns["dateTime"].astype(np.int64) - AT
    ids: npt.NDArray[np.int64] = 1000 + elapsed * (RATE // 50 * each) // SECOND
    return ids


@pytest.mark.parametrize(("kind", "turn"), [("persons", 0), ("persons", 3), ("auctions", 0), ("auctions", 3)])
def test_ids_grow_by_one_also_when_the_ring_begins_anew(kind: str, turn: int) -> None:
    assert batch(kind, turn)["id"].tolist() == list(range(1000 + turn * COUNT, 1000 + (turn + 1) * COUNT))


@pytest.mark.parametrize(("kind", "size"), [("persons", 200), ("auctions", 500)])
def test_tuples_have_their_size(kind: str, size: int) -> None:
    columns = batch(kind)
    sizes = sum(np.full(COUNT, 8) if isinstance(c, np.ndarray) else pc.binary_length(c) for c in columns.values())
    assert np.mean(sizes) == pytest.approx(size, rel=0.02)
    assert np.min(sizes) < 0.9 * size < 1.1 * size < np.max(sizes)


def test_most_auctions_are_by_the_newest_hot_seller_and_the_others_by_active_persons() -> None:
    auctions = batch("auctions", 3)
    persons = newest(auctions, 1)
    is_hot = auctions["seller"] == persons // 100 * 100
    assert is_hot.mean() == pytest.approx(3 / 4, abs=0.02)
    ahead = (auctions["seller"] - persons)[~is_hot]
    assert (ahead.min(), ahead.max()) == (-999, 10)
    assert ahead.mean() == pytest.approx(-495, abs=20)


def test_auctions_are_open_as_long_as_a_hundred_come() -> None:
    auctions = batch("auctions")
    open_seconds = (auctions["expires"] - auctions["dateTime"]).astype(np.int64) / SECOND
    assert open_seconds.mean() == pytest.approx(100 / (RATE * 3 / 50), rel=0.05)
    assert open_seconds.min() >= 0.001
    assert set(auctions["category"]) == {10, 11, 12, 13, 14}
    assert (auctions["reserve"] > auctions["initialBid"]).all()


def test_half_of_the_bids_are_for_the_newest_hot_auction_and_most_by_the_newest_hot_bidder() -> None:
    bids = batch("bids", 40)
    auctions, persons = newest(bids, 3), newest(bids, 1)
    is_hot, by_hot = bids["auction"] == auctions // 100 * 100, bids["bidder"] == persons // 100 * 100 + 1
    assert is_hot.mean() == pytest.approx(1 / 2, abs=0.02)
    assert by_hot.mean() == pytest.approx(3 / 4, abs=0.02)
    ahead, persons_ahead = (bids["auction"] - auctions)[~is_hot], (bids["bidder"] - persons)[~by_hot]
    assert (ahead.min(), ahead.max()) == (-100, 10)
    assert (persons_ahead.min(), persons_ahead.max()) == (-999, 10)


def test_first_bids_are_for_auctions_and_by_persons_that_there_are() -> None:
    bids = batch("bids")
    assert bids["auction"].min() == bids["bidder"].min() == 1000
    assert bids["auction"][:1000].max() < 1000 + 3 * 1000 / 46 + 20


def test_prices_spread_evenly_over_six_decades() -> None:
    decades = np.log10(batch("bids")["price"])
    assert np.histogram(decades, bins=6, range=(2, 8))[0] / COUNT == pytest.approx([1 / 6] * 6, abs=0.02)


def test_half_of_the_channels_are_hot_and_most_others_have_a_number_in_their_url() -> None:
    bids = batch("bids")
    is_other = pc.starts_with(bids["channel"], "channel-")
    has_number = pc.match_substring_regex(bids["url"], r"&channel_id=\d+$")
    assert pc.mean(is_other).as_py() == pytest.approx(1 / 2, abs=0.02)
    assert pc.mean(has_number.filter(is_other)).as_py() == pytest.approx(9 / 10, abs=0.03)
    assert not pc.any(has_number.filter(pc.invert(is_other))).as_py()
    assert set(bids["channel"].filter(pc.invert(is_other)).to_pylist()) == {"Google", "Apple", "Baidu", "Facebook"}
    urls = set(zip(bids["channel"].to_pylist(), bids["url"].to_pylist(), strict=True))
    assert len(urls) == len(set(bids["channel"].to_pylist())), "a channel has one url"


def test_streams_keep_step_where_some_drop_what_nobody_read() -> None:
    now_us = AT
    queues = {
        kind: TupleQueue(Ring(find_dataset(f"nexmark-{kind}"), {}, 1, kind, 1000), lambda: now_us, share)
        for kind, share in SHARES.items()
    }
    for queue in queues.values():
        queue.run(AT, [RatePart(None, RATE)])
    now_us += 2 * SECOND
    for _ in queues["persons"].read(0, queues["persons"].generated()):
        pass
    for _ in queues["bids"].read(0, 1000):
        pass
    now_us += SECOND
    for queue in queues.values():
        queue.run(now_us, [RatePart(None, RATE // 5)])
    now_us += SECOND
    ids = {}
    for kind, queue in queues.items():
        (last,) = queue.read(queue.generated() - 1, queue.generated())
        ids[kind] = last.to_pylist()[0]
    # three seconds at one rate, with the group that came as they ended, and a second at another
    groups = 3 * RATE // 50 + 1 + RATE // 5 // 50
    assert ids["persons"]["id"] == 1000 + groups
    assert ids["auctions"]["id"] == 1000 + 3 * groups
    assert abs(ids["bids"]["auction"] - ids["auctions"]["id"]) <= 100
