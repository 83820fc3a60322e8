"""Counts and sums that share a number are what they are apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.expressions import Column
from braid.operators.predicates.dimension import CellLookup
from braid.operators.query_parts import Measure
from braid.operators.state.addresses import Addresses
from braid.operators.state.components import COUNT_NAME, encode
from braid.operators.state.packed_sums import Packable, PackedSums
from braid.sources.core.schema import BIGINT, DOUBLE

SUM, LEAST = Measure("sum", Column("x", BIGINT)), Measure("min", Column("x", BIGINT))
CELLS, SLICES, KEYS = SHAPE = (3, 2, 4)
ENTRIES = CELLS * SLICES * KEYS


# 40 of them fit beside their number in 63 bits
NUMBERS = st.one_of([st.integers(-limit, limit) for limit in (5, 2**15, 2**31, 2**49)])


@dataclass(frozen=True)
class Added:
    """Tuples added up, and what counts and sums of each entry must be, shape (cells, slices, keys)."""

    packed: PackedSums
    counts: npt.NDArray[np.int64]
    sums: npt.NDArray[np.int64]


def add_up(numbers: list[int], seed: int, most: float | None, *, is_short: bool = False) -> Added:
    """Add numbers up at random entries, and where no query wants them; in 16 bits if they fit and ``is_short``."""
    rng = np.random.default_rng(seed)
    cell = rng.integers(-1, CELLS, len(numbers)).astype(np.int32)
    column = rng.integers(0, SLICES * KEYS, len(numbers)).astype(np.int32)
    packable = Packable.first_of({SUM: encode(SUM, pa.array(numbers, pa.int64()))}, len(numbers))
    assert packable is not None
    addresses = Addresses.of(CellLookup.of(cell, CELLS), column, SHAPE)
    short = (column.astype(np.uint16), packable.numbers.astype(np.int16)) if is_short and packable.is_short else None
    packed = packable.add_up(addresses, most, short).first(ENTRIES)
    counts, sums = np.zeros((2, *SHAPE), dtype=np.int64)
    some = cell >= 0
    places = cell[some], column[some] // KEYS, column[some] % KEYS
    np.add.at(counts, places, 1)
    np.add.at(sums, places, np.array(numbers, dtype=np.int64)[some])
    return Added(packed, counts, sums)


def check(added: Added) -> None:
    """See that counts and sums are right, of some keys and of some entries."""
    packed, counts, sums = added.packed, added.counts, added.sums
    assert ((packed.numbers > 0) == (counts > 0).ravel()).all()
    for first, last in ((0, KEYS), (1, 3)):
        for found in (packed.of_keys(SHAPE, first, last).beside({}), packed.of_keys(SHAPE, first, last).unpacked()):
            assert found[COUNT_NAME].tolist() == counts[:, :, first:last].transpose(1, 0, 2).ravel().tolist()
            assert found["sum(x)"].tolist() == sums[:, :, first:last].transpose(1, 0, 2).ravel().tolist()
    positions = np.flatnonzero(counts).astype(np.int32)
    found = packed.at(positions)
    assert found[COUNT_NAME].tolist() == counts.ravel()[positions].tolist()
    assert found["sum(x)"].tolist() == sums.ravel()[positions].tolist()


@given(
    numbers=st.lists(NUMBERS, max_size=40),
    seed=st.integers(0, 2**32),
    most=st.sampled_from([None, 0.0, 3.0, 40.0]),
    is_short=st.booleans(),
)
def test_taken_apart_they_are_counts_and_sums(
    numbers: list[int], seed: int, most: float | None, is_short: bool
) -> None:
    check(add_up(numbers, seed, most, is_short=is_short))


@pytest.mark.parametrize(
    ("numbers", "bits"),
    [
        pytest.param([1000, 0, 7] * 20, 32, id="few"),
        pytest.param([-1000, 1000] * 50, 32, id="negative"),
        pytest.param([2**62, 2**62 + 5] * 9, 32, id="large but close"),
        pytest.param([0, 2**31], 64, id="far apart"),
        pytest.param([1000, 0] * 200_000, 64, id="more tuples an entry than was thought"),
        pytest.param([0, 2**20] * 2_000, 64, id="larger sums than was thought"),
    ],
)
def test_32_bits_are_used_where_that_is_enough(numbers: list[int], bits: int) -> None:
    added = add_up(numbers, 0, 3.0)
    assert added.packed.numbers.itemsize * 8 == bits
    check(added)


@given(
    counts=st.lists(st.integers(0, 2**5), min_size=1, max_size=6),
    sums=st.lists(st.integers(0, 2**7), min_size=6, max_size=6),
    least=st.integers(-(2**63), 2**63 - 1),
)
def test_what_had_no_room_is_noticed(counts: list[int], sums: list[int], least: int) -> None:
    """Entries of 2 bits for the sum and 30 for the count, and of 28 and 4."""
    total = (sum(sums[: len(counts)]) + sum(counts) * least + 2**63) % 2**64 - 2**63
    for bits in (2, 28):
        kept = [(count * 2**bits + sum_) % 2**32 for count, sum_ in zip(counts, sums, strict=False)]
        packed = PackedSums("sum(x)", np.array(kept, dtype=np.uint32), bits, least)
        right = [(number >> bits, number % 2**bits) for number in kept] == list(zip(counts, sums, strict=False))
        assert packed.are_of(sum(counts), total) == right


@pytest.mark.parametrize("greatest", [2**61, -(2**63)])
def test_sums_that_are_too_large_are_not_packed(greatest: int) -> None:
    assert Packable.first_of({SUM: encode(SUM, pa.array([1, greatest], pa.int64()))}, 2) is None


def test_only_sums_of_whole_numbers_are_packed() -> None:
    doubles = Measure("sum", Column("y", DOUBLE))
    encoded = {
        LEAST: encode(LEAST, pa.array([1, 2], pa.int64())),
        doubles: encode(doubles, pa.array([1.0, 2.0])),
        SUM: encode(SUM, pa.array([1, None], pa.int64())),
    }
    packable = Packable.first_of(encoded, 2)
    assert packable is not None
    assert (packable.name, packable.numbers.tolist()) == ("sum(x)", [1, 0])
    del encoded[SUM]
    assert Packable.first_of(encoded, 2) is None
