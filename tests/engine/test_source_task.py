"""What source tasks hand to operators: few large batches with the columns that somebody reads."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from braid.engine import source_task
from braid.engine.source_task import _gathered, even_share


def batches(lengths: list[int]) -> list[pa.RecordBatch]:
    bounds = np.cumsum([0, *lengths])
    columns = {"a": pa.array(range(bounds[-1])), "b": pa.array([f"text {i}" for i in range(bounds[-1])])}
    whole = pa.RecordBatch.from_pydict({**columns, "c": columns["a"]})
    return [whole.slice(low, length) for low, length in zip(bounds[:-1].tolist(), lengths, strict=True)]


@pytest.mark.parametrize(
    ("lengths", "joined"),
    [
        ([], []),
        ([0], []),
        ([0, 0], []),
        ([3], [3]),
        ([3, 0, 4], [7]),
        ([9, 1, 5, 6, 2], [10, 11, 2]),
        ([25, 1], [25, 1]),
    ],
)
def test_batches_are_joined_until_they_are_large(lengths: list[int], joined: list[int]) -> None:
    tables = list(_gathered(batches(lengths), ["b", "a"], 10))
    assert [table.num_rows for table in tables] == joined
    assert all(table.schema.names == ["b", "a"] for table in tables)
    rows = [row for table in tables for row in table.to_pylist()]
    assert rows == [{"b": f"text {i}", "a": i} for i in range(sum(lengths))]


def test_batches_are_joined_until_they_have_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_task, "BYTES_AT_ONCE", 10 * 8)
    assert [batch.num_rows for batch in _gathered(batches([4, 5, 6, 12, 1]), ["a"], 1000)] == [15, 12, 1]


@pytest.mark.parametrize(("whole", "share"), [(1, 1), (10, 10), (14, 14), (16, 8), (24, 12), (29, 10), (1_000_001, 11)])
def test_shares_are_even(whole: int, share: int) -> None:
    assert even_share(whole, 10) == share


def test_nothing_is_joined_where_nobody_reads() -> None:
    assert not [batch for batch in _gathered(batches([3, 4]), [], 10) if batch.num_columns]
