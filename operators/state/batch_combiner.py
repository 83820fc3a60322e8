"""Buckets of a source task that wait for the others of its batch, to travel as one.

A full bucket is as large however few tuples it has, so those of all chunks of a batch are added up before they are
written: what is written, sent and added up by partitions then follows the cells and keys, not the tuples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from braid.operators.predicates.cells import LineCells
from braid.operators.predicates.space_key import SpaceKey
from braid.operators.state.bucket import Bucket
from braid.operators.state.merging import merge_buckets
from braid.operators.state.packed_sums import WithPacked, add_blocks, packed_alike
from braid.operators.state.query_runs import Partials

# buckets of so many bytes may wait
_MAX_BYTES = 1 << 27


class BatchCombiner:
    """Full buckets by what they can be added up with: operator, space and key group."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, str, SpaceKey], list[Bucket]] = {}
        self._bytes = 0

    def take(self, group: int, bucket: Partials) -> Iterator[tuple[int, Partials]]:
        """Yield the buckets to send on now that one of a key group came: this one, unless it waits."""
        if not (isinstance(bucket, Bucket) and bucket.is_full and isinstance(bucket.cells, LineCells)):
            yield group, bucket
            return
        self._waiting.setdefault((group, bucket.operator, bucket.space), []).append(bucket)
        self._bytes += bucket.nbytes
        if self._bytes > _MAX_BYTES:
            yield from self.release()

    def release(self) -> Iterator[tuple[int, Bucket]]:
        """Yield the buckets that have waited, those of the same kind added up."""
        waiting, self._waiting, self._bytes = self._waiting, {}, 0
        for (group, _, _), buckets in waiting.items():
            yield group, buckets[0] if len(buckets) == 1 else _added_up(buckets)


def _added_up(buckets: list[Bucket]) -> Bucket:
    """Return one bucket for several of one epoch, whose cells are the same."""
    packed = _packed_added_up(buckets)
    if packed is not None:
        return packed
    cells = buckets[0].cells
    assert isinstance(cells, LineCells)
    return merge_buckets(buckets, [np.ones(len(bucket.slices), dtype=np.bool_) for bucket in buckets], cells)


def _packed_added_up(buckets: list[Bucket]) -> Bucket | None:
    """Return the same with sums left packed; None where they are packed differently, or do not fit."""
    first = buckets[0]
    components = [bucket.components for bucket in buckets if bucket.keys.equals(first.keys)]
    sums = packed_alike(
        [numbers.packed for numbers in components if isinstance(numbers, WithPacked) and not numbers.others]
    )
    if len(sums) < len(buckets):
        return None
    slices, places = np.unique(np.concatenate([bucket.slices for bucket in buckets]), axis=0, return_inverse=True)
    latest = np.full(len(slices), np.iinfo(np.int64).min)
    np.maximum.at(latest, places, np.concatenate([bucket.latest for bucket in buckets]))
    size = first.cells.count * first.keys.num_rows
    total = add_blocks(sums, places, size)
    if total is None:
        return None
    starts = np.arange(len(slices) + 1, dtype=np.int64) * size
    return replace(first, slices=slices, starts=starts, latest=latest, components=WithPacked(total, {}))
