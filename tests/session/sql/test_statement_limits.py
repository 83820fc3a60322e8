"""Limits of statements: each refusal names its setting, and the statement right at the limit is planned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from braid.session.settings import Settings
from braid.session.sql.parser import parse_statement
from braid.session.sql.statement_limits import StatementLimits
from braid.sources.core.errors import SqlNotAllowed
from tests.kit.plans import plan_select
from tests.session.sql.catalog import CATALOG

WINDOW = "[RANGE 8 SECONDS]"


def _listed(count: int, entry: str, separator: str = ", ") -> str:
    return separator.join(entry.format(i=i) for i in range(count))


STATEMENTS = [
    ("max_output_columns", 5, lambda n: f"SELECT {_listed(n, 'price AS c{i}')} FROM purchases"),
    (
        "max_group_keys",
        5,
        lambda n: f"SELECT COUNT(*) AS n FROM purchases {WINDOW} GROUP BY {_listed(n, 'price + {i}')}",
    ),
    (
        "max_group_keys",
        5,
        lambda n: (
            f"SELECT p.price FROM purchases {WINDOW} AS p JOIN purchases {WINDOW} AS a"
            f" ON {_listed(n, 'p.user_id + {i} = a.user_id - {i}', ' AND ')}"
        ),
    ),
    ("max_join_inputs", 3, lambda n: f"SELECT p0.price FROM {_joined(n)}"),
    ("max_measures", 5, lambda n: f"SELECT {_listed(n, 'SUM(price + {i}) AS s{i}')} FROM purchases {WINDOW}"),
    (
        "max_measures",
        6,
        lambda n: (
            f"SELECT COUNT(*) AS n FROM purchases {WINDOW} HAVING {_listed(n - 1, 'MIN(price + {i}) > 1', ' OR ')}"
        ),
    ),
    (
        "max_distinct_measures",
        3,
        lambda n: f"SELECT {_listed(n, 'COUNT(DISTINCT price + {i}) AS s{i}')} FROM purchases {WINDOW}",
    ),
    ("max_conditions", 5, lambda n: f"SELECT price FROM purchases WHERE {_listed(n, 'price + user_id = {i}', ' OR ')}"),
    (
        "max_conditions",
        5,
        lambda n: f"SELECT CASE {_listed(n, 'WHEN price = {i} THEN {i}', ' ')} END AS c FROM purchases",
    ),
    ("max_in_values", 5, lambda n: f"SELECT price FROM purchases WHERE user_id IN ({_listed(n, '{i}')})"),
    ("max_text_length", 5, lambda n: f"SELECT '{'x' * n}' AS c FROM purchases"),
    (
        "max_tuple_bytes",
        1008,
        lambda n: f"SELECT COUNT(*) AS n FROM purchases {WINDOW} GROUP BY RPAD('x', {n - 16}) || user_id",
    ),
]


def _joined(count: int) -> str:
    joins = (f"JOIN purchases {WINDOW} AS p{i} ON p0.user_id = p{i}.user_id" for i in range(1, count))
    return f"purchases {WINDOW} AS p0 {' '.join(joins)}"


@pytest.mark.parametrize(("setting", "most", "statement"), STATEMENTS)
def test_a_statement_at_its_limit_is_planned_and_one_beyond_is_refused(
    setting: str, most: int, statement: Callable[[int], str]
) -> None:
    limits = replace(StatementLimits(), **{setting: most})
    plan_select(statement(most), CATALOG, limits=limits)
    with pytest.raises(SqlNotAllowed) as refused:
        plan_select(statement(most + 1), CATALOG, limits=limits)
    assert f"at most {most} " in refused.value.detail
    assert f"(setting {setting}); got {most + 1}. " in refused.value.detail
    assert refused.value.position is not None


def test_a_statement_of_too_many_tokens_is_refused_before_it_is_parsed() -> None:
    limits = StatementLimits(max_statement_tokens=6)
    parse_statement("SELECT a, b FROM s", limits)
    with pytest.raises(SqlNotAllowed, match=r"setting max_statement_tokens\); got 7\."):
        parse_statement("SELECT a, b FROM 1 2", limits)


def test_each_limit_is_a_setting_of_the_same_name_and_default() -> None:
    assert Settings().statement_limits == StatementLimits()
    assert Settings(max_group_keys=3).statement_limits == StatementLimits(max_group_keys=3)
