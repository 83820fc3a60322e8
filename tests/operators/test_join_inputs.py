"""Which partitions the keys of a join's inputs go to: those that belong together meet, as many as can be are used."""

from __future__ import annotations

import pytest

from braid.operators.joins.inputs import can_split, columns_to_spread_by, operators_of, placements_of, spread_by
from braid.operators.joins.key_splits import KeySplit
from braid.operators.joins.query import Join
from tests.kit.plans import plan_select
from tests.kit.random_joins import CATALOG

W = "[RANGE 4 SECONDS]"


def join(text: str) -> Join:
    query = plan_select(text.replace("~", W), CATALOG)
    assert isinstance(query, Join)
    return query


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        # all inputs have all attributes: all are hashed
        ("SELECT x.v FROM a ~ x, b ~ y WHERE x.k = y.k AND x.m = y.m", [(0, 1), (0, 1)]),
        ("SELECT x.v FROM a ~ x, b ~ y, c ~ z WHERE x.k = y.k AND y.m = z.m AND z.k = x.k", [(0,), (0,), (0,)]),
        # what is counted by key stays in one partition
        ("SELECT x.v FROM a ~ x, b ~ y, c ~ z WHERE x.k = y.k AND y.m = z.m", [(), (), ()]),
        # a chain: by the first, and the last input goes everywhere
        ("SELECT x.v FROM a ~ x, b ~ y, c ~ z WHERE x.k = y.k AND y.m = z.m AND x.v < z.v", [(0,), (0,), None]),
        # by what most inputs have
        ("SELECT x.v FROM a ~ x, b ~ y, c ~ z, a ~ u WHERE x.k = y.k AND y.m = z.m AND z.m = u.m AND x.v < u.v",
         [None, (1,), (0,), (0,)]),
        # by what an inner input has
        ("SELECT x.v FROM a ~ x LEFT JOIN b ~ y ON x.k = y.k LEFT JOIN c ~ z ON y.m = z.m WHERE x.v < coalesce(z.v, 3)",
         [(0,), (0,), None]),
        # groups must not span partitions
        ("SELECT x.k, SUM(x.v + z.v) AS n FROM a ~ x, b ~ y, c ~ z WHERE x.k = y.k AND y.m = z.m GROUP BY x.k",
         [(0,), (0,), None]),
        ("SELECT z.m, SUM(x.v + z.v) AS n FROM a ~ x, b ~ y, c ~ z WHERE x.k = y.k AND y.m = z.m GROUP BY z.m",
         [None, (1,), (0,)]),
        ("SELECT x.m, COUNT(*) AS n FROM a ~ x, b ~ y WHERE x.k = y.k AND x.m = y.m GROUP BY x.m", [(1,), (1,)]),
        ("SELECT x.v, COUNT(*) AS n FROM a ~ x, b ~ y WHERE x.k = y.k GROUP BY x.v", [(), ()]),
        ("SELECT x.v + y.v AS v, COUNT(*) AS n FROM a ~ x, b ~ y WHERE x.k = y.k GROUP BY x.v + y.v", [(), ()]),
        ("SELECT y.v, COUNT(*) AS n FROM a ~ x LEFT JOIN b ~ y ON x.k = y.k AND x.v < y.v GROUP BY y.v", [(), ()]),
        ("SELECT SUM(x.v + z.v) AS n FROM a ~ x, b ~ y, c ~ z WHERE x.k = y.k AND y.m = z.m", [(), (), ()]),
    ],
)  # fmt: skip
def test_keys_are_spread_by_what_decides_about_combinations(text: str, hashed: list[tuple[int, ...] | None]) -> None:
    placements = placements_of(join(text))
    assert [placement.hashed for placement in placements] == hashed
    assert len({placement.salt for placement in placements}) == 1


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("SELECT x.v FROM a ~ x, b ~ y WHERE x.k = y.k AND x.v < y.v", [(), ()]),
        ("SELECT x.v FROM a ~ x LEFT JOIN b ~ y ON x.k = y.k WHERE x.v < COALESCE(y.v, 3)", [(), None]),
        ("SELECT COUNT(*) AS n FROM a ~ x, b ~ y WHERE x.k = y.k AND x.v < y.v GROUP BY x.k", [None, None]),
        ("SELECT COUNT(*) AS n FROM a ~ x, b ~ y WHERE x.k = y.k AND x.v < y.v GROUP BY x.k, x.v, y.s, x.s",
         [("s", "v"), ("s",)]),
        ("SELECT COUNT(*) AS n FROM a ~ x, b ~ y WHERE x.k = y.k AND x.v < y.v GROUP BY x.k, x.v + 1", [None, None]),
        ("SELECT COUNT(*) AS n FROM a ~ x, b ~ y WHERE x.k = y.k GROUP BY x.k, x.v", [None, None]),
        ("SELECT COUNT(*) AS n FROM a ~ x, b ~ y WHERE x.k = y.k AND x.v < y.v GROUP BY x.v", [None, None]),
        ("SELECT COUNT(*) AS n FROM a ~ x, b ~ y WHERE x.k + 1 = y.k AND x.v < y.v GROUP BY x.k, y.k, y.s",
         [("k",), ("s",)]),
    ],
)  # fmt: skip
def test_by_what_tuples_with_split_keys_may_be_spread(text: str, columns: list[tuple[str, ...] | None]) -> None:
    query = join(text)
    assert [columns_to_spread_by(query, number) for number in (0, 1)] == columns
    for number, allowed in enumerate(columns):
        for by in ((), ("v",), ("s",), ("s", "v"), ("k",)):
            may = allowed == () or (allowed is not None and 0 < len(by) == len(set(by) & set(allowed)))
            assert can_split(query, KeySplit(1, frozenset([1]), number, by=by)) == may


def test_an_input_is_shared_by_joins_of_other_streams_that_place_it_alike() -> None:
    two = operators_of(join("SELECT x.v FROM a ~ x, b ~ y WHERE x.k = y.k"))
    three = operators_of(join("SELECT x.v FROM a ~ x, b ~ y, c ~ z WHERE x.k = y.k AND y.m = z.m AND x.v < z.v"))
    other = operators_of(join("SELECT x.v FROM a ~ x, a ~ y, c ~ z WHERE x.k = y.k AND y.m = z.m AND x.v > z.v"))
    assert two[0] == three[0] == other[0]
    assert three[2] == other[2]
    assert two[1] != three[1]


def test_a_group_that_has_no_attribute_of_an_inner_input_stays_in_one_partition() -> None:
    outer = join("SELECT y.k, COUNT(*) AS n FROM a ~ x LEFT JOIN b ~ y ON x.k = y.k GROUP BY y.k")
    assert spread_by(outer) == ()
