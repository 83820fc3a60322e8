"""Cut a SQL text into tokens that know where they stand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from sources.errors import Position, SqlNotAllowed, SqlSyntaxError

MAX_LENGTH = 100_000

TokenKind = Literal["word", "quoted", "string", "number", "symbol", "end"]


class Token(NamedTuple):
    """A token: ``text`` is a name or a value without its quotes, ``upper`` the word to compare keywords with."""

    kind: TokenKind
    text: str
    upper: str
    start: int
    end: int


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


_TOKEN = re.compile(
    r"""
      (?P<space>   \s+ | --[^\n]* | /\*.*?\*/ )
    | (?P<word>    [^\W\d]\w* )
    | (?P<number>  (?: [0-9]++(?:\.[0-9]*+)? | \.[0-9]++ ) (?: [eE][+-]?[0-9]++ )? (?![\w.]) )
    | (?P<string>  '[^']*+(?:''[^']*+)*+' )
    | (?P<quoted>  "[^"]*+(?:""[^"]*+)*+" | `[^`]*+(?:``[^`]*+)*+` )
    | (?P<symbol>  <> | != | <= | >= | \|\| | :: | => | /(?!\*) | [()\[\],.;+\-*%<>=] )
    """,
    re.VERBOSE | re.DOTALL,
)
_UNFINISHED = {"'": "text", '"': "quoted name", "`": "quoted name", "/": "comment"}


def tokenize(sql: SqlText) -> list[Token]:
    """Return the tokens of a text, then one of kind ``end``.

    Raises SqlSyntaxError at the first character that begins no token, SqlNotAllowed when the text is too long.
    """
    text = sql.text
    if len(text) > MAX_LENGTH:
        raise sql.not_allowed(f"A statement must have at most {MAX_LENGTH} characters; got {len(text)}.", MAX_LENGTH)
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unreadable(sql, at)
        kind = match.lastgroup
        end = match.end()
        found = text[at:end]
        match kind:
            case "word":
                tokens.append(Token("word", found, found.upper(), at, end))
            case "symbol":
                symbol = "<>" if found == "!=" else found
                tokens.append(Token("symbol", symbol, symbol, at, end))
            case "number":
                tokens.append(Token("number", found, "", at, end))
            case "string" | "quoted":
                _check_encodable(sql, found, at)
                quote = found[0]
                inner = found[1:-1].replace(quote * 2, quote)
                tokens.append(Token("string" if quote == "'" else "quoted", inner, "", at, end))
        at = end
    tokens.append(Token("end", "", "", len(text), len(text)))
    return tokens


def _unreadable(sql: SqlText, at: int) -> SqlSyntaxError:
    character = sql.text[at]
    if character.isdigit() or (character == "." and sql.text[at + 1 : at + 2].isdigit()):
        return sql.syntax_error("A number must be followed by a space or an operator.", at)
    if character in _UNFINISHED:
        return sql.syntax_error(f"This {_UNFINISHED[character]} does not end; close it.", at)
    return sql.syntax_error(f"The character {character!r} has no meaning here; remove it.", at)


def _check_encodable(sql: SqlText, found: str, at: int) -> None:
    for offset, character in enumerate(found):
        if "\ud800" <= character <= "\udfff" or character == "\0":
            raise sql.syntax_error(f"A text must not contain the character {character!r}.", at + offset)
