"""Sums in double-double arithmetic: a pair of doubles, high and low, that together carry about 106 bits.

Variances are differences of large sums; in plain doubles nothing is left of them when the mean is large beside the
spread. A pair is a complex number here, high as its real and low as its imaginary part, so that one array holds it.
The algorithms are Dekker's and Knuth's (T. J. Dekker, *A floating-point technique for extending the available
precision*, 1971).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, vectorize

Pairs = npt.NDArray[np.complex128]
Doubles = npt.NDArray[np.float64]

_SPLITTER = float(2**27 + 1)
_ROUNDING = 2.0**-140
# with less than this left of the squares, double-double may have lost it
_DOUBTFUL = 2.0**-60
# what a double has no room for of a whole number
_LOW_BITS = 11
_LEAST = 2.0**-1060  # a few of the smallest steps there are, which squares of tiny values lose each


@njit(inline="always")
def sum_of_pairs(a: complex, b: complex) -> complex:
    """Add two pairs; to be called in compiled loops."""
    high = a.real + b.real
    rest = high - a.real
    low = (a.real - (high - rest)) + (b.real - rest) + a.imag + b.imag
    total = high + low
    return complex(total, low - (total - high))


@vectorize(["complex128(complex128, complex128)"], cache=True)  # type: ignore[no-untyped-call, untyped-decorator]
def add_pairs(a: Any, b: Any) -> Any:
    """Add pairs; a NumPy ufunc."""
    return sum_of_pairs(a, b)


@njit(cache=True, nogil=True)
def add_at(out: Pairs, at: npt.NDArray[np.int32], values: Pairs) -> None:
    """Add pairs to the entries at which they belong; -1 is nowhere."""
    for i in range(at.size):
        if at[i] >= 0:
            out[at[i]] = sum_of_pairs(out[at[i]], values[i])


def pairs(values: Doubles) -> Pairs:
    """Return doubles as pairs."""
    return values.astype(np.complex128)


def whole_pairs(values: npt.NDArray[np.int64]) -> Pairs:
    """Return whole numbers of 64 bits as pairs, which have all of their bits."""
    split = np.empty(len(values), dtype=np.complex128)
    split.real, split.imag = (values >> _LOW_BITS) << _LOW_BITS, values & ((1 << _LOW_BITS) - 1)
    return split


def squares(values: Pairs) -> tuple[Pairs, Pairs]:
    """Return the exact squares of pairs in two parts, what fits into a double and the rest, which are added up apart.

    So they are exact sums as long as values are of the same size, as they are where it matters: many times the spread.
    """
    high, rest = np.empty_like(values), np.empty_like(values)
    _squares(high, rest, values)
    return high, rest


@njit(cache=True, nogil=True)
def _squares(high: Pairs, rest: Pairs, values: Pairs) -> None:
    for i in range(values.size):
        value, low = values[i].real, values[i].imag
        square = _multiply(value, value)
        high[i] = complex(square.real, 0.0)
        rest[i] = complex(square.imag, 0.0)
        if low:
            rest[i] = sum_of_pairs(rest[i], sum_of_pairs(_multiply(2.0 * value, low), complex(low * low, 0.0)))


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def variance(count: npt.NDArray[np.int64], total: Pairs, high: Pairs, rest: Pairs) -> Doubles:
    """Return the sample variance (divided by count - 1) of values from their number, their sum and :func:`squares`'.

    With any m near the mean, the squared differences from the mean are
    ``squares - 2 m total + n m² - (total - n m)² / n``; what is large cancels in double-double, and where hardly
    anything would be left of it then, in more bits.
    """
    n = count.astype(np.float64)
    m = total.real / n
    square_sums = add_pairs(high, rest)
    around = add_pairs(square_sums, add_pairs(times(total, -2.0 * m), times(_product(m, m), n)))
    beside = add_pairs(total, _product(-m, n)).real
    differences = around.real - beside * beside / n
    doubtful = np.flatnonzero((n > 1) & (differences < _DOUBTFUL * square_sums.real))
    differences[doubtful] = _differences(n[doubtful], total[doubtful], high[doubtful], rest[doubtful])
    # what is left of equal values is the rounding of the last steps, and its root would look like a deviation
    rounding = np.maximum(_ROUNDING * square_sums.real, _LEAST * n)
    return np.where(differences <= rounding, 0.0, differences) / (n - 1.0)


def _differences(n: Doubles, total: Pairs, high: Pairs, rest: Pairs) -> Doubles:
    """Return the squared differences from the mean as `variance` does, from terms of which none is rounded."""
    m = total.real / n
    square = _product(m, m)
    products = [_product(-2.0 * m, total.real), _product(-2.0 * m, total.imag)]
    products += [_product(square.real, n), _product(square.imag, n)]
    beside = _accurate_sum([total, _product(-m, n)])
    return _accurate_sum([high, rest, *products]) - beside * beside / n


def _accurate_sum(terms: list[Pairs]) -> Doubles:
    """Return the sums of pairs as if they were added up with four times the bits of a double, then rounded.

    T. Ogita, S. M. Rump, S. Oishi, *Accurate sum and dot product*, 2005, algorithm 4.8 (SumK).
    """
    parts = [part.copy() for term in terms for part in (term.real, term.imag)]
    for _ in range(3):
        for i in range(1, len(parts)):
            a, b = parts[i], parts[i - 1]
            total = a + b
            moved = total - a
            parts[i - 1] = (a - (total - moved)) + (b - moved)
            parts[i] = total
    return np.asarray(sum(parts[:-1], np.zeros_like(parts[0])) + parts[-1])


@njit(inline="always")
def _multiply(a: float, b: float) -> complex:
    """Return the exact product of two doubles; where it is not finite, low is of no use."""
    high = a * b
    scaled_a, scaled_b = _SPLITTER * a, _SPLITTER * b
    upper_a, upper_b = scaled_a - (scaled_a - a), scaled_b - (scaled_b - b)
    lower_a, lower_b = a - upper_a, b - upper_b
    low = ((upper_a * upper_b - high) + upper_a * lower_b + lower_a * upper_b) + lower_a * lower_b
    return complex(high, low if math.isfinite(low) and math.isfinite(high) else 0.0)


@vectorize(["complex128(float64, float64)"], cache=True)  # type: ignore[no-untyped-call, untyped-decorator]
def _product(a: Any, b: Any) -> Any:
    """Return the exact products of doubles; a NumPy ufunc."""
    return _multiply(a, b)


@np.errstate(over="ignore", invalid="ignore")
def times(values: Pairs, factor: Doubles) -> Pairs:
    """Return pairs times doubles."""
    return np.asarray(add_pairs(_product(values.real, factor), pairs(values.imag * factor)))


def warm_up() -> None:
    """Load or compile these kernels for the types that they are used with."""
    pair, at = np.zeros(1, dtype=np.complex128), np.zeros(1, dtype=np.int32)
    add_at(pair.copy(), at, pair)
    squares(pair)
