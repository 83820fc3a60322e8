"""The sharing rule: same streams and same partitioning attributes share an operator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from braid.operators.kinds import KINDS, kind_of, operator_of
from braid.operators.queries import Query
from braid.operators.windows import SessionWindow, Window
from tests.session.queries import GEM_PACK, PRICE, aggregation, selection


@pytest.mark.parametrize(
    ("query", "operator"),
    [
        (selection("s-1"), "selection:s-1"),
        (selection("s-1", price=9), "selection:s-1"),
        (selection("s-2"), "selection:s-2"),
        (aggregation("s-1"), "aggregation:s-1:gem_pack"),
        (aggregation("s-1", window=Window(60, 60)), "aggregation:s-1:gem_pack"),
        (aggregation("s-2"), "aggregation:s-2:gem_pack"),
        (aggregation("s-1", (GEM_PACK, PRICE)), "aggregation:s-1:gem_pack,price"),
        (aggregation("s-1", (PRICE, GEM_PACK)), "aggregation:s-1:price,gem_pack"),
        (aggregation("s-1", ()), "aggregation:s-1:"),
    ],
)
def test_queries_with_the_same_input_and_attributes_share_an_operator(query: Query, operator: str) -> None:
    assert operator_of(query) == operator


def test_each_query_is_of_one_kind_and_sessions_are_one() -> None:
    sessions = replace(aggregation("s-1"), window=SessionWindow(5))
    assert [kind_of(query).name for query in (selection("s-1"), aggregation("s-1"), sessions)] == [
        "selection",
        "aggregation",
        "sessions",
    ]
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert operator_of(sessions) == "sessions:s-1:gem_pack", "it shares nothing with other windows"
