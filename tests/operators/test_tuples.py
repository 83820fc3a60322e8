"""Tuples: columns in the chunks that they came in, joined only for those who need them so."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from braid.operators.expressions import Column
from braid.operators.tuples import Tuples
from braid.sources.core.schema import BIGINT, INT


@pytest.mark.parametrize(("length", "pieces"), [(8192, 2), (100, 1)])
def test_columns_of_whole_numbers_stay_in_their_chunks_unless_these_are_short(length: int, pieces: int) -> None:
    chunk = pa.record_batch({"k": pa.array(np.arange(length, dtype=np.int32))})
    tuples = Tuples.of(pa.Table.from_batches([chunk, chunk]))
    found = tuples.pieces(Column("k", INT))
    assert isinstance(found, pa.ChunkedArray)
    assert found.num_chunks == pieces
    assert found.to_pylist() == [*range(length), *range(length)]
    assert len(tuples.value(Column("k", INT))) == 2 * length
    assert tuples.pieces(Column("k", INT)).num_chunks == 1, "joined by now"


def test_a_column_of_another_type_or_none_is_evaluated() -> None:
    tuples = Tuples.of(pa.table({"k": pa.array([1, 2], pa.int32())}))
    assert tuples.pieces(Column("k", BIGINT)).to_pylist() == [1, 2]
    assert "k" in tuples.columns
    assert "v" not in tuples.columns
    assert tuples.pieces(Column("v", INT)).null_count == 2
    assert tuples.failures
