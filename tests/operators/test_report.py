"""What processes tell of their work: each second once, all of it, and samples that read as they were drawn."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from braid.operators.report import (
    REPORT_EVERY_US,
    SAMPLE_TUPLES,
    ChunkWork,
    Work,
    draw_sample,
    is_report_due,
    merged,
    read_sample,
)


@pytest.mark.parametrize(("start", "end", "due"), [(0, 1_700_000, True), (1_700_000, 1_999_999, False), (7, 7, False)])
def test_the_first_batch_of_a_second_tells(start: int, end: int, due: bool) -> None:
    assert REPORT_EVERY_US == 1_000_000
    assert is_report_due(start, end) == due


def test_work_is_told_once_and_added_up() -> None:
    one, other = Work(), Work()
    for work, operator in ((one, "a"), (one, "a"), (one, "b"), (other, "a")):
        with work.timed(operator):
            pass
        work.busy_us[operator] += 10
    one.saw("a", ChunkWork(100, 2, 5))
    one.saw("a", ChunkWork(90, 3, 6))
    other.saw("a", ChunkWork(100, 2, 7))
    with pytest.raises(ZeroDivisionError), one.timed("c"):
        1 / 0  # noqa: B018
    reports = [one.tell(), other.tell()]
    assert set(reports[0]["busy_us"]) == {"a", "b", "c"}
    assert reports[0]["chunks"] == {"a": [100, 2, 5]}
    assert one.tell() == {"busy_us": {}, "chunks": {}}
    together = merged(reports)
    assert together["chunks"] == {"a": [100, 2, 7]}
    assert together["busy_us"]["a"] == sum(each["busy_us"]["a"] for each in reports) >= 30


def test_a_sample_has_the_columns_asked_for_that_there_are() -> None:
    values = {
        "k": [1, None, 3],
        "s": ["é", None, ""],
        "d": [Decimal("1.25"), None, Decimal("0.00")],
        "other": [1, 2, 3],
    }
    tuples = pa.RecordBatch.from_pydict(values)
    sample = read_sample(draw_sample(tuples, {"s", "k", "d", "gone"}, 1))
    assert sample.equals(tuples.select(["d", "k", "s"]))


def test_a_sample_of_many_tuples_is_some_of_them_the_same_for_the_same_seed() -> None:
    tuples = pa.RecordBatch.from_pydict({"k": range(10_000)})
    sample = read_sample(draw_sample(tuples, ["k"], 3)).column(0).to_pylist()
    assert len(set(sample)) == SAMPLE_TUPLES
    assert sample == read_sample(draw_sample(tuples, ["k"], 3)).column(0).to_pylist()
    assert max(sample) > 5000 > min(sample)


def test_a_sample_is_the_same_however_many_chunks_tuples_come_in() -> None:
    whole = pa.table({"k": range(10_000), "s": list(map(str, range(10_000)))})
    chunked = pa.concat_tables(whole.slice(first, 70) for first in range(0, 10_000, 70))
    assert draw_sample(chunked, ["k", "s"], 3) == draw_sample(whole, ["k", "s"], 3)
