"""Cut a SQL text into sqlglot's tokens, and refuse those that sqlglot accepts and Braid does not."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot import TokenType
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token

from braid.session.sql.parsing.tokenizer import BraidTokenizer
from braid.sources.core.errors import Position, SqlNotAllowed, SqlSyntaxError

MAX_LENGTH = 100_000
# sqlglot's parser takes up to 15 frames of Python's stack, 1000 in all, for each level
MAX_NESTING = 40


@dataclass(frozen=True)
class SqlText:
    """The text of a statement, which turns offsets in it into the positions of errors."""

    text: str

    def position(self, at: int) -> Position:
        """Return line and column of an offset."""
        return Position(self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at))

    def syntax_error(self, detail: str, at: int) -> SqlSyntaxError:
        """Return the error that the text does not parse at an offset."""
        return SqlSyntaxError(detail, position=self.position(at))

    def not_allowed(self, detail: str, at: int) -> SqlNotAllowed:
        """Return the error that what stands at an offset is not possible."""
        return SqlNotAllowed(detail, position=self.position(at))


_WORD = re.compile(r"[^\W\d]\w*")
_NUMBER = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPACE = re.compile(r"(?:\s+|--[^\n]*|/\*.*?\*/)*", re.DOTALL)
_BAD_IN_TEXTS = re.compile("[\ud800-\udfff\0]")
_HINTS = {
    "~": "write REGEXP_LIKE(text, pattern)",
    "^": "write POWER(x, y)",
    "?": "statements have no parameters, so write the value",
    "$": "write a text in single quotes",
}
_UNFINISHED = {"'": "text", '"': "quoted name", "`": "quoted name"}

SYMBOLS = frozenset(
    {
        TokenType.L_PAREN,
        TokenType.R_PAREN,
        TokenType.L_BRACKET,
        TokenType.R_BRACKET,
        TokenType.COMMA,
        TokenType.DOT,
        TokenType.SEMICOLON,
        TokenType.PLUS,
        TokenType.DASH,
        TokenType.STAR,
        TokenType.SLASH,
        TokenType.MOD,
        TokenType.LT,
        TokenType.GT,
        TokenType.EQ,
        TokenType.NEQ,
        TokenType.LTE,
        TokenType.GTE,
        TokenType.DPIPE,
        TokenType.DCOLON,
        TokenType.FARROW,
        TokenType.ARROW,
        TokenType.DARROW,
    }
)
_WORDS = frozenset({TokenType.VAR, *(t for w, t in BraidTokenizer.KEYWORDS.items() if w.isalpha())})
_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END})
_ENDING_OPERANDS = _CLOSING | {
    TokenType.VAR,
    TokenType.IDENTIFIER,
    TokenType.STRING,
    TokenType.NUMBER,
    TokenType.NULL,
    TokenType.TRUE,
    TokenType.FALSE,
}
_SIGNS = frozenset({TokenType.NOT, TokenType.DASH, TokenType.PLUS})


def tokenize(sql: SqlText, max_tokens: int) -> list[Token]:
    """Return sqlglot's tokens of a text.

    Raises SqlSyntaxError at the first character that begins no token, SqlNotAllowed when the text is too long, has too
    many tokens or is too deeply nested.
    """
    text = sql.text
    if len(text) > MAX_LENGTH:
        raise sql.not_allowed(f"A statement must have at most {MAX_LENGTH} characters; got {len(text)}.", MAX_LENGTH)
    tokenizer = BraidTokenizer()
    try:
        tokens = tokenizer.tokenize(text)
    except TokenError:
        # the text or comment that does not end begins after the tokens that were read
        tokens = _checked(sql, tokenizer.tokens)
        at = _skip_space(sql, tokens[-1].end + 1 if tokens else 0)
        raise sql.syntax_error(
            f"This {_UNFINISHED.get(text[at : at + 1], 'text')} does not end; close it.", at
        ) from None
    tokens = _checked(sql, tokens)
    _skip_space(sql, tokens[-1].end + 1 if tokens else 0)
    _check_nesting(sql, tokens)
    if len(tokens) > max_tokens:
        raise sql.not_allowed(
            f"A statement must have at most {max_tokens} words, numbers, texts and symbols (setting"
            f" max_statement_tokens); got {len(tokens)}. Split it in several queries.",
            tokens[max_tokens].start,
        )
    return tokens


def _skip_space(sql: SqlText, at: int) -> int:
    match = _SPACE.match(sql.text, at)
    end = at if match is None else match.end()
    if sql.text.startswith("/*", end):
        raise sql.syntax_error("This comment does not end; close it.", end)
    return end


def _checked(sql: SqlText, tokens: list[Token]) -> list[Token]:
    """Return the tokens with ``.5`` made one; SqlSyntaxError at the first that Braid's SQL does not have."""
    checked: list[Token] = []
    for token in tokens:
        kind = token.token_type
        last = checked[-1] if checked else None
        if last is not None and last.end + 1 == token.start and TokenType.NUMBER in (last.token_type, kind):
            if last.token_type == TokenType.NUMBER and (kind in _WORDS or kind in _NUMERIC):
                raise sql.syntax_error("A number must be followed by a space or an operator.", last.start)
            if last.token_type == TokenType.DOT:
                token.text, token.start = f".{token.text}", last.start
                checked.pop()
                last = checked[-1] if checked else None
                if last is not None and last.token_type == TokenType.NUMBER and last.end + 1 == token.start:
                    raise sql.syntax_error("A number must be followed by a space or an operator.", last.start)
        _check(sql, token)
        checked.append(token)
    return checked


_NUMERIC = (TokenType.NUMBER, TokenType.DOT)


def _check(sql: SqlText, token: Token) -> None:
    kind = token.token_type
    if kind in _WORDS:
        match = _WORD.match(token.text)
        if match is None or match.end() < len(token.text):
            at = 0 if match is None else match.end()
            raise _unreadable(sql, token.start + at)
    elif kind == TokenType.NUMBER:
        if not _NUMBER.fullmatch(token.text):
            raise sql.syntax_error("A number must be followed by a space or an operator.", token.start)
    elif kind in (TokenType.STRING, TokenType.IDENTIFIER):
        match = _BAD_IN_TEXTS.search(sql.text, token.start, token.end + 1)
        if match is not None:
            raise sql.syntax_error(f"A text must not contain the character {match[0]!r}.", match.start())
    elif kind not in SYMBOLS:
        raise _unreadable(sql, token.start)


def _unreadable(sql: SqlText, at: int) -> SqlSyntaxError:
    hint = _HINTS.get(sql.text[at], "remove it, or put the name that it is part of in double quotes")
    return sql.syntax_error(f"The character {sql.text[at]!r} has no meaning here; {hint}.", at)


def _check_nesting(sql: SqlText, tokens: list[Token]) -> None:
    """Refuse what would take the parser too deep; a sign before a bracket nests as the bracket does."""
    levels: list[int] = []
    depth = signs = 0
    after_operand = False
    for token in tokens:
        kind = token.token_type
        if kind in _OPENING:
            levels.append(signs + 1)
            depth += signs + 1
            signs = 0
        elif kind in _SIGNS:
            # after an operand it is an operator of two
            signs += not after_operand
        else:
            signs = 0
            if kind in _CLOSING and levels:
                depth -= levels.pop()
        after_operand = kind in _ENDING_OPERANDS
        if depth + signs > MAX_NESTING:
            raise sql.not_allowed(
                f"Brackets, calls, CASE and signs must not be nested more than {MAX_NESTING} deep; split it.",
                token.start,
            )
