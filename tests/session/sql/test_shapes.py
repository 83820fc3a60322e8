"""A query planned by its shape equals the one that the parser gives, for any numbers and any text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators.derived import QueryBehind, derived_stream
from braid.session.sql.parser import parse_statement
from braid.session.sql.shapes import LONGEST, Cut, ReadQuery, Shapes, cut
from braid.session.sql.statements import CreateQuery, Select
from braid.sources.core.errors import NotAllowed, ServiceError
from braid.sources.core.schema import StreamDefinition
from tests.kit.plans import plan_select
from tests.session.sql.catalog import CATALOG, PURCHASES, define
from tests.session.sql.test_sql_fuzz import SEEDS, WORDS

NUMBERS = (
    *("0", "1", "7", "5.5", "0.0", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808"),
    *("12345678901234567890", "0.1234567890123456789", "1.50", "00012", "99999.99"),
)
SHAPES = (
    "SELECT user_id FROM purchases WHERE price > {}",
    "SELECT user_id FROM purchases WHERE gem_pack >= {} AND price<{}",
    "SELECT user_id FROM purchases WHERE {} < gem_pack OR gem_pack <> {}",
    "SELECT * FROM purchases WHERE NOT (amount = {} OR name = '> {}') -- > {}",
    "SELECT * FROM purchases WHERE amount > {} AND day > '2026-01-01' AND (user_id = {} OR ok)",
    "SELECT * FROM purchases WHERE CASE gem_pack WHEN 1 THEN price ELSE 2 END > {}",
    "SELECT * FROM purchases WHERE price * 2 + 1 > {} + gem_pack AND gem_pack IN (1, {}) AND ok",
    "SELECT * FROM purchases WHERE 5 > {}",
    "SELECT * FROM purchases WHERE user_id % 10 = {} AND gem_pack BETWEEN 1 AND {}",
    "SELECT * FROM purchases WHERE name > {}",
    'SELECT "price" AS "> {}" FROM purchases WHERE price /* > {} */ > {}',
    "SELECT gem_pack, SUM(price) FROM purchases [RANGE 8 SECONDS] WHERE price <= {} GROUP BY gem_pack",
    "SELECT gem_pack, COUNT(*) FROM purchases [RANGE 8 SECONDS] WHERE price > {} GROUP BY 1 HAVING COUNT(*) > {}",
    "SELECT gem_pack > {}, COUNT(*) AS n FROM purchases [RANGE 8 SECONDS] WHERE price > {} GROUP BY gem_pack > {}",
    "CREATE QUERY cheap AS SELECT user_id FROM purchases WHERE price < {};",
    "CREATE QUERY cheap WITH (connector = 'file', flush_rows = {}) AS SELECT user_id FROM purchases WHERE price < {};",
    "SELECT COUNT(*) AS n FROM TUMBLE(data => TABLE purchases, timecol => DESCRIPTOR(time),"
    " dur => INTERVAL '{}' SECOND) WHERE price > {}",
    "SELECT gem_pack, MAX(n) AS m FROM revenue [RANGE 1 MINUTE] WHERE n > {} GROUP BY gem_pack",
    "SELECT MAX(n) AS m FROM revenue WHERE n > {} GROUP BY window_start, window_end",
    "SELECT n FROM revenue WHERE n > {} AND gem_pack <> {}",
    "SELECT n FROM live WHERE n > {}",
    "SELECT MAX(n) AS m FROM live [RANGE 1 MINUTE] WHERE n > {} HAVING COUNT(*) > 1",
)


def rows_of(name: str, query_id: str, sql: str) -> StreamDefinition:
    return derived_stream(query_id, name, [QueryBehind(query_id, plan_select(sql, CATALOG))])


INNER = "SELECT gem_pack, SUM(price) AS n FROM purchases [RANGE 8 SECONDS] GROUP BY gem_pack"
KNOWN = {
    **CATALOG,
    "revenue": rows_of("revenue", "q-1", INNER),
    "live": rows_of("live", "q-2", f"{INNER} EMIT STREAM"),
}


def fresh(text: str) -> ReadQuery | str:
    """Return what the parser and the planner make of a text, or the refusal."""
    try:
        statement = parse_statement(text)
        if not isinstance(statement, (Select, CreateQuery)):
            return "not a query"
        query = plan_select(statement, KNOWN)
        return ReadQuery(getattr(statement, "name", None), query, getattr(statement, "sink", None))
    except ServiceError as error:
        return refusal(error)


def by_shape(shapes: Shapes, text: str) -> ReadQuery | str:
    """Return what the shapes make of a text, or the refusal."""
    try:
        return shapes.read(text, KNOWN)
    except ServiceError as error:
        return "not a query" if "A query must be SELECT" in error.detail else refusal(error)


def refusal(error: ServiceError) -> str:
    """Return all that a refusal says."""
    return f"{type(error).__name__} {error.detail} {error.position}"


@settings(deadline=None)
@given(st.sampled_from(SHAPES), st.lists(st.lists(st.sampled_from(NUMBERS), min_size=3, max_size=3), min_size=2))
def test_a_query_planned_by_its_shape_is_the_one_that_the_parser_gives(shape: str, fillings: list[list[str]]) -> None:
    shapes = Shapes()
    for numbers in fillings:
        text = shape
        for number in numbers:
            text = text.replace("{}", number, 1)
        text = text.replace("{}", numbers[0])
        expected = fresh(text)
        query = by_shape(shapes, text)
        assert query == expected
        assert repr(query) == repr(expected), "equal is not the same: 1.50 == 1.5"


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from([*WORDS, *NUMBERS, ">", "<", "=", "WHERE"]), max_size=8).map(" ".join)))
def test_whatever_the_text_the_shapes_say_what_the_parser_says(ends: list[str]) -> None:
    shapes = Shapes()
    for end in ends:
        for text in (end, f"SELECT user_id FROM purchases WHERE price > 1 {end}", f"{end} > 5", f"{end}=5"):
            assert by_shape(shapes, text) == fresh(text)


@pytest.mark.parametrize("text", SEEDS)
def test_known_statements_are_read_alike_twice_and_with_other_numbers(text: str) -> None:
    shapes = Shapes()
    for statement in (text, text, re.sub(r"(?<=[<>=] )\d+", "3", text)):
        assert by_shape(shapes, statement) == fresh(statement)


def test_a_known_shape_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = Shapes()
    first = shapes.read("SELECT price FROM purchases WHERE price > 5 AND gem_pack = 1", CATALOG)[1]
    monkeypatch.delattr("braid.session.sql.shapes.parse_statement")
    second = shapes.read("SELECT price FROM purchases WHERE price > 6.5 AND gem_pack = 2", CATALOG)[1]
    assert str(second.where) == "and(>(price, 6.5), =(gem_pack, 2))"
    assert second.outputs is first.outputs, "what is equal is shared"
    with pytest.raises(NameError):
        shapes.read("SELECT price FROM purchases WHERE price > 6.5 AND gem_pack > 2", CATALOG)


def test_the_plan_is_that_of_the_stream_as_it_is_now() -> None:
    shapes = Shapes()
    text = "SELECT price FROM purchases WHERE price > 5"
    assert shapes.read(text, CATALOG)[1].stream == "s-1"
    new_catalog = {"purchases": define(PURCHASES.replace("price DOUBLE", "price INT"), "s-2")}
    for _ in range(2):
        query = shapes.read(text.replace("5", "6"), new_catalog)[1]
        assert query.stream == "s-2"
        assert "INT" in str(query.outputs[0].expression.type)
    with pytest.raises(NotAllowed, match="'purchases' does not exist"):
        shapes.read(text, {})


def test_shapes_are_bounded_and_long_texts_are_none() -> None:
    shapes = Shapes(most=3)
    for column in ("price", "user_id", "gem_pack", "amount", "price, user_id"):
        shapes.read(f"SELECT {column} FROM purchases WHERE price > 5", CATALOG)
        assert len(shapes) <= 3
    size = len(shapes)
    shapes.read(f"SELECT price FROM purchases WHERE price > 5 {' ' * LONGEST}", CATALOG)
    shapes.read("SELECT SUM(price) FROM purchases [RANGE 1 SECOND] HAVING COUNT(*) > 5", CATALOG)
    assert len(shapes) == size


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("a > 5 AND b<=1.5 and c!=7", ("5", "1.5", "7")),
        ("a > -5 AND b > 5e3 AND c > 5. AND d > .5 AND e > 5x AND f > 5.5.5", ()),
        ("a > '> 1' AND \"b > 2\" > 3 -- c > 4\nAND d > 5 /* > 6 */", ("3", "5")),
        ("TUMBLE(dur => 5, size=>6)", ()),
        ("a > 'it''s > 1' AND b = 2", ("2",)),
    ],
)
def test_holes_are_numbers_after_a_comparison(text: str, numbers: tuple[str, ...]) -> None:
    cut_text = cut(text)
    assert cut_text.numbers == numbers
    assert [text[at : at + len(n)] for at, n in zip(cut_text.places, numbers, strict=True)] == list(numbers)
    assert "".join(a + n for a, n in zip(cut_text.around, (*numbers, ""), strict=True)) == text
    assert cut("") == Cut(("",), (), ())
