"""Sums in double-double arithmetic: a pair of doubles, high and low, that together carry about 106 bits.

Variances are differences of large sums; in plain doubles nothing is left of them when the mean is large beside the
spread. A pair is a complex number here, high as its real and low as its imaginary part, so that one array holds it.
The algorithms are Dekker's and Knuth's (T. J. Dekker, *A floating-point technique for extending the available
precision*, 1971).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, vectorize

Pairs = npt.NDArray[np.complex128]
Doubles = npt.NDArray[np.float64]

_SPLITTER = float(2**27 + 1)
_ROUNDING = 2.0**-98
_LEAST = 2.0**-1060  # a few of the smallest steps there are, which squares of tiny values lose each


@njit(inline="always")
def _sum(a: complex, b: complex) -> complex:
    high = a.real + b.real
    rest = high - a.real
    low = (a.real - (high - rest)) + (b.real - rest) + a.imag + b.imag
    total = high + low
    return complex(total, low - (total - high))


@vectorize(["complex128(complex128, complex128)"], cache=True)  # type: ignore[no-untyped-call, untyped-decorator]
def add_pairs(a: Any, b: Any) -> Any:
    """Add pairs; a NumPy ufunc."""
    return _sum(a, b)


@njit(cache=True, nogil=True)
def add_at(out: Pairs, at: npt.NDArray[np.int32], values: Pairs) -> None:
    """Add pairs to the entries at which they belong; -1 is nowhere."""
    for i in range(at.size):
        if at[i] >= 0:
            out[at[i]] = _sum(out[at[i]], values[i])


def pairs(values: Doubles) -> Pairs:
    """Return doubles as pairs."""
    return values.astype(np.complex128)


def _join(high: Doubles, low: Doubles) -> Pairs:
    """Return high and low as pairs; where high is not finite, low is of no use."""
    joined = np.empty(len(high), dtype=np.complex128)
    joined.real, joined.imag = high, np.where(np.isfinite(high) & np.isfinite(low), low, 0.0)
    return joined


@np.errstate(over="ignore", invalid="ignore")
def square(values: Doubles) -> Pairs:
    """Return the exact squares of doubles."""
    high = values * values
    scaled = _SPLITTER * values
    upper = scaled - (scaled - values)
    lower = values - upper
    return _join(high, ((upper * upper - high) + 2.0 * upper * lower) + lower * lower)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def variance(count: npt.NDArray[np.int64], total: Pairs, squares: Pairs) -> Doubles:
    """Return the sample variance (divided by count - 1) of values from their number, their sum and that of squares.

    With any m near the mean, the squared differences from the mean are
    ``squares - 2 m total + n m² - (total - n m)² / n``; what is large cancels in double-double.
    """
    n = count.astype(np.float64)
    m = total.real / n
    around = add_pairs(squares, add_pairs(_times(total, -2.0 * m), _times(square(m), n)))
    rest = add_pairs(total, _product(-m, n)).real
    differences = around.real - rest * rest / n
    # what is left of equal values is the rounding of pairs, and its root would look like a deviation
    rounding = np.maximum(_ROUNDING * squares.real, _LEAST * n)
    return np.where(differences <= rounding, 0.0, differences) / (n - 1.0)


def _product(a: Doubles, b: Doubles) -> Pairs:
    high = a * b
    parts = []
    for each in (a, b):
        scaled = _SPLITTER * each
        upper = scaled - (scaled - each)
        parts.append((upper, each - upper))
    (a1, a2), (b1, b2) = parts
    return _join(high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2)


def _times(values: Pairs, factor: Doubles) -> Pairs:
    return np.asarray(add_pairs(_product(values.real, factor), pairs(values.imag * factor)))
