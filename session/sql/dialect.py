"""Braid's SQL as a dialect of sqlglot."""

from __future__ import annotations

from sqlglot.dialects.dialect import Dialect

from session.sql.select_parser import BraidParser
from session.sql.tokenizer import BraidTokenizer


class Braid(Dialect):
    """The words, the expressions and the SELECT of Braid; :mod:`session.sql.parser` reads the other statements."""

    Tokenizer = BraidTokenizer
    Parser = BraidParser


_BRAID = Braid()


def open_parser(text: str, max_tokens: int) -> BraidParser:
    """Return a parser at the first token of a text; SqlSyntaxError or SqlNotAllowed when its tokens are not valid.

    There may be at most ``max_tokens`` of them: parsing takes some 40 µs each.
    """
    # a parser has state: each text gets one of its own, so threads may parse at the same time
    parser = BraidParser(dialect=_BRAID)
    parser.load(text, max_tokens)
    return parser
