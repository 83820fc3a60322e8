"""The words and symbols of Braid's SQL, for sqlglot's tokenizer."""

from __future__ import annotations

from typing import ClassVar

from sqlglot import Tokenizer, TokenType

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

# the reserved words that sqlglot's grammar of expressions and SELECT knows
_GRAMMAR = {
    "ALL": TokenType.ALL,
    "AND": TokenType.AND,
    "AS": TokenType.ALIAS,
    "BETWEEN": TokenType.BETWEEN,
    "CASE": TokenType.CASE,
    "DISTINCT": TokenType.DISTINCT,
    "ELSE": TokenType.ELSE,
    "END": TokenType.END,
    "ESCAPE": TokenType.ESCAPE,
    "FALSE": TokenType.FALSE,
    "FROM": TokenType.FROM,
    "GROUP": TokenType.GROUP_BY,
    "HAVING": TokenType.HAVING,
    "ILIKE": TokenType.ILIKE,
    "IN": TokenType.IN,
    "IS": TokenType.IS,
    "LEFT": TokenType.LEFT,
    "LIKE": TokenType.LIKE,
    "NOT": TokenType.NOT,
    "NULL": TokenType.NULL,
    "OR": TokenType.OR,
    "RIGHT": TokenType.RIGHT,
    "SELECT": TokenType.SELECT,
    "THEN": TokenType.THEN,
    "TRUE": TokenType.TRUE,
    "WHEN": TokenType.WHEN,
    "WHERE": TokenType.WHERE,
    # a function, and the grammar looks at its name
    "CAST": TokenType.VAR,
}


class BraidTokenizer(Tokenizer):
    """Cuts a text into sqlglot's tokens; every word that is not reserved is a VAR.

    What Braid does not have (lambdas, placeholders, bit operators, …) gets no token type of its own, so
    sqlglot's grammar for it never applies. The other reserved words are COMMAND, which is no part of an expression.
    """

    KEYWORDS: ClassVar[dict[str, TokenType]] = {
        "::": TokenType.DCOLON,
        "||": TokenType.DPIPE,
        "<=": TokenType.LTE,
        ">=": TokenType.GTE,
        "<>": TokenType.NEQ,
        "!=": TokenType.NEQ,
        "==": TokenType.EQ,
        "=>": TokenType.FARROW,
        "->": TokenType.ARROW,
        "->>": TokenType.DARROW,
        **{word: _GRAMMAR.get(word, TokenType.COMMAND) for word in RESERVED},
    }
    # without its base's reading of "!" as NOT
    SINGLE_TOKENS: ClassVar[dict[str, TokenType]] = {**Tokenizer.SINGLE_TOKENS, "!": TokenType.EXCLAMATION}
    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]
    # or the text after a COMMAND would be one token
    COMMANDS: ClassVar[set[TokenType]] = set()
    NESTED_COMMENTS = False
    COMMENTS_TERMINATE_AT_NEWLINE_ONLY = True


# sqlglot gives every dialect comments of templates, {# … #}, and texts such as N'…'; Braid has neither
BraidTokenizer._COMMENTS = {"--": None, "/*": "*/"}
BraidTokenizer._FORMAT_STRINGS = {}
