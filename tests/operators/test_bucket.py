"""Buckets: what is written is read back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.bucket import Bucket
from operators.bucket_store import INLINE_BYTES, get_payload, put_bucket
from sources.storage import Storage


def bucket_of(starts: list[int], dimensions: tuple[str, ...] = ("v",), words: int = 1, key: str = "a") -> Bucket:
    query_sets = np.arange(3 * words, dtype=np.uint64).reshape(3, words)
    partials = pa.table(
        {
            "slice_start": pa.array(starts, pa.int64()),
            "slice_end": pa.array([s + 5 for s in starts], pa.int64()),
            "cell": pa.array([abs(s) % 3 for s in starts], pa.int32()),
            "key0": pa.array([key] * len(starts), pa.string()),
            "count(*)": pa.array(range(len(starts)), pa.int64()),
        }
    )
    return Bucket("s-1:k", dimensions, 7, query_sets, partials)


@given(
    st.lists(st.integers(-(2**60), 2**60), min_size=1, max_size=20).map(sorted),
    st.lists(st.sampled_from(["v", "(like(s, 'a\nb'))", "", "é"]), max_size=3, unique=True).map(tuple),
    st.integers(1, 20),
)
def test_round_trip(starts: list[int], dimensions: tuple[str, ...], words: int) -> None:
    bucket = bucket_of(starts, dimensions, words)
    back = Bucket.deserialize(bucket.serialize())
    assert (back.operator, back.dimensions, back.epoch) == (bucket.operator, dimensions, 7)
    assert back.query_sets.tolist() == bucket.query_sets.tolist()
    assert back.partials.equals(bucket.partials)
    assert back.partials.schema.metadata is None
    assert back.slices.tolist() == [[s, s + 5] for s in sorted(set(starts))]


@pytest.mark.parametrize("large", [False, True])
def test_through_the_store(tmp_path: object, large: bool) -> None:
    storage = Storage(str(tmp_path))
    bucket = bucket_of([0, 5], key="x" * INLINE_BYTES if large else "x")
    path, data = put_bucket(storage, 12, bucket)
    assert bool(path) == large
    assert bool(data) != large
    assert Bucket.deserialize(get_payload(storage, path, data)).partials.equals(bucket.partials)
    assert storage.names("buckets") == ([path.removeprefix("buckets/")] if large else [])
