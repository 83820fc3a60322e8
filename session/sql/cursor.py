"""A cursor over tokens: look, accept, expect, and errors that point at a token."""

from __future__ import annotations

from session.sql.tokens import SqlText, Token, tokenize
from sources.errors import SqlNotAllowed, SqlSyntaxError

# words that cannot be a name without quotes
# fmt: off
RESERVED = frozenset(
    {
        "ALL", "AND", "AS", "BETWEEN", "BY", "CASE", "CAST", "CREATE", "CROSS", "DISTINCT", "DROP",
        "ELSE", "EMIT", "END", "ESCAPE", "EXCEPT", "EXISTS", "EXPLAIN", "FALSE", "FETCH", "FROM",
        "FULL", "GROUP", "HAVING", "ILIKE", "IN", "INNER", "INTERSECT", "IS", "JOIN", "LEFT", "LIKE",
        "LIMIT", "NATURAL", "NOT", "NULL", "OFFSET", "ON", "OR", "ORDER", "OUTER", "OVER", "QUALIFY",
        "RIGHT", "SELECT", "THEN", "TRUE", "UNION", "USING", "WHEN", "WHERE", "WINDOW", "WITH",
    }
)
# fmt: on


class Cursor:
    """The tokens of one statement and the next one to read."""

    def __init__(self, text: str) -> None:
        self.sql = SqlText(text)
        self._tokens = tokenize(self.sql)
        self._at = 0
        self.token = self._tokens[0]

    def ahead(self, count: int = 1) -> Token:
        """Return the token ``count`` after the next one."""
        return self._tokens[min(self._at + count, len(self._tokens) - 1)]

    @property
    def behind(self) -> int:
        """The offset after the token read last."""
        return self._tokens[self._at - 1].end if self._at else 0

    def advance(self) -> Token:
        """Read the next token."""
        token = self.token
        if token.kind != "end":
            self._at += 1
            self.token = self._tokens[self._at]
        return token

    def at(self, *texts: str) -> bool:
        """Whether the next token is one of these keywords (upper case) or symbols."""
        return self.token.upper in texts and self.token.kind in ("word", "symbol")

    def accept(self, text: str) -> bool:
        """Read the next token if it is this keyword or symbol."""
        if self.at(text):
            self.advance()
            return True
        return False

    def accept_all(self, *texts: str) -> bool:
        """Read these keywords if all of them come next."""
        if all(self.ahead(i).upper == text for i, text in enumerate(texts)):
            for _ in texts:
                self.advance()
            return True
        return False

    def expect(self, text: str, after: str = "") -> Token:
        """Read this keyword or symbol; SqlSyntaxError when something else comes."""
        if not self.at(text):
            raise self.unexpected(f"{text}{' ' + after if after else ''}")
        return self.advance()

    def name(self, what: str) -> str:
        """Read a name, quoted or not."""
        if self.token.kind == "quoted":
            if not self.token.text:
                raise self.syntax_error(f"The name of {what} must not be empty.")
            return self.advance().text
        if self.token.kind == "word" and self.token.upper not in RESERVED:
            return self.advance().text
        if self.token.kind == "word":
            raise self.syntax_error(
                f"Expected {what}; {self.token.text!r} is a reserved word, so put it in double quotes if it is a name."
            )
        raise self.unexpected(what)

    def shown(self) -> str:
        """Return the next token for a message."""
        if self.token.kind == "end":
            return "the end of the statement"
        text = self.sql.text[self.token.start : self.token.end]
        return repr(text if len(text) <= 40 else text[:37] + "...")

    def unexpected(self, expected: str) -> SqlSyntaxError:
        """Return the error that something else was expected."""
        return self.syntax_error(f"Expected {expected}, got {self.shown()}.")

    def syntax_error(self, detail: str, at: int | None = None) -> SqlSyntaxError:
        """Return a syntax error at the next token or at an offset."""
        return self.sql.syntax_error(detail, self.token.start if at is None else at)

    def not_allowed(self, detail: str, at: int | None = None) -> SqlNotAllowed:
        """Return a refusal at the next token or at an offset."""
        return self.sql.not_allowed(detail, self.token.start if at is None else at)
