"""The sharing rule: same streams and same partitioning attributes share an operator."""

from __future__ import annotations

import pytest

from operators.queries import Query
from operators.windows import Window
from optimizer.optimizer import RULES, operator_of, optimize
from optimizer.rules.share import share
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
def test_share(query: Query, operator: str) -> None:
    assert share(query) == operator_of(query) == operator


def test_rules_decide_in_order_each_under_its_name() -> None:
    assert [rule.__name__ for rule in RULES] == ["share"]
    assert optimize(selection()) == {"share": "selection:s-1"}
