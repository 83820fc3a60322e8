"""Hot-key routing: which tuples of a chunk at an input of joins go to which partitions, where keys are split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braid.operators.arrays import Places
from braid.operators.expressions import Expression
from braid.operators.placement import Placement
from braid.operators.predicates.query_set import Bools
from braid.operators.state.key_groups import hash_keys, key_groups
from braid.operators.state.keys import encode_keys
from braid.operators.tuples import Tuples
from braid.sources.core.columns import one_array


@dataclass(frozen=True)
class RoutedRows:
    """Some tuples of a chunk, ascending, or all; they have so many key ``groups``.

    What group g has goes to partition g + l for each l of ``partitions``.
    """

    rows: Places | None
    groups: int
    partitions: range

    @classmethod
    def of_all(cls, placement: Placement, partitions: int) -> RoutedRows:
        """Return all tuples, which go where their keys do."""
        return cls(None, 1, range(partitions)) if placement.is_everywhere else cls(None, partitions, range(1))


def routed_rows(
    tuples: Tuples,
    times: npt.NDArray[np.int64],
    span: tuple[int, int],
    keys: Sequence[Expression],
    columns: Sequence[str],
    placement: Placement,
    partitions: int,
) -> list[RoutedRows]:
    """Return where those tuples go whose event times lie in ``[span[0], span[1])`` (µs).

    Which partition a tuple is spread to depends on itself alone, on what it is spread by, else on its event time and
    ``columns``: so another attempt that gets the same tuples in other chunks does the same with each.
    """
    unsplit = RoutedRows.of_all(placement, partitions)
    in_span = (times >= span[0]) & (times < span[1])
    rows = None if in_span.all() else np.flatnonzero(in_span).astype(np.int32)
    if rows is not None and not len(rows):
        return []
    if not placement.split or placement.is_everywhere:
        return [RoutedRows(rows, unsplit.groups, unsplit.partitions)]
    is_split = _is_split(tuples, keys, placement)
    if not is_split.any():
        return [RoutedRows(rows, unsplit.groups, unsplit.partitions)]
    split = np.flatnonzero(in_span & is_split).astype(np.int32)
    not_split = np.flatnonzero(in_span & ~is_split).astype(np.int32)
    routed = [RoutedRows(not_split, unsplit.groups, unsplit.partitions)]
    if placement.is_spread:
        time_column = () if placement.by else (pa.array(times[split]),)
        values = [*time_column, *(tuples.columns[name].take(pa.array(split)) for name in placement.by or columns)]
        partition_of = key_groups(values, len(split), partitions, placement.salt)
        routed += [
            RoutedRows(split[partition_of == partition], 1, range(partition, partition + 1))
            for partition in range(partitions)
        ]
    else:
        routed.append(RoutedRows(split, 1, range(partitions)))
    return [each for each in routed if each.rows is not None and len(each.rows)]


def _is_split(tuples: Tuples, keys: Sequence[Expression], placement: Placement) -> Bools:
    """Return which tuples have a key that is split."""
    columns = [tuples.value(keys[number]) for number in placement.hashed or ()]
    coded = encode_keys(columns, tuples.length, 1, placement.salt)
    hashes = hash_keys([one_array(column) for column in coded.keys.columns], coded.count, placement.salt)
    is_hot = np.isin(hashes, np.array(sorted(placement.split), dtype=np.uint64))
    return is_hot[coded.codes]
