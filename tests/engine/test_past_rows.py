"""Which batches gave the rows that a replay of a query's rows reads."""

from __future__ import annotations

from pathlib import Path

from braid.engine.past_rows import PastBatch, has_past, past_of, read_past, remove_past, write_past
from braid.sources.core.derived import FIRST_ROW
from braid.sources.core.storage import Storage

STREAM = "q-1+q-2.q-9"


def test_past_rows_are_numbered_back_from_the_first_that_is_read_as_it_comes(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    assert past_of(storage, STREAM, {}) is None
    deployments = [[3, {"s-1": None}], [5, {"s-1": 7}]]
    parts = {
        "0": {"deployments": deployments, "batches": [[11, 0, 4], [12, 0, 1], [20, 1, 5]]},
        "1": {"deployments": [], "batches": []},
        "4": None,
    }
    write_past(storage, STREAM, parts)
    reached = {"0": FIRST_ROW + 7, "1": FIRST_ROW + 7, "4": FIRST_ROW + 7}
    assert past_of(storage, STREAM, reached) == {"0": FIRST_ROW - 10, "1": FIRST_ROW, "4": FIRST_ROW + 7}
    all_batches = [
        PastBatch(11, 3, {"s-1": None}, FIRST_ROW - 10),
        PastBatch(12, 3, {"s-1": None}, FIRST_ROW - 6),
        PastBatch(20, 5, {"s-1": 7}, FIRST_ROW - 5),
    ]
    assert list(read_past(storage, STREAM, 0, FIRST_ROW - 10, FIRST_ROW)) == all_batches
    assert list(read_past(storage, STREAM, 0, FIRST_ROW - 7, FIRST_ROW - 6)) == all_batches[:1]
    assert list(read_past(storage, STREAM, 0, FIRST_ROW - 6, FIRST_ROW - 4)) == all_batches[1:]
    assert list(read_past(storage, STREAM, 1, FIRST_ROW, FIRST_ROW)) == []
    remove_past(storage, {STREAM})
    assert has_past(storage, STREAM)
    remove_past(storage, {"q-1"})
    assert not has_past(storage, STREAM)
