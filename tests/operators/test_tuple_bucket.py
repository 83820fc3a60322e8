"""Indexes of tuples: each wanted tuple in the index of its key group, as it was when it is read again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators import kernels
from braid.operators.state import tuple_bucket
from braid.operators.state.bucket_store import TUPLES, put_block, read_state
from braid.operators.state.keys import encode_keys
from braid.operators.state.tuple_bucket import TupleBucket, Wanted, as_distances, from_distances, index_tuples
from braid.operators.state.tuple_files import TIME, TupleFiles
from braid.operators.tuples import Tuples
from braid.sources.core.errors import CorruptData
from braid.sources.core.storage import Storage


@given(st.sets(st.integers(0, 2**31 - 1), max_size=50))
def test_rows_are_what_their_distances_say(rows: set[int]) -> None:
    ascending = np.array(sorted(rows), dtype=np.int32)
    first, distances = as_distances(ascending)
    assert from_distances(first, distances).tolist() == ascending.tolist()


@pytest.mark.parametrize("worth_taking", [0, 0.8, 2])
@pytest.mark.parametrize("groups", [1, 2, 5])
@pytest.mark.parametrize("is_small", [False, True])
def test_every_wanted_tuple_is_in_the_index_of_its_partition(
    is_small: bool, groups: int, worth_taking: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuple_bucket, "WORTH_TAKING", worth_taking)
    rng = np.random.default_rng(groups)
    length = 300
    columns = {name: pa.array(rng.integers(0, 20, length)) for name in ("a", "b", "c")}
    times = rng.integers(0, 10**9, length)
    tuples = Tuples(columns, length)
    requests = []
    for name in ("a", "b"):
        keys = encode_keys([columns[name]], length, groups, "salt")
        requests.append(Wanted(f"by {name}", rng.random(length) < 0.4, keys, ["c"], range(1)))
    everywhere = encode_keys([columns["c"]], length, 1, "salt")
    requests.append(Wanted("everywhere", rng.random(length) < 0.1, everywhere, [], range(groups)))
    indexed = index_tuples(tuples, times, requests)
    assert indexed is not None
    assert indexed.table.column_names == [TIME, "c"]
    is_wanted = requests[0].tuples | requests[1].tuples | requests[2].tuples
    assert indexed.table.num_rows == (is_wanted.sum() if worth_taking else length)

    storage = Storage(str(tmp_path))
    path, files = put_block(storage, TUPLES, 1, indexed.table), TupleFiles(partial(read_state, storage))
    read: dict[str, list[tuple[int, int, int, int]]] = {}
    shares: dict[str, dict[int, int]] = {}
    for partition, index in indexed.indexes:
        data = index.serialize_with(indexed.table) if is_small else index.serialize(path)
        bucket = TupleBucket.deserialize(data, files)
        assert bucket.file.path == ("" if is_small else path)
        keys = bucket.keys["key0"].to_numpy()[bucket.key]
        rows = bucket.take(np.arange(len(bucket.key)), ["c", "no such"])
        assert rows.column_names == ["c"]
        assert bucket.span == (bucket.times.min(), bucket.times.max() + 1)
        shares.setdefault(index.operator, {})[partition] = bucket.index.share
        entries = zip([partition] * len(keys), keys.tolist(), bucket.times.tolist(), rows["c"].to_pylist(), strict=True)
        read.setdefault(bucket.operator, []).extend(entries)
    for name in ("by a", "by b"):
        assert sum(shares[name].values()) == indexed.table.num_rows
    assert set(shares["everywhere"].values()) == {indexed.table.num_rows}
    for request, name in zip(requests, ("a", "b", "c"), strict=True):
        group_of_code = np.repeat(np.arange(len(request.keys.group_starts) - 1), np.diff(request.keys.group_starts))
        group = kernels.take(group_of_code, request.keys.codes)
        values = zip(columns[name].to_pylist(), times.tolist(), columns["c"].to_pylist(), strict=True)
        expected = [
            (int(group[row]) + partition, *value)
            for row, value in enumerate(values)
            for partition in request.partitions
            if request.tuples[row]
        ]
        assert sorted(read[request.operator]) == sorted(expected)


def test_nothing_is_written_that_nobody_wants() -> None:
    keys = encode_keys([pa.array([1, 2])], 2, 2, "salt")
    nobody = Wanted("join", np.zeros(2, dtype=np.bool_), keys, ["a"], range(1))
    assert index_tuples(Tuples({"a": pa.array([1, 2])}, 2), np.array([3, 4]), [nobody]) is None


def test_a_file_is_opened_once_for_all_that_hold_it(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    files = TupleFiles(partial(read_state, storage))
    path = put_block(storage, TUPLES, 1, pa.table({TIME: [7]}))
    file = files.at(path)
    assert file.times.tolist() == [7]
    assert files.at(path) is file
    storage.delete(path)
    assert files.at(path).times.tolist() == [7], "it was read"
    del file
    with pytest.raises(CorruptData, match="it is missing"):
        _ = files.at(path).times


def test_tuples_that_take_too_much_memory_are_read_again(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    reads: list[str] = []

    def read(path: str) -> pa.Buffer:
        reads.append(path)
        return read_state(storage, path)

    files = TupleFiles(read)
    paths = [put_block(storage, TUPLES, 1, pa.table({TIME: np.full(1000, number)})) for number in range(3)]
    held = [files.at(path) for path in paths]
    for number, file in enumerate(held):
        assert file.times.tolist() == [number] * 1000
    files.release_beyond(20_000)
    assert reads == paths
    for number, file in enumerate(held):
        assert file.times.tolist() == [number] * 1000
    assert reads == [*paths, paths[0]], "of three that take 8000 bytes and more each, two were kept: those read last"
