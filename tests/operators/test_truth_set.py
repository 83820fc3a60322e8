"""Truth sets against plain comparison of values."""

from __future__ import annotations

import math
import operator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.predicates.truth_set import EVERYTHING, NOTHING, NULL_ONLY, TruthSet, all_of, any_of, successor

COMPARE = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq, "<>": operator.ne,
}  # fmt: skip
integers = st.one_of(st.integers(-3, 3), st.sampled_from([-(2**63), 2**63 - 1]))
doubles = st.floats(allow_nan=False)
texts = st.text("ab\0", max_size=3)
domains = st.sampled_from([integers, doubles, texts])


@given(st.data(), st.sampled_from(sorted(COMPARE)))
def test_a_comparison_is_true_where_values_compare_so(data: st.DataObject, symbol: str) -> None:
    domain = data.draw(domains)
    constant, values = data.draw(domain), data.draw(st.lists(domain))
    if isinstance(constant, float) and math.isinf(constant):
        return
    truth = TruthSet.where(symbol, constant)
    assert [truth.at(value) for value in values] == [COMPARE[symbol](value, constant) for value in values]
    assert not truth.at(None)


@st.composite
def truth_sets(draw: st.DrawFn) -> TruthSet:
    boundaries = sorted(draw(st.sets(st.integers(-5, 5), max_size=4)))
    first = draw(st.booleans())
    return TruthSet(
        tuple(boundaries), tuple(first ^ bool(i % 2) for i in range(len(boundaries) + 1)), draw(st.booleans())
    )


@given(st.lists(truth_sets(), min_size=1, max_size=4))
def test_and_and_or_hold_value_by_value(parts: list[TruthSet]) -> None:
    values: list[Any] = [None, *range(-7, 8)]
    every, some = all_of(parts), any_of(parts)
    assert [every.at(v) for v in values] == [all(p.at(v) for p in parts) for v in values]
    assert [some.at(v) for v in values] == [any(p.at(v) for p in parts) for v in values]
    for combined in (every, some):
        assert all(a != b for a, b in zip(combined.truths, combined.truths[1:], strict=False))


@given(st.data())
def test_some_values_are_those(data: st.DataObject) -> None:
    domain = data.draw(st.sampled_from([integers, doubles.filter(math.isfinite), texts]))
    named, others = data.draw(st.lists(domain)), data.draw(st.lists(domain))
    truth = TruthSet.of_values(named)
    assert [truth.at(value) for value in (*named, *others)] == [value in named for value in (*named, *others)]
    assert not truth.at(None)
    assert truth == any_of([TruthSet.where("=", value) for value in named])


def test_as_many_parts_as_a_statement_can_have() -> None:
    members = [TruthSet.where("=", number) for number in range(0, 60_000, 2)]
    one_of, none_of = any_of(members), all_of([member.complement() for member in members])
    assert [one_of.at(number) for number in (-1, 0, 1, 59_998, 59_999)] == [False, True, False, True, False]
    assert one_of.complement() == none_of


@given(truth_sets(), st.sets(st.integers(-6, 6)))
def test_runs_and_masks_over_finer_cells_say_the_same(truth: TruthSet, more: set[int]) -> None:
    boundaries = sorted({*truth.boundaries, *more})
    mask = truth.mask_over(boundaries)
    representatives = [-100, *boundaries]
    assert mask.tolist() == [truth.at(v) for v in [*representatives, None]]
    inside = {i for first, last in truth.runs_over(boundaries) for i in range(first, last)}
    assert inside == {i for i, selected in enumerate(mask) if selected}


def test_nothing_follows_the_greatest_whole_number() -> None:
    assert successor(2**63 - 1) is None
    assert TruthSet.where(">", 2**63 - 1) == NOTHING
    assert TruthSet.where(">=", -(2**63)) == EVERYTHING
    assert NULL_ONLY.at(None)


def test_truths_and_boundaries_must_fit() -> None:
    with pytest.raises(ValueError, match="one truth more"):
        TruthSet((1,), (True,))
