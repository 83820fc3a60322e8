"""NULL without a type: it takes the one that what surrounds it needs, and is a VARCHAR where nothing says which."""

from __future__ import annotations

from pathlib import Path

import pytest

from braid.operators.expressions import Literal
from braid.operators.queries import Aggregation
from braid.sources.core.storage import Storage
from tests.operators.pipeline import STREAM, Pipeline, changelog
from tests.session.sql.catalog import aggregation, plan, selection

W = "FROM purchases [RANGE 8 SECONDS]"
NOTHING = "CASE WHEN ok THEN NULL END"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NULL", "NULL VARCHAR"),
        (NOTHING, "NULL VARCHAR"),
        (f"{NOTHING} * 2", "NULL BIGINT"),
        (f"{NOTHING} + price", "+(NULL, price) DOUBLE"),
        (f"{NOTHING} || name", "concat(NULL, name) VARCHAR"),
        (f"{NOTHING} > time", "<(time, NULL) BOOLEAN"),
        (f"{NOTHING} AND ok", "and(NULL, ok) BOOLEAN"),
        (f"{NOTHING} IS NULL", "True BOOLEAN"),
        (f"CAST({NOTHING} AS DATE)", "NULL DATE"),
        (f"CASE WHEN gem_pack > 1 THEN 0.5 ELSE {NOTHING} END", "case(>(gem_pack, 1), 0.5, NULL) DECIMAL(1,1)"),
        ("COALESCE(NULL, NULL) + 1", "NULL BIGINT"),
        ("NULLIF(NULL, NULL) * 1.5", "NULL DECIMAL(22,1)"),
        ("NULLIF(NULL, 1)", "NULL INT"),
        ("GREATEST(NULL, NULL) > day", "<(day, NULL) BOOLEAN"),
        ("LEAST(NULL, gem_pack)", "least(NULL, gem_pack) INT"),
    ],
)
def test_null_takes_the_type_that_its_surroundings_need(text: str, expected: str) -> None:
    expression = selection(f"SELECT {text} AS e FROM purchases").outputs[0].expression
    assert f"{expression} {expression.type}" == expected


@pytest.mark.parametrize("null", ["NULL", NOTHING])
@pytest.mark.parametrize(
    ("aggregate", "value", "kind"),
    [
        ("SUM({})", None, "BIGINT"),
        ("AVG({})", None, "DOUBLE"),
        ("STDDEV_SAMP({})", None, "DOUBLE"),
        ("VAR_SAMP({})", None, "DOUBLE"),
        ("VAR_POP({})", None, "DOUBLE"),
        ("BOOL_AND({})", None, "BOOLEAN"),
        ("COUNT_IF({})", 0, "BIGINT"),
        ("MIN({})", None, "VARCHAR"),
        ("MAX({}) > 2", None, "BOOLEAN"),
        ("COUNT({})", 0, "BIGINT"),
        ("COUNT(DISTINCT {})", 0, "BIGINT"),
    ],
)
def test_an_aggregate_of_null_is_known_beforehand(aggregate: str, null: str, value: int | None, kind: str) -> None:
    query = aggregation(f"SELECT {aggregate.format(null)} AS a {W}")
    output = query.outputs[-1].expression
    assert isinstance(output, Literal)
    assert (output.value, str(output.type)) == (value, kind)
    assert query.measures == ()


def test_having_of_null_keeps_no_group() -> None:
    assert str(aggregation(f"SELECT COUNT(*) {W} HAVING MAX(NULL) > 2").having) == "NULL"


@pytest.mark.parametrize("keys", ["", "GROUP BY NULL", f"GROUP BY {NOTHING}"])
def test_a_query_of_nulls_alone_has_a_row_for_each_window(tmp_path: Path, keys: str) -> None:
    query = plan(f"SELECT SUM(NULL) AS s {W} {keys}")
    assert isinstance(query, Aggregation)
    pipeline = Pipeline(Storage(str(tmp_path)))
    pipeline.run([{"k": 0, "t": 1}])
    of_stream = Aggregation(STREAM.id, query.window, None, query.keys, query.measures, ())
    pipeline.run([{"k": 0, "t": 2}, {"k": 1, "t": 3}], [changelog(1, [("q", 0, of_stream)], capacity=1)])
    pipeline.run([{"k": 0, "t": 9_000_000}])
    assert [(start, end) for start, end, _ in pipeline.rows["q"]] == [(0, 8_000_000)]
