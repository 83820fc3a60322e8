"""Cut a text of several statements at its semicolons."""

from __future__ import annotations

from sqlglot import TokenType
from sqlglot.errors import TokenError

from braid.session.sql.parsing.tokenizer import BraidTokenizer

QUERY_WORDS = frozenset({"select", "with", "values", "("})


def split(text: str) -> tuple[list[str], str]:
    """Return the statements that a semicolon ends, without it, and the rest of the text.

    Semicolons within strings, quoted names and comments end nothing. A text that stops within one of them is all rest.
    Empty statements are left out.
    """
    try:
        tokens = BraidTokenizer().tokenize(text)
    except TokenError:
        return [], text
    statements, start = [], 0
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            if words(statement := text[start : token.start]):
                statements.append(statement.strip())
            start = token.end + 1
    return statements, text[start:]


def open_part(text: str) -> str:
    """Return what would close a text, a quoted name or a comment that has begun; nothing where none has."""
    return next((mark for mark in ("'", '"', "*/") if not _is_cut(text + mark)), "") if _is_cut(text) else ""


def _is_cut(text: str) -> bool:
    try:
        BraidTokenizer().tokenize(text)
    except TokenError:
        return True
    return False


def words(statement: str, count: int = 2) -> list[str]:
    """Return the first words of a statement in lower case, without comments; of a broken one, those of its text."""
    try:
        tokens = BraidTokenizer().tokenize(statement)
    except TokenError:
        return statement.lower().split()[:count]
    return [token.text.lower() for token in tokens[:count]]


def is_query(statement: str) -> bool:
    """Say whether a statement gives rows until it is retired."""
    first = words(statement, 1)
    return bool(first) and first[0] in QUERY_WORDS
