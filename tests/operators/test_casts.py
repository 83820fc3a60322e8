"""CAST: which values it keeps, which become NULL, and which types it refuses."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pytest

from braid.operators.expressions import Column
from braid.operators.functions.casts import cast_to
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BIGINT, BOOLEAN, DATE, DOUBLE, INT, TIMESTAMP, VARCHAR, ColumnType
from tests.operators.evaluated import BEFORE_1970, DAY, MAX, MIN, MOMENT, MONEY, OK, B, D, M, S, T, values


@pytest.mark.parametrize(
    ("column", "target", "given", "expected"),
    [
        (S, INT, ["5", " -7 ", "5.7", "1e3"], [5, -7, 5, 1000]),
        (S, INT, ["abc", "", "2147483648", "0x1F"], [None, None, None, None]),
        (S, BIGINT, [str(MAX), str(MAX + 1)], [MAX, None]),
        (S, DOUBLE, ["1.5", "-2", "1e400", "x", "1_0"], [1.5, -2.0, math.inf, None, None]),
        (S, MONEY, ["1.005", "99999999.995", "x"], [Decimal("1.01"), None, None]),
        (S, BOOLEAN, ["true", "F", "maybe"], [True, False, None]),
        (S, DATE, ["2024-02-29", "2023-02-29"], [dt.date(2024, 2, 29), None]),
        (S, DATE, ["2024-02-29 10:00:00"], [dt.date(2024, 2, 29)]),
        (S, DATE, ["2024-02-29", "2024-2-9", "2024-2-9 1:2:3"], [dt.date(2024, 2, day) for day in (29, 9, 9)]),
        (S, DATE, ["24-2-9", "2024-2-30", "2024-2-009", "2024-2-9x", "2024-2-", "20240-2-9"], [None] * 6),
        (S, TIMESTAMP, ["2024-2-29 23:59:58.123456", "2024-02-29T23:59:58.123456Z"], [MOMENT, MOMENT]),
        (S, TIMESTAMP, ["2024-2-9", "2024-2-9 1:2"], [dt.datetime(2024, 2, 9), dt.datetime(2024, 2, 9, 1, 2)]),
        (S, TIMESTAMP, ["2024-2-9T1:2:3+02:00"], [dt.datetime(2024, 2, 8, 23, 2, 3)]),
        (S, TIMESTAMP, ["2024-2-9 1", "2024-2-9 1:60", "2024-13-9 1:02"], [None] * 3),
        (S, TIMESTAMP, ["2024-02-29 23:59:58.123456", "2024-02-30 00:00:00"], [MOMENT, None]),
        (D, INT, [1.9, -1.9, 2.0**31, math.nan, math.inf], [1, -1, None, None, None]),
        (D, BIGINT, [2.0**63, -(2.0**63)], [None, MIN]),
        (D, MONEY, [1.005, 1e30, math.nan], [Decimal("1.01"), None, None]),
        (D, VARCHAR, [1.0, -0.0, 1e16, 0.1], ["1.0", "0.0", "1e+16", "0.1"]),
        (D, BOOLEAN, [0.0, 0.5], [False, True]),
        (B, INT, [2**31, -(2**31)], [None, -(2**31)]),
        (B, ColumnType("DECIMAL", 3, 1), [99, 100], [Decimal("99.0"), None]),
        (B, DOUBLE, [MAX], [2.0**63]),
        (M, INT, [Decimal("-1.99")], [-1]),
        (M, VARCHAR, [Decimal("1.50")], ["1.50"]),
        (M, ColumnType("DECIMAL", 4, 1), [Decimal("1.25"), Decimal("9999.00")], [Decimal("1.3"), None]),
        (T, DATE, [BEFORE_1970], [dt.date(1969, 12, 31)]),
        (T, VARCHAR, [dt.datetime(2024, 1, 1), MOMENT], ["2024-01-01 00:00:00", "2024-02-29 23:59:58.123456"]),
        (DAY, TIMESTAMP, [dt.date(2024, 1, 1)], [dt.datetime(2024, 1, 1)]),
        (OK, INT, [True, False], [1, 0]),
        (OK, VARCHAR, [True, False], ["true", "false"]),
    ],
)  # fmt: skip
def test_casts(column: Column, target: ColumnType, given: list[Any], expected: list[Any]) -> None:
    expression = cast_to(column, target)
    assert values(expression, **{column.name: [*given, None]}) == [*expected, None]
    # the answer for a value does not depend on its neighbours
    assert [values(expression, **{column.name: [v]})[0] for v in given] == expected


def test_casts_that_make_no_sense_are_refused() -> None:
    with pytest.raises(NotAllowed, match=r"Cannot cast day \(DATE\) to INT"):
        cast_to(DAY, INT)
