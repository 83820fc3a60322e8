"""VALUES as a static table in a statement: what it becomes, and what is refused."""

from __future__ import annotations

import pytest

from braid.operators.lookup.lookups import Lookup
from braid.operators.queries import Selection
from braid.session.sql.select import plan_statement
from braid.sources.connectors.static_table import TableVersion
from braid.sources.core.errors import ServiceError
from tests.session.sql.tables import CATALOG, Tables


class Kept(Tables):
    """Tables that keep what stands in statements."""

    def __init__(self) -> None:
        self.kept: list[TableVersion] = []

    def add(self, table: TableVersion) -> None:
        self.kept.append(table)


def planned(sql: str) -> tuple[Selection, list[TableVersion]]:
    tables = Kept()
    query = plan_statement(sql, CATALOG, tables=tables).query
    assert isinstance(query, Selection)
    return query, tables.kept


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT price, n FROM purchases p JOIN (VALUES (1, 'a'), (2, NULL)) AS v (id, n) ON p.pack = v.id",
        "WITH v (id, n) AS (VALUES (1, 'a'), (2, NULL)) SELECT price, n FROM purchases JOIN v ON pack = id",
    ],
)
def test_values_are_a_table_that_rows_are_joined_with(sql: str) -> None:
    query, (table,) = planned(sql)
    assert table.rows.to_pylist() == [{"id": 1, "n": "a"}, {"id": 2, "n": None}]
    assert [str(lookup) for lookup in query.lookups] == [f"lookup values@{table.id} on pack = id"]
    assert [output.name for output in query.outputs] == ["price", "n"]


def test_equal_values_are_one_table_whoever_writes_them() -> None:
    sql = "SELECT price FROM purchases p JOIN (VALUES (1), (2)) AS {0} (id) ON p.pack = {0}.id"
    (one, (first,)), (other, (second,)) = planned(sql.format("a")), planned(sql.format("b"))
    assert one == other
    assert first.definition == second.definition


@pytest.mark.parametrize("members", ["VALUES 1, 2", "VALUES (1), (2)", "SELECT column1 FROM (VALUES (1), (2))"])
def test_values_may_be_what_in_compares_with(members: str) -> None:
    query, _ = planned(f"SELECT price FROM purchases WHERE pack IN ({members})")
    assert [lookup.keeps for lookup in query.lookups if isinstance(lookup, Lookup)] == ["semi"]


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ("(VALUES (1, 'a'), ^(2)) AS v (id, n)", "as many values; this has 1"),
        ("(VALUES (1, ^'a'), (2, 3)) AS v (id, n)", "there are VARCHAR and INT. Write CAST"),
        ("(VALUES (1, ^pack)) AS v (id, n)", "takes constants"),
        ("(VALUES (1, ^NULL)) AS v (id, n)", "write CAST(NULL AS VARCHAR)"),
        ("(VALUES (1, 2)) AS v ^(id)", "write one each"),
        ("(VALUES (^)) AS v (id)", "Expected an expression"),
        ("^VALUES (1) AS v (id)", "stands in brackets"),
        ("(^VALUES (1, 2)) AS v (id, ID)", "must differ"),
    ],
)
def test_what_is_refused_says_what_to_write(values: str, part: str) -> None:
    before, _, after = values.partition("^")
    join = "SELECT price FROM purchases p JOIN "
    with pytest.raises(ServiceError) as refused:
        planned(f"{join}{before}{after} ON p.pack = v.id")
    assert part in refused.value.detail, refused.value.detail
    position = refused.value.position
    assert position is not None
    assert position.column == len(join + before) + 1
