"""Buckets of a source task that wait for the others of its batch, to travel as one.

A full bucket is as large however few tuples it has, so those of all chunks of a batch are added up before they are
written: what is written, sent and added up by lanes then follows the cells and keys, not the tuples.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from operators.bucket import Bucket
from operators.merging import merge_buckets
from operators.predicates.cell_space import SpaceKey
from operators.predicates.cells import LineCells

# so much may wait
_MOST_BYTES = 1 << 26


class HeldBuckets:
    """Full buckets by what they can be added up with: operator, space and key group."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, str, SpaceKey], list[Bucket]] = {}
        self._bytes = 0

    def take(self, group: int, bucket: Bucket) -> Iterator[tuple[int, Bucket]]:
        """Yield what is to travel now that a bucket of a key group came: itself, unless it waits."""
        if not (bucket.is_full and isinstance(bucket.cells, LineCells)):
            yield group, bucket
            return
        self._held.setdefault((group, bucket.operator, bucket.space), []).append(bucket)
        self._bytes += bucket.nbytes
        if self._bytes > _MOST_BYTES:
            yield from self.release()

    def release(self) -> Iterator[tuple[int, Bucket]]:
        """Yield what has waited, alike ones added up."""
        held, self._held, self._bytes = self._held, {}, 0
        for (group, _, _), buckets in held.items():
            yield group, buckets[0] if len(buckets) == 1 else _added_up(buckets)


def _added_up(buckets: list[Bucket]) -> Bucket:
    """Return one bucket for several of one epoch, whose cells are the same."""
    cells = buckets[0].cells
    assert isinstance(cells, LineCells)
    return merge_buckets(buckets, [np.ones(len(bucket.slices), dtype=np.bool_) for bucket in buckets], cells)
