"""Cutting a text at its semicolons."""

from __future__ import annotations

import pytest

from braid.api.cli.statements import is_query, split


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("SHOW QUERIES; SHOW STREAMS;", ["SHOW QUERIES", "SHOW STREAMS"], ""),
        ("SELECT ';' AS a,\n \"x;y\" FROM s; SELECT", ["SELECT ';' AS a,\n \"x;y\" FROM s"], " SELECT"),
        ("SELECT 1 -- not; here\n FROM s;", ["SELECT 1 -- not; here\n FROM s"], ""),
        ("SELECT /* nor; here */ 'it''s;' FROM s;", ["SELECT /* nor; here */ 'it''s;' FROM s"], ""),
        (";; ;", [], ""),
        ("SELECT 'open;", [], "SELECT 'open;"),
        ("SELECT 'ü;€' FROM s; x", ["SELECT 'ü;€' FROM s"], " x"),
    ],
)
def test_semicolons_end_statements_outside_of_texts_names_and_comments(
    text: str, statements: list[str], rest: str
) -> None:
    assert split(text) == (statements, rest)


def test_selects_are_queries_also_behind_comments_and_brackets() -> None:
    assert all(map(is_query, ["-- a\nSELECT 1", "WITH a AS (SELECT 1) SELECT 2", "(SELECT 1)", "values (1)"]))
    assert not any(map(is_query, ["CREATE QUERY q AS SELECT 1", "EXPLAIN SELECT 1", "SHOW QUERIES", ""]))
