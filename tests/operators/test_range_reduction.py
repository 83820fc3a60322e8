"""Range reductions against numpy over the selected cells."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.predicates.range_reduction import UFUNCS, CellRuns, RangeReduction
from braid.operators.state.components import neutral

FUNCTIONS = ["sum", "min", "max"]
sizes = {
    "cells": st.integers(1, 70),
    "keys": st.integers(1, 4),
    "runs": st.sampled_from([0.02, 0.1, 0.5, 0.9]),
    "seed": st.integers(0, 2**32),
    "function": st.sampled_from(FUNCTIONS),
}


def selection(rng: np.random.Generator, cells: int, change: float) -> np.ndarray:
    """Return a mask that flips with probability ``change`` from cell to cell: few runs or many."""
    return (np.cumsum(rng.random(cells) < change) + rng.integers(2)) % 2 == 1


@given(**sizes)
def test_integers_are_exact_and_wrap(cells: int, keys: int, runs: float, seed: int, function: str) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(-(2**63), 2**63 - 1, (cells, keys), dtype=np.int64, endpoint=True)
    masks = np.array([selection(rng, cells, runs) for _ in range(4)])
    found = RangeReduction(values, function).over(CellRuns.of_masks(masks))
    for mask, reduced in zip(masks, found, strict=True):
        expected = [neutral(function, values.dtype)] * keys
        if mask.any():
            expected = UFUNCS[function].reduce(values[mask], axis=0).tolist()
        assert reduced.tolist() == expected


@given(**sizes)
def test_doubles_outside_do_not_leak_in(cells: int, keys: int, runs: float, seed: int, function: str) -> None:
    rng = np.random.default_rng(seed)
    mask = selection(rng, cells, runs)
    values = rng.integers(-1000, 1000, (cells, keys)).astype(np.float64)
    chosen = CellRuns.of_masks(mask[None])
    expected = RangeReduction(values, function).over(chosen)[0]
    spoiled = values.copy()
    spoiled[~mask] = rng.choice([np.inf, -np.inf, np.nan, 1e308], (int((~mask).sum()), keys))
    np.testing.assert_array_equal(RangeReduction(spoiled, function).over(chosen)[0], expected)
    if mask.any():
        assert expected.tolist() == UFUNCS[function].reduce(values[mask], axis=0).tolist()


@given(**sizes)
def test_keys_without_a_tuple_in_its_cells_are_not_counted_for_a_query(
    cells: int,
    keys: int,
    runs: float,
    seed: int,
    function: str,  # noqa: ARG001
) -> None:
    rng = np.random.default_rng(seed)
    reduction = RangeReduction(rng.poisson(0.1, (cells, keys)), "sum")
    chosen = CellRuns.of_masks(np.array([selection(rng, cells, runs) for _ in range(4)])).take(np.arange(4))
    assert reduction.lengths(chosen).tolist() == np.count_nonzero(reduction.over(chosen), axis=1).tolist()


@given(**sizes)
def test_the_given_cells_stay_as_they_are(cells: int, keys: int, runs: float, seed: int, function: str) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 9, (cells, keys))
    before = values.copy()
    RangeReduction(values, function).over(CellRuns.of_masks(selection(rng, cells, runs)[None]))
    assert (values == before).all()


def test_python_integers_add_up_exactly() -> None:
    values = np.array([[10**37], [9 * 10**37], [1]], dtype=object)
    assert RangeReduction(values, "sum").over(CellRuns.of([[(0, 3)]])).tolist() == [[10**38 + 1]]


@pytest.mark.parametrize(("function", "dtype"), [(f, d) for f in FUNCTIONS for d in (np.int64, np.int32, np.float64)])
def test_the_identity_changes_nothing(function: str, dtype: type) -> None:
    identity: np.ndarray = np.array([neutral(function, np.dtype(dtype))], dtype=dtype)
    for value in (-5, 0, 7):
        assert UFUNCS[function](identity, np.array([value], dtype=dtype))[0] == value


@given(st.lists(st.lists(st.booleans(), min_size=9, max_size=9), min_size=1, max_size=5), st.data())
def test_runs_say_what_masks_say(masks: list[list[bool]], data: st.DataObject) -> None:
    given_masks = np.array(masks)
    runs = CellRuns.of_masks(given_masks)
    assert runs.masks(9).tolist() == masks
    assert runs.covered(9).tolist() == given_masks.any(axis=0).tolist()
    some = data.draw(st.lists(st.integers(0, len(masks) - 1), max_size=4))
    assert runs.take(some).masks(9).tolist() == [masks[query] for query in some]
    bounds = list(zip(runs.query.tolist(), runs.low.tolist(), runs.high.tolist(), strict=True))
    listed = [[(low, high) for owner, low, high in bounds if owner == query] for query in range(len(masks))]
    assert CellRuns.of(listed).masks(9).tolist() == masks
