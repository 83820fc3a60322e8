"""Which tuples of a chunk go to which partitions where keys are split."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from braid.operators.event_times import EARLIEST, LATEST
from braid.operators.expressions import Column
from braid.operators.joins.hot_keys import routed_rows
from braid.operators.joins.inputs import SALT, Placement
from braid.operators.joins.key_splits import NOT_SPLIT, KeySplit, begin, unsplit
from braid.operators.state.key_groups import hash_keys, key_groups
from braid.operators.tuples import Tuples
from braid.sources.core.schema import BIGINT

PARTITIONS = 3
EVER = (EARLIEST, LATEST)
HOT = 5
SPLIT = frozenset(hash_keys([pa.array([HOT])], 1, SALT).tolist())


def partitions_of(
    times: list[int], keys: list[int | None], placement: Placement, span: tuple[int, int] = EVER
) -> dict[int, list[int]]:
    """Return the partitions of each tuple that goes anywhere, by its time."""
    tuples = Tuples({"k": pa.array(keys, pa.int64()), "v": pa.array(np.array(times) % 7)}, len(keys))
    partitions_of_time: dict[int, list[int]] = {}
    key = [Column("k", BIGINT)]
    for routed in routed_rows(tuples, np.array(times), span, key, ("k", "v"), placement, PARTITIONS):
        rows = np.arange(len(keys)) if routed.rows is None else routed.rows
        column = tuples.columns["k"].take(pa.array(rows))
        group = key_groups([column], len(rows), routed.groups, placement.salt)
        for row, group_number in zip(rows.tolist(), group.tolist(), strict=True):
            partitions_of_time.setdefault(times[row], []).extend(
                group_number + partition for partition in routed.partitions
            )
    return partitions_of_time


def chunks_of(count: int, sizes: tuple[int, ...]) -> Iterator[slice]:
    start = 0
    for size in itertools.cycle(sizes):
        if start >= count:
            return
        yield slice(start, min(start + size, count))
        start += size


TIMES = list(range(1000))
KEYS = [None if n % 11 == 0 else HOT if n % 3 else n % 20 for n in TIMES]
SPREAD = Placement(SALT, (0,), SPLIT, is_spread=True)
BROADCAST = Placement(SALT, (0,), SPLIT)
AS_EVER = Placement(SALT, (0,))
BY_COLUMN = Placement(SALT, (0,), SPLIT, is_spread=True, by=("v",))


def test_tuples_with_a_split_key_go_to_one_partition_each_or_to_all() -> None:
    spread, broadcast, before = (partitions_of(TIMES, KEYS, placement) for placement in (SPREAD, BROADCAST, AS_EVER))
    hot = [time for time, key in zip(TIMES, KEYS, strict=True) if key == HOT]
    assert all(len(spread[time]) == 1 for time in TIMES)
    counts = np.bincount([spread[time][0] for time in hot])
    assert counts.min() > 0.8 * len(hot) / PARTITIONS
    assert all(sorted(broadcast[time]) == list(range(PARTITIONS)) for time in hot)
    not_hot = set(TIMES) - set(hot)
    assert all(spread[time] == broadcast[time] == before[time] for time in not_hot)


def test_tuples_with_a_split_key_that_are_alike_in_a_column_meet_in_a_partition() -> None:
    spread, before = partitions_of(TIMES, KEYS, BY_COLUMN), partitions_of(TIMES, KEYS, AS_EVER)
    partitions: dict[int, set[int]] = {}
    for time, key in zip(TIMES, KEYS, strict=True):
        if key == HOT:
            partitions.setdefault(time % 7, set()).update(spread[time])
        else:
            assert spread[time] == before[time]
    assert all(len(partitions_of_value) == 1 for partitions_of_value in partitions.values())
    assert set().union(*partitions.values()) == set(range(PARTITIONS))
    assert all(len(partitions_of_tuple) == 1 for partitions_of_tuple in spread.values())


@pytest.mark.parametrize("placement", [SPREAD, BY_COLUMN])
@pytest.mark.parametrize("sizes", [(1,), (7, 13), (400, 3)])
def test_where_a_tuple_goes_does_not_depend_on_its_chunk(sizes: tuple[int, ...], placement: Placement) -> None:
    at_once = partitions_of(TIMES, KEYS, placement)
    pieces: dict[int, list[int]] = {}
    for chunk in chunks_of(len(TIMES), sizes):
        pieces |= partitions_of(TIMES[chunk], KEYS[chunk], placement)
    assert pieces == at_once


@pytest.mark.parametrize("placement", [SPREAD, BROADCAST, AS_EVER, BY_COLUMN, Placement(SALT, None)])
def test_tuples_that_no_window_reads_go_nowhere(placement: Placement) -> None:
    in_span = partitions_of(TIMES, KEYS, placement, (100, 300))
    assert sorted(in_span) == list(range(100, 300))
    everywhere = partitions_of(TIMES, KEYS, placement)
    assert {time: sorted(partitions) for time, partitions in in_span.items()} == {
        time: sorted(everywhere[time]) for time in range(100, 300)
    }
    assert partitions_of(TIMES, KEYS, placement, (2000, 3000)) == {}


def test_splits_follow_each_other_and_settle() -> None:
    given = {"number": 1, "hashes": [3, 4], "spread": 1, "by": ["v"]}
    first = begin((), given, [None, 70, 50])
    assert first == (NOT_SPLIT, KeySplit(1, frozenset([3, 4]), 1, 70, ("v",)))
    assert KeySplit.from_json(first[1].to_json()) == first[1]
    assert KeySplit.from_json({"number": 1, "hashes": [3], "spread": 1, "since": 7}).by == (), "an older record"
    settled = begin(first, given, [90, 90])
    assert settled == (first[1],)
    ended = begin(settled, {"number": 0, "hashes": [], "spread": 0}, [100, 120])
    assert ended == (first[1], KeySplit(0, since=120))
    assert begin(ended, {"number": 0, "hashes": [], "spread": 0}, [200]) == ()
    assert begin((), given, [None, None])[1].since == EARLIEST


def test_only_the_mark_of_a_split_is_taken_off_a_name() -> None:
    name = "input:s-1:('a split 1' || s)"
    assert unsplit(KeySplit(12).name_of(name)) == unsplit(name) == name
