"""Variances of values that are many times their spread are those of exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.kernels import double_double
from braid.operators.kernels.double_double import Pairs

Values = list[int] | list[float]


def as_pairs(values: Values) -> Pairs:
    if isinstance(values[0], int):
        return double_double.whole_pairs(np.array(values, dtype=np.int64))
    return double_double.pairs(np.array(values, dtype=np.float64))


def variance_of(values: Values, cells: npt.NDArray[np.int32] | None = None) -> float:
    """Add values up in cells, and the cells as windows do: as the difference of two running sums."""
    powers = as_pairs(values)
    at = np.zeros(len(values), dtype=np.int32) if cells is None else cells
    sums = []
    for numbers in (powers, *double_double.squares(powers)):
        totals = np.zeros(4, dtype=np.complex128)
        double_double.add_at(totals, at, numbers)
        running = double_double.add_pairs.accumulate(totals)
        sums.append(double_double.add_pairs(running[-1:], -np.zeros(1, dtype=np.complex128)))
    return float(double_double.variance(np.array([len(values)]), *sums)[0])


def exactly(values: Values) -> float:
    """Return the sample variance by fractions."""
    exact = [Fraction(value) for value in values]
    mean = sum(exact, Fraction(0)) / len(exact)
    return float(sum(((value - mean) ** 2 for value in exact), Fraction(0)) / (len(exact) - 1))


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([1767225600000001 + i for i in range(5)], id="microseconds since 1970"),
        pytest.param([1767225600000000123 + i for i in range(5)], id="nanoseconds since 1970"),
        pytest.param([-(2**63), -(2**63) + 1, -(2**63) + 5], id="the least whole numbers"),
        pytest.param([2**63 - 1, -(2**63), 0], id="the whole range"),
        pytest.param([2.0**53, 2.0**53 + 2, 2.0**53 + 4], id="the last steps of a double"),
        pytest.param([1e-9, 2e-9, 1e9, 3.0], id="of all sizes"),
        pytest.param([0.1] * 7, id="equal"),
        pytest.param([2**62 + 12345] * 9, id="equal whole numbers"),
    ],
)
def test_variances_are_exact(values: Values) -> None:
    assert variance_of(values) == pytest.approx(exactly(values), rel=1e-9, abs=0.0)


@given(
    st.integers(-(2**62), 2**62),
    st.lists(st.integers(-1000, 1000), min_size=2, max_size=50),
    st.integers(0, 2**32),
)
def test_whole_numbers_of_any_size_with_little_spread(middle: int, spread: list[int], seed: int) -> None:
    values = [middle + distance for distance in spread]
    cells = np.random.default_rng(seed).integers(0, 4, len(values)).astype(np.int32)
    assert variance_of(values, cells) == pytest.approx(exactly(values), rel=1e-9, abs=0.0)


@given(
    st.floats(1.0, 2.0, exclude_max=True),
    st.integers(-300, 300).map(lambda power: 2.0 ** (power // 2)),
    st.lists(st.integers(0, 1000), min_size=2, max_size=50),
)
def test_doubles_that_differ_in_their_last_digits(first: float, scale: float, steps: list[int]) -> None:
    values = [(1.0 + (first - 1.0) / 2 + step * 2.0**-52) * scale for step in steps]
    assert variance_of(values) == pytest.approx(exactly(values), rel=1e-9, abs=0.0)


def test_pairs_that_come_often() -> None:
    values = double_double.whole_pairs(np.array([2**62 + 3, -5]))
    products = double_double.times(values, np.array([3.0, 1e6]))
    assert [int(Fraction(v.real) + Fraction(v.imag)) for v in products] == [3 * (2**62 + 3), -5_000_000]


def test_what_is_not_finite_is_not_made_finite() -> None:
    assert not np.isfinite(variance_of([1e200, -1e200, 3.0]))
    assert np.isnan(variance_of([float("nan"), 1.0, 2.0]))
    assert np.isnan(variance_of([float("inf"), 1.0, 2.0]))
