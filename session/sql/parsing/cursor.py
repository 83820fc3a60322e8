"""sqlglot's parser as a cursor over tokens: look, accept, expect, and errors that point at a token."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Literal, NoReturn, TypeVar

from sqlglot import TokenType
from sqlglot.expressions import Expr
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token

from braid.session.sql.parsing.tokenizer import RESERVED
from braid.session.sql.parsing.tokens import SYMBOLS, SqlText, tokenize
from braid.sources.core.errors import SqlNotAllowed, SqlSyntaxError

TokenKind = Literal["word", "quoted", "string", "number", "symbol", "end"]
_KINDS: dict[TokenType, TokenKind] = {
    TokenType.IDENTIFIER: "quoted",
    TokenType.STRING: "string",
    TokenType.NUMBER: "number",
    TokenType.SENTINEL: "end",
    **dict.fromkeys(SYMBOLS, "symbol"),
}
_NO_WORDS = ("quoted", "string", "number", "end")
_E = TypeVar("_E", bound=Expr)


_WHERE_NAMES_END = ("an expression", ")", "the end of the statement")
_CLAUSES = ("AND", "AS", "BY", "EMIT", "FROM", "GROUP", "HAVING", "IN", "JOIN", "LEFT", "ON", "OR", "SELECT", "UNION")
_STATEMENTS = ("CREATE", "DESCRIBE", "DROP", "EXPLAIN", "SELECT", "SHOW")
_IN_ORDER = ("FROM", "WHERE", "GROUP", "HAVING")
"""What a SELECT has one after the other."""
_KEYWORDS = {
    "the end of the statement": ("WHERE", "GROUP", "HAVING", "EMIT", "JOIN", "LEFT", "INNER", "UNION"),
    "]": ("SLIDE", "RANGE", "SESSION"),
}
"""What may stand where something else is expected, too."""
_CLOSE = 0.7


def _plain(token: Token | None) -> str:
    """Return a word without quotes, nothing for another token or none."""
    is_word = token is not None and token.token_type not in _KINDS and token.text.isidentifier()
    return token.text if token is not None and is_word else ""


def _name(token: Token | None) -> str:
    """Return a name without quotes, nothing for another token or none."""
    word = _plain(token)
    return "" if word.upper() in RESERVED else word


def did_you_mean_keyword(word: str, keywords: Iterable[str]) -> str:
    """Return a hint at the keyword closest to a mistyped word, empty when none is close."""
    close = difflib.get_close_matches(word.upper(), keywords, n=1, cutoff=_CLOSE)
    return f" Did you mean {close[0]}?" if close else ""


def word_of(token: Token) -> str:
    """Return a keyword or name in upper case, or a symbol; nothing for a text, a number or a quoted name."""
    return "" if _KINDS.get(token.token_type) in _NO_WORDS else token.text.upper()


class Cursor(Parser):
    """The tokens of one statement and the next one to read; one object parses one statement."""

    sql_text: SqlText

    def load(self, text: str, max_tokens: int) -> None:
        """Take a text to parse; SqlSyntaxError or SqlNotAllowed when its tokens are not in order, or too many."""
        self.reset()
        self.sql = text
        self.sql_text = SqlText(text)
        self._chunks = [tokenize(self.sql_text, max_tokens)]
        self._advance_chunk()

    # looking

    @property
    def kind(self) -> TokenKind:
        """What the next token is."""
        return _KINDS.get(self._curr.token_type, "word")

    @property
    def word(self) -> str:
        """The next token in upper case if it is a word or a symbol, else nothing."""
        return word_of(self._curr)

    @property
    def text(self) -> str:
        """The name or the value of the next token, without its quotes."""
        return self._curr.text if self._curr else ""

    @property
    def start(self) -> int:
        """The offset of the next token."""
        return self._curr.start if self._curr else len(self.sql)

    @property
    def previous_end(self) -> int:
        """The offset after the token read last."""
        return self._prev.end + 1 if self._prev else 0

    def ahead(self, count: int = 1) -> str:
        """Return the word or symbol ``count`` after the next token."""
        index = self._index + count
        return word_of(self._tokens[index]) if index < self._tokens_size else ""

    def at(self, *words: str) -> bool:
        """Whether the next token is one of these keywords (upper case) or symbols."""
        return self.word in words

    def at_word(self) -> bool:
        """Whether the next token is a keyword or a name without quotes."""
        return self.kind == "word"

    # reading

    def advance(self) -> Token:
        """Read the next token."""
        token = self._curr
        if token:
            self._advance()
        return token

    def accept(self, word: str) -> bool:
        """Read the next token if it is this keyword or symbol."""
        if self.at(word):
            self._advance()
            return True
        return False

    def accept_all(self, *words: str) -> bool:
        """Read these keywords if all of them come next."""
        if all(self.ahead(i) == word for i, word in enumerate(words)):
            self._advance(len(words))
            return True
        return False

    def expect(self, word: str, after: str = "") -> Token:
        """Read this keyword or symbol; SqlSyntaxError when something else comes."""
        if not self.at(word):
            raise self.unexpected(f"{word}{' ' + after if after else ''}")
        return self.advance()

    def name(self, expected: str) -> str:
        """Read a name, quoted or not; ``expected`` says what of, for messages."""
        if self.kind == "quoted":
            if not self._curr.text:
                noun = expected if expected.startswith(("the name of", "the alias of")) else f"the name of {expected}"
                raise self.syntax_error(f"T{noun[1:]} must not be empty.")
            return self.advance().text
        if self.kind == "word" and self.word not in RESERVED:
            return self.advance().text
        if self.kind == "word":
            raise self.syntax_error(
                f"Expected {expected}; {self._curr.text!r} is a reserved word,"
                " so put it in double quotes if it is a name."
            )
        if self.kind == "string":
            raise self.syntax_error(f"Expected {expected}, got the text {self.shown()}. Put names in double quotes.")
        raise self.unexpected(expected)

    # errors

    def shown(self, token: Token | None = None) -> str:
        """Return the next token, or another one, for a message."""
        token = token or self._curr
        if not token:
            return "the end of the statement"
        text = self.sql[token.start : token.end + 1]
        return repr(text if len(text) <= 40 else text[:37] + "...")

    def unexpected(self, expected: str) -> SqlSyntaxError:
        """Return the error that something else was expected, at a word that may be that one misspelt."""
        first = expected.partition(" ")[0]
        keywords = (*_KEYWORDS.get(expected, ()), *((first,) if first.isupper() else ()))
        for token in (self._prev, self._curr):
            if meant := did_you_mean_keyword(_name(token), keywords):
                assert token is not None
                return self.syntax_error(f"Expected {expected}, got {self.shown(token)}.{meant}", token.start)
        hint = (self._order_hint() or self._quoting_hint()) if expected in _WHERE_NAMES_END else ""
        if expected == "the end of the statement" and self._begins_a_statement():
            hint = " Is a semicolon missing before it?"
        return self.syntax_error(f"Expected {expected}, got {self.shown()}.{hint}")

    def _begins_a_statement(self) -> bool:
        """Whether the next word is the first of a line and of a statement."""
        return self.word in _STATEMENTS and "\n" in self.sql[self.previous_end : self.start]

    def _order_hint(self) -> str:
        """Return the hint at where a clause stands, or that a comma is too much."""
        if self.word in _IN_ORDER and self._prev is not None and self._prev.text == ",":
            return " Leave out the comma before it."
        if self.word == "WHERE":
            return " WHERE stands after FROM, before GROUP BY and HAVING."
        return ""

    def _quoting_hint(self) -> str:
        """Return the hint at double quotes where the next words may be a name with a blank, or a word of SQL."""
        if self._prev is not None and self._prev.text == "%" and self._index > 1:
            named = _name(self._tokens[self._index - 2])
            return f' A name such as "{named} %" stands in double quotes.' if named else ""
        following = self._tokens[self._index + 1] if self._index + 1 < self._tokens_size else None
        before, word = _name(self._prev), _plain(self._curr)
        if self.word == "-" and before.lower() == "q" and following is not None:
            return f" An id stands in single quotes: '{before}-{following.text}'."
        if not word or word.upper() in _CLAUSES or (not before and _name(self._curr)):
            return ""
        words = [before, word] if before else [word, _name(following)]
        return f' A name such as "{" ".join(filter(None, words))}" stands in double quotes.'

    def syntax_error(self, detail: str, at: int | None = None) -> SqlSyntaxError:
        """Return a syntax error at the next token or at an offset."""
        return self.sql_text.syntax_error(detail, self.start if at is None else at)

    def not_allowed(self, detail: str, at: int | None = None) -> SqlNotAllowed:
        """Return a refusal at the next token or at an offset."""
        return self.sql_text.not_allowed(detail, self.start if at is None else at)

    # sqlglot's own errors

    def raise_error(self, message: str, token: Token | None = None) -> NoReturn:
        """Raise what sqlglot's grammar complains of as a syntax error with a position."""
        raise self.syntax_error(f"{message.rstrip('.')}.", token.start if token else None)

    def validate_expression(self, expression: _E, args: list[object] | None = None) -> _E:
        """Return the node; SqlSyntaxError when a part of it is missing."""
        if expression.error_messages(args):
            raise self.unexpected("an expression")
        return expression

    def _match_r_paren(self, expression: Expr | None = None) -> None:  # noqa: ARG002 - sqlglot's signature
        self.expect(")")
