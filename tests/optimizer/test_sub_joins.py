"""Sub-joins of different queries are equal exactly where they join the same inputs by the same keys."""

from __future__ import annotations

import pytest

from braid.operators.joins.query import Join
from braid.optimizer.sub_joins import sub_join, sub_joins
from tests.kit.plans import plan_select
from tests.kit.random_joins import CATALOG

CHAIN = "a [RANGE 4 SECONDS] x, b [RANGE 4 SECONDS] y, c [RANGE 4 SECONDS] z WHERE x.k = y.k AND y.m = z.m"


def join(text: str) -> Join:
    query = plan_select(f"SELECT 1 AS one FROM {text.replace(' W ', ' [RANGE 4 SECONDS] ')}", CATALOG)
    assert isinstance(query, Join)
    return query


@pytest.mark.parametrize(
    ("text", "is_shared"),
    [
        ("a W p, b W q WHERE p.k = q.k", True),
        ("b W q, a W p WHERE q.k = p.k AND p.v > 3", True),
        ("b [RANGE 9 SECONDS] q, a [RANGE 9 SECONDS] p WHERE q.k = p.k", True),
        ("a W p, c W r, b W q WHERE p.k = q.k AND q.k = r.k", True),
        ("a W p, b W q WHERE p.k = q.v", False),
        ("a W p, b W q WHERE p.k = q.k AND p.m = q.m", False),
        ("a W p, c W q WHERE p.k = q.k", False),
        ("a W p, a W q WHERE p.k = q.k", False),
        ("a W p LEFT JOIN b W q ON p.k = q.k", False),
    ],
)
def test_a_sub_join_is_another_joins_where_it_joins_the_same_by_the_same(text: str, is_shared: bool) -> None:
    chain = join(CHAIN)
    assert (sub_join(chain, frozenset([0, 1])) in sub_joins(join(text))) == is_shared


def test_only_inputs_that_are_compared_are_joined() -> None:
    chain = join(CHAIN)
    assert sub_joins(chain) == {sub_join(chain, frozenset(members)) for members in ([0, 1], [1, 2], [0, 1, 2])}


def test_an_outer_input_comes_after_what_it_is_compared_with() -> None:
    outer_join = join("a W p JOIN b W q ON p.k = q.k LEFT JOIN c W r ON q.k = r.k")
    assert sub_joins(outer_join) == {
        sub_join(outer_join, frozenset(members)) for members in ([0, 1], [1, 2], [0, 1, 2])
    }


def test_a_stream_joined_with_itself_crosswise_is_another_join() -> None:
    crosswise = join("a W p, a W q WHERE p.k = q.v AND p.m = q.m")
    assert sub_joins(crosswise) == sub_joins(join("a W p, a W q WHERE q.k = p.v AND p.m = q.m"))
    assert sub_joins(crosswise) != sub_joins(join("a W p, a W q WHERE p.k = q.k AND p.m = q.m"))
