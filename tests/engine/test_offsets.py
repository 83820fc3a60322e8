"""Offsets: what a batch reads, how tasks share it, and watermarks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.engine.planning.offsets import Offset, Span, advance_watermark
from braid.sources.core.errors import CorruptData

positions = st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.sampled_from("01"), st.integers(0, 50)))
clocks = st.dictionaries(st.sampled_from("abc"), st.one_of(st.none(), st.integers(-(10**15), 10**15)))


@given(positions, clocks, st.integers(0, 9))
def test_json_round_trip(streams: dict[str, dict[str, int]], times: dict[str, int | None], epoch: int) -> None:
    recent = {"a": [{"us": [1], "tuples": [2]}]}
    offset = Offset(epoch + 1, epoch, streams, streams, times, times, 7, ("a", "c"), recent)
    assert Offset.from_json(offset.to_json()) == offset


def test_an_offset_that_is_not_what_was_written_is_refused() -> None:
    value = Offset(2, 1, {"a": {"0": 84}}, {"a": {"0": 80}}, {"a": 7}, {"a": 5}, firing_budget_us=0.1).to_json()
    assert Offset.from_json(json.loads(json.dumps(value, sort_keys=True))).streams == {"a": {"0": 84}}
    unknown = {name: of_name for name, of_name in value.items() if name != "crc"} | {"brc": value["crc"]}
    for other in (value | {"streams": {"a": {"0": 94}}}, value | {"crc": 1}, value | {"new": 1}, unknown):
        with pytest.raises(CorruptData, match="checkpoint/offsets"):
            Offset.from_json(other)


@given(positions, positions)
def test_a_batch_reads_what_lies_between(before: dict[str, dict[str, int]], after: dict[str, dict[str, int]]) -> None:
    begins = {s: {p: before.get(s, {}).get(p, 0) for p in partitions} for s, partitions in after.items()}
    spans = Offset(2, 0, after, begins).spans
    read = {(s.stream, s.partition, n) for s in spans for n in range(s.start, s.end)}
    assert read == {
        (stream, partition, n)
        for stream, partitions in after.items()
        for partition, end in partitions.items()
        for n in range(before.get(stream, {}).get(partition, 0), end)
    }
    assert all(s.end > s.start for s in spans)


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(1, 9))
def test_tasks_share_a_span_without_gap_or_overlap(start: int, length: int, tasks: int) -> None:
    span = Span("a", "0", start, start + length)
    shares = [span.share(task, tasks) for task in range(tasks)]
    assert [n for share in shares for n in range(share.start, share.end)] == list(range(start, start + length))
    assert max(s.end - s.start for s in shares) - min(s.end - s.start for s in shares) <= 1


@given(st.lists(st.one_of(st.none(), st.integers(-100, 100))), st.integers(0, 50))
def test_the_watermark_is_the_greatest_clock_minus_lateness_and_never_falls(
    clocks: list[int | None], lateness: int
) -> None:
    watermark = None
    clocks_so_far: list[int] = []
    for clock in clocks:
        before = watermark
        watermark = advance_watermark(watermark, clock, lateness)
        clocks_so_far += [] if clock is None else [clock]
        assert watermark == (max(clocks_so_far) - lateness if clocks_so_far else None)
        assert before is None or (watermark is not None and watermark >= before)
