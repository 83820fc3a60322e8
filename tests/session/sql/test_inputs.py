"""What the names in FROM stand for, and which of them are refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from braid.operators.queries import Query
from braid.session.sql.inputs import NO_TABLES, SelectInput, inputs_of
from braid.session.sql.parser import parse_statement
from braid.session.sql.relations import Relations
from braid.session.sql.scope import did_you_mean
from braid.session.sql.statements import Select
from braid.sources.core.errors import SqlNotAllowed
from braid.sources.core.schema import StreamDefinition
from tests.session.sql.tables import CATALOG, Tables


def select_of(sql: str) -> Select:
    select = parse_statement(sql)
    assert isinstance(select, Select)
    return select


def relations(streams: Mapping[str, StreamDefinition]) -> Relations:
    def plan(select: Select, _: Relations) -> Query:
        raise AssertionError(f"{select.text} has no subqueries")

    return Relations(streams, plan)


def inputs(sql: str) -> list[SelectInput]:
    return inputs_of(select_of(sql), relations(CATALOG), Tables())


def test_inputs_are_streams_and_tables_in_the_order_of_from() -> None:
    purchases, packs, clicks = inputs(
        "SELECT 1 AS one FROM purchases [RANGE 4 SECONDS] p JOIN PACKS k ON p.pack = k.pack,"
        " clicks [RANGE 4 SECONDS] WHERE clicks.user_id = p.user_id"
    )
    assert (purchases.stream, purchases.alias, purchases.host) == (CATALOG["purchases"], "p", 0)
    assert (packs.version, packs.alias, packs.host) == (Tables.versions["packs"], "k", None)
    assert (clicks.stream, clicks.alias, clicks.host) == (CATALOG["clicks"], "clicks", 2)
    assert [input_.is_stream for input_ in (purchases, packs, clicks)] == [True, False, True]


def test_without_tables_a_name_must_be_a_stream() -> None:
    with pytest.raises(
        SqlNotAllowed, match="Stream, table or query 'packs' does not exist; there are clicks, purchases"
    ) as caught:
        inputs_of(select_of("SELECT 1 AS one FROM packs"), relations(CATALOG), NO_TABLES)
    assert "tables" not in caught.value.detail
    with pytest.raises(SqlNotAllowed, match="there is none yet; declare it with CREATE STREAM"):
        inputs_of(select_of("SELECT 1 AS one FROM packs"), relations({}), NO_TABLES)


@pytest.mark.parametrize(
    ("marked", "message"),
    [
        ("SELECT price FROM purchases p JOIN packs ^[RANGE 4 SECONDS] k ON p.pack = k.pack", "which has no time"),
        ("SELECT price FROM ^nothing", "and the tables brands, many, packs"),
        ("SELECT price FROM ^pack", "Did you mean 'packs'?"),
        ('SELECT price FROM ^purchases "a.b" JOIN packs k ON price = k.pack', "must have no dot; got 'a.b'"),
        (
            "SELECT COUNT(*) AS n FROM TABLE(TUMBLE(TABLE purchases, DESCRIPTOR(^price), INTERVAL '1' SECOND))"
            " GROUP BY window_start, window_end",
            "DESCRIPTOR must name the event time column of purchases, 'time'; got 'price'",
        ),
    ],
)
def test_refusals_say_what_and_where(marked: str, message: str) -> None:
    before, _, after = marked.partition("^")
    with pytest.raises(SqlNotAllowed) as caught:
        inputs(before + after)
    assert message in caught.value.detail
    position = caught.value.position
    assert position is not None
    assert position.column == len(before) + 1


def test_a_hint_writes_a_name_with_a_blank_as_sql_does() -> None:
    assert did_you_mean("total_price", ["total price", "user_id"]) == ' Did you mean "total price"?'
    assert did_you_mean("prise", ["price", "user_id"]) == " Did you mean 'price'?"
