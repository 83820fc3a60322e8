"""Truth sets: on which values of one column a predicate is true.

A column's values are ordered, so a predicate that compares it with constants is true on some runs of values. The
runs change at *boundaries*: `x > 5` over whole numbers at 6, over doubles at the next double after 5, over strings at
the next string. Boundaries of all queries together cut the column's domain into cells, and a predicate is true or
false on whole cells.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]

MIN_INTEGER, GREATEST_INTEGER = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class TruthSet:
    """``truths[i]`` holds for values v with ``boundaries[i - 1] <= v < boundaries[i]``; ``null`` for NULL.

    Boundaries ascend; neighbouring truths differ.
    """

    boundaries: tuple[Any, ...]
    truths: tuple[bool, ...]
    null: bool = False

    def __post_init__(self) -> None:
        if len(self.truths) != len(self.boundaries) + 1:
            raise ValueError(f"{len(self.boundaries)} boundaries part one truth more, got {len(self.truths)}")

    @classmethod
    def where(cls, operator: str, constant: Any) -> TruthSet:
        """Return the values that compare in this way with a constant of the column's domain; NULL does not."""
        if operator in ("<>", "=", ">", "<="):
            after = successor(constant)
        match operator:
            case "<":
                return cls._run(None, constant)
            case "<=":
                return cls._run(None, after)
            case ">":
                return cls._run(after, None) if after is not None else cls((), (False,))
            case ">=":
                return cls._run(constant, None)
            case "=":
                return cls._run(constant, after)
        return cls._run(constant, after).complement()

    @classmethod
    def of_values(cls, values: Iterable[Any]) -> TruthSet:
        """Return some values of the column's domain."""
        boundaries: list[Any] = []
        for value in sorted(set(values)):
            if boundaries and boundaries[-1] == value:  # the value before is its neighbour
                boundaries.pop()
            else:
                boundaries.append(value)
            boundaries.append(successor(value))
        starts_inside = bool(boundaries) and boundaries[0] == MIN_INTEGER
        boundaries = boundaries[starts_inside : -1 if boundaries and boundaries[-1] is None else None]
        return cls(tuple(boundaries), tuple(starts_inside ^ (n % 2 == 1) for n in range(len(boundaries) + 1)))

    @classmethod
    def _run(cls, low: Any, high: Any) -> TruthSet:
        """Return ``low <= v < high``; None stands for no bound."""
        if high == MIN_INTEGER:
            return cls((), (False,))
        low = None if low == MIN_INTEGER else low  # nothing is below
        boundaries = tuple(bound for bound in (low, high) if bound is not None)
        truths = [True] if low is None else [False, True]
        return cls(boundaries, tuple(truths if high is None else [*truths, False]))

    def complement(self) -> TruthSet:
        """Return the values at which this is not true; NULL stays as it is."""
        return TruthSet(self.boundaries, tuple(not truth for truth in self.truths), self.null)

    def at(self, value: Any) -> bool:
        """Return whether it is true at a value, None for NULL."""
        return self.null if value is None else self.truths[bisect.bisect_right(self.boundaries, value)]

    def runs_over(self, boundaries: npt.NDArray[Any] | Sequence[Any]) -> list[tuple[int, int]]:
        """Return the runs of cells ``[first, last)`` at which it is true; ``boundaries`` cut the cells.

        All boundaries of this set must be among them. NULL is the cell after the last.
        """
        cuts = [0, *(bisect.bisect_left(boundaries, b) + 1 for b in self.boundaries), len(boundaries) + 1]
        runs = [(cuts[i], cuts[i + 1]) for i, truth in enumerate(self.truths) if truth]
        if self.null:
            null = len(boundaries) + 1
            if runs and runs[-1][1] == null:
                runs[-1] = (runs[-1][0], null + 1)
            else:
                runs.append((null, null + 1))
        return runs

    def mask_over(self, boundaries: npt.NDArray[Any] | Sequence[Any]) -> Bools:
        """Return at which cells it is true, shape (cells,): one more than boundaries, and one for NULL."""
        mask = np.zeros(len(boundaries) + 2, dtype=np.bool_)
        for first, last in self.runs_over(boundaries):
            mask[first:last] = True
        return mask


EVERYTHING = TruthSet((), (True,))
NOTHING = TruthSet((), (False,))
NULL_ONLY = TruthSet((), (False,), True)


def all_of(parts: Sequence[TruthSet]) -> TruthSet:
    """Return where all parts are true."""
    return _merged(parts, len(parts))


def any_of(parts: Sequence[TruthSet]) -> TruthSet:
    """Return where some part is true."""
    return _merged(parts, 1)


def _merged(parts: Sequence[TruthSet], least: int) -> TruthSet:
    """Return where at least so many parts are true."""
    changes: defaultdict[Any, int] = defaultdict(int)
    for part in parts:
        for boundary, (before, after) in zip(part.boundaries, pairwise(part.truths), strict=True):
            changes[boundary] += after - before
    true_parts = sum(part.truths[0] for part in parts)
    boundaries, truths = [], [true_parts >= least]
    for boundary in sorted(changes):
        true_parts += changes[boundary]
        if (true_parts >= least) != truths[-1]:
            boundaries.append(boundary)
            truths.append(true_parts >= least)
    return TruthSet(tuple(boundaries), tuple(truths), sum(part.null for part in parts) >= least)


def successor(value: Any) -> Any:
    """Return the next value of the domain; None when there is none (only the greatest whole number has none)."""
    if isinstance(value, str):
        return value + "\0"
    if isinstance(value, float):
        return math.nextafter(value, math.inf)
    return None if value >= GREATEST_INTEGER else value + 1
