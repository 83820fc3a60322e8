"""Parse scalar expressions by operator precedence.

From weak to strong: OR; AND; NOT; comparisons, IS, BETWEEN, IN, LIKE; ``||``; ``+ -``; ``* / %``; sign; ``::``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from operators.expressions import Literal
from operators.functions_coercion import decimal_type, integer_type, parse_date, parse_timestamp
from session.sql.column_types import parse_type
from session.sql.cursor import RESERVED, Cursor
from session.sql.durations import parse_interval
from session.sql.function_names import AGGREGATES, FIELD_NAMES, FUNCTION_NAMES, unknown_function
from session.sql.syntax import Node, NodeKind
from session.sql.tokens import Token
from sources.schema import BOOLEAN, DATE, DOUBLE, NULL, TIMESTAMP, VARCHAR

MAX_DEPTH = 100
MAX_NODES = 100_000

_OR, _AND, _NOT, _COMPARISON, _CONCAT, _SUM, _PRODUCT, _SIGN, _CAST = range(1, 10)
_BINARY = {
    "OR": (_OR, "or"),
    "AND": (_AND, "and"),
    **{symbol: (_COMPARISON, symbol) for symbol in ("=", "<>", "<", "<=", ">", ">=")},
    **dict.fromkeys(("IS", "BETWEEN", "IN", "LIKE", "ILIKE", "NOT"), (_COMPARISON, "")),
    "||": (_CONCAT, "concat"),
    "+": (_SUM, "+"),
    "-": (_SUM, "-"),
    "*": (_PRODUCT, "*"),
    "/": (_PRODUCT, "/"),
    "%": (_PRODUCT, "%"),
    "::": (_CAST, ""),
}
_CHAINED = ("or", "and", "concat")
_CONSTANTS = {"TRUE": Literal(True, BOOLEAN), "FALSE": Literal(False, BOOLEAN), "NULL": Literal(None, NULL)}


class ExpressionParser(Cursor):
    """A cursor that reads expressions."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nesting = 0

    def expression(self, weakest: int = _OR) -> Node:
        """Read an expression of operators at least as strong as ``weakest``."""
        self._nesting += 1
        if self._nesting > MAX_DEPTH:
            raise self._too_deep(self.token.start)
        left = self._operand()
        while self.token.kind in ("symbol", "word") and self.token.upper in _BINARY:
            strength, name = _BINARY[self.token.upper]
            if strength < weakest or (self.at("NOT") and self.ahead().upper not in _NEGATABLE):
                break
            left = self._infix(left, strength, name)
        self._nesting -= 1
        return left

    def _infix(self, left: Node, strength: int, name: str) -> Node:
        token = self.advance()
        if name in _CHAINED:
            parts = [left, self.expression(strength + 1)]
            while self.accept(token.upper):
                parts.append(self.expression(strength + 1))
            return self.node("call", token.start, name, *parts)
        if name:
            return self.node("call", token.start, name, left, self.expression(strength + 1))
        if token.upper == "::":
            return self.node("cast", token.start, parse_type(self), left)
        if token.upper == "IS":
            return self._is(left, token.start)
        negated = token.upper == "NOT"
        result = _PREDICATES[self.advance().upper if negated else token.upper](self, left, token.start)
        return self.node("call", token.start, "not", result) if negated else result

    def node(self, kind: NodeKind, at: int, value: Any, *children: Node) -> Node:
        """Return a node; SqlNotAllowed when the tree gets too deep."""
        depth = 1 + max((child.depth for child in children), default=0)
        if depth > MAX_DEPTH:
            raise self._too_deep(at)
        # the subject of CASE occurs once for each WHEN, so trees can be larger than their text
        size = 1 + sum(child.size for child in children)
        if size > MAX_NODES:
            raise self.not_allowed(f"An expression must have at most {MAX_NODES} parts; split it.", at)
        return Node(kind, at, value, children, depth, size)

    def _too_deep(self, at: int) -> Exception:
        return self.not_allowed(
            f"An expression must not be nested more than {MAX_DEPTH} deep; split it, or use IN for a list.",
            at,
        )

    def literal(self, token: Token, value: Any, kind: Any) -> Node:
        """Return the node of a constant."""
        return Node("literal", token.start, Literal(value, kind))

    # operands

    def _operand(self) -> Node:
        token = self.token
        match token.kind:
            case "number":
                return self._number(self.advance(), "")
            case "string":
                self.advance()
                return self.literal(token, token.text, VARCHAR)
            case "quoted":
                return self._name_or_call()
            case "symbol" if token.upper in ("-", "+", "("):
                return self._prefix(self.advance())
            case "word":
                return self._word(token)
        raise self.unexpected("an expression")

    def _prefix(self, token: Token) -> Node:
        if token.upper == "(":
            if self.at("SELECT", "WITH"):
                raise self.not_allowed("Subqueries are not supported yet; register the inner SELECT as its own query.")
            inner = self.expression()
            if self.at(","):
                raise self.not_allowed("Rows in parentheses are not supported; compare the columns one by one.")
            self.expect(")")
            return inner
        if token.upper == "-" and self.token.kind == "number":
            return self._number(self.advance(), "-", token)
        operand = self.expression(_SIGN)
        return self.node("call", token.start, "negate", operand) if token.upper == "-" else operand

    def _number(self, token: Token, sign: str, start: Token | None = None) -> Node:
        text = sign + token.text
        start = start or token
        if "e" in text.lower():
            value = float(text)
            if value in (float("inf"), float("-inf")):
                raise self.not_allowed(f"The number {text} is beyond what a DOUBLE holds.", start.start)
            return self.literal(start, value, DOUBLE)
        # a text so long would take Python long to read
        number = Decimal(text) if len(text) <= 100 else Decimal("Infinity")
        whole = integer_type(int(number)) if "." not in text and number.is_finite() else None
        if whole is not None:
            return self.literal(start, int(number), whole)
        if text.endswith("."):
            number = Decimal(f"{text}0")
        kind = decimal_type(number)
        if kind is None:
            raise self.not_allowed(
                "A number must have at most 38 digits; write it like 1e40 to get a DOUBLE.", start.start
            )
        return self.literal(start, number, kind)

    def _word(self, token: Token) -> Node:
        if token.upper in _CONSTANTS:
            self.advance()
            return Node("literal", token.start, _CONSTANTS[token.upper])
        if token.upper == "INTERVAL" and self.ahead().kind in ("string", "number"):
            return Node("interval", token.start, parse_interval(self))
        if token.upper in ("DATE", "TIMESTAMP") and self.ahead().kind == "string":
            return self._temporal(self.advance(), self.advance())
        if token.upper == "NOT":
            self.advance()
            return self.node("call", token.start, "not", self.expression(_NOT))
        if token.upper == "CASE":
            return self._case(self.advance())
        if token.upper == "EXISTS":
            raise self.not_allowed("Subqueries are not supported yet; register the inner SELECT as its own query.")
        if token.upper in _SPECIAL and self.ahead().upper == "(":
            self.advance()
            self.advance()
            result = _SPECIAL[token.upper](self, token)
            self.expect(")")
            return result
        if token.upper in RESERVED and token.upper not in ("LEFT", "RIGHT"):
            raise self.unexpected("an expression")
        return self._name_or_call()

    def _temporal(self, token: Token, text: Token) -> Node:
        value: dt.date | None = parse_date(text.text) if token.upper == "DATE" else parse_timestamp(text.text)
        if value is None:
            example = "2026-01-31" if token.upper == "DATE" else "2026-01-31 12:00:00"
            raise self.not_allowed(f"A {token.upper} must read like '{example}'; got {text.text!r}.", text.start)
        return self.literal(token, value, DATE if token.upper == "DATE" else TIMESTAMP)

    def _name_or_call(self) -> Node:
        token = self.token
        if self.ahead().upper == "(":
            self.advance()
            self.advance()
            return self._call(token)
        parts = [self.name("a column")]
        while self.at(".") and self.ahead().upper != "*":
            self.advance()
            parts.append(self.name("a column"))
        return Node("name", token.start, tuple(parts))

    def _call(self, token: Token) -> Node:
        name = token.text.lower()
        if name not in AGGREGATES and name not in FUNCTION_NAMES and name != "date_part":
            raise self.not_allowed(unknown_function(token.text), token.start)
        if self.at("DISTINCT"):
            raise self.not_allowed(
                f"{name.upper()}(DISTINCT …) is not supported yet; group by the column and count the rows."
            )
        self.accept("ALL")
        arguments: list[Node] = []
        if self.at("*") and name == "count":
            arguments.append(Node("star", self.advance().start, None))
        elif not self.at(")"):
            arguments.append(self.expression())
            while self.accept(","):
                arguments.append(self.expression())
        self.expect(")")
        if self.at("OVER"):
            raise self.not_allowed("OVER is not supported; write the window in FROM: FROM s [RANGE 8 SECONDS].")
        if self.at("FILTER") and self.ahead().upper == "(":
            raise self.not_allowed("FILTER is not supported; write SUM(CASE WHEN condition THEN value END).")
        if name == "date_part":
            return self._date_part(token, arguments)
        kind: NodeKind = "aggregate" if name in AGGREGATES else "call"
        return self.node(kind, token.start, FUNCTION_NAMES.get(name, name), *arguments)

    def _date_part(self, token: Token, arguments: list[Node]) -> Node:
        field = arguments[0].value if arguments and arguments[0].kind == "literal" else None
        if len(arguments) != 2 or field is None or not isinstance(field.value, str):
            raise self.not_allowed("Write DATE_PART('hour', timestamp).", token.start)
        return self.node("call", token.start, self._field(field.value, arguments[0].at), arguments[1])

    def _field(self, text: str, at: int) -> str:
        if text.lower() not in FIELD_NAMES:
            fields = ", ".join(sorted(set(FIELD_NAMES.values())))
            raise self.not_allowed(f"EXTRACT has no field {text!r}; it has {fields}.", at)
        return FIELD_NAMES[text.lower()]

    # constructs with keywords of their own

    def _case(self, token: Token) -> Node:
        subject = None if self.at("WHEN") else self.expression()
        parts: list[Node] = []
        if not self.at("WHEN"):
            raise self.unexpected("WHEN")
        while self.at("WHEN"):
            at = self.advance().start
            condition = self.expression()
            parts.append(condition if subject is None else self.node("call", at, "=", subject, condition))
            self.expect("THEN")
            parts.append(self.expression())
        if self.accept("ELSE"):
            parts.append(self.expression())
        else:
            parts.append(self.literal(token, None, NULL))
        self.expect("END")
        return self.node("call", token.start, "case", *parts)

    def _cast(self, token: Token) -> Node:
        value = self.expression()
        self.expect("AS", "and a type")
        return self.node("cast", token.start, parse_type(self), value)

    def _extract(self, token: Token) -> Node:
        field = self.token
        if field.kind not in ("word", "string"):
            raise self.unexpected("a field such as HOUR")
        self.advance()
        name = self._field(field.text, field.start)
        self.expect("FROM")
        return self.node("call", token.start, name, self.expression())

    def _trim(self, token: Token) -> Node:
        sides = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}
        if self.at(*sides) and self.ahead().upper not in (",", ")"):
            name = sides[self.advance().upper]
            if self.accept("FROM"):
                return self.node("call", token.start, name, self.expression())
        else:
            name = "trim"
        first = self.expression()
        if self.accept("FROM"):
            return self.node("call", token.start, name, self.expression(), first)
        if self.accept(","):
            return self.node("call", token.start, name, first, self.expression())
        return self.node("call", token.start, name, first)

    def _substring(self, token: Token) -> Node:
        parts = [self.expression()]
        if self.accept("FROM"):
            parts.append(self.expression())
            if self.accept("FOR"):
                parts.append(self.expression())
        else:
            while self.accept(","):
                parts.append(self.expression())
        return self.node("call", token.start, "substring", *parts)

    def _position(self, token: Token) -> Node:
        part = self.expression(_CONCAT)
        self.expect("IN")
        return self.node("call", token.start, "strpos", self.expression(), part)

    # predicates after a value

    def _is(self, left: Node, at: int) -> Node:
        negated = self.accept("NOT")
        if self.accept("DISTINCT"):
            self.expect("FROM")
            name = "is_not_distinct_from" if negated else "is_distinct_from"
            return self.node("call", at, name, left, self.expression(_CONCAT))
        if self.at("NULL", "UNKNOWN"):
            self.advance()
            result = self.node("call", at, "is_null", left)
        elif self.at("TRUE", "FALSE"):
            token = self.advance()
            wanted = token.upper == "TRUE"
            result = self.node("call", at, "coalesce", left, self.literal(token, not wanted, BOOLEAN))
            negated = negated == wanted
        else:
            raise self.unexpected("NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM")
        return self.node("call", at, "not", result) if negated else result

    def _between(self, left: Node, at: int) -> Node:
        low = self.expression(_CONCAT)
        self.expect("AND")
        return self.node("call", at, "between", left, low, self.expression(_CONCAT))

    def _in(self, left: Node, at: int) -> Node:
        self.expect("(")
        if self.at("SELECT", "WITH"):
            raise self.not_allowed("Subqueries are not supported yet; write the values, or join the streams.")
        members = [self.expression()]
        while self.accept(","):
            members.append(self.expression())
        self.expect(")")
        return self.node("call", at, "in", left, *members)

    def _like(self, left: Node, at: int, name: str = "like") -> Node:
        pattern = self.expression(_CONCAT)
        escape = [self.expression(_CONCAT)] if self.accept("ESCAPE") else []
        return self.node("call", at, name, left, pattern, *escape)

    def _ilike(self, left: Node, at: int) -> Node:
        return self._like(left, at, "ilike")


_NEGATABLE = ("BETWEEN", "IN", "LIKE", "ILIKE")
_PREDICATES: dict[str, Callable[[ExpressionParser, Node, int], Node]] = {
    "BETWEEN": ExpressionParser._between,
    "IN": ExpressionParser._in,
    "LIKE": ExpressionParser._like,
    "ILIKE": ExpressionParser._ilike,
}
_SPECIAL: dict[str, Callable[[ExpressionParser, Token], Node]] = {
    "CAST": ExpressionParser._cast,
    "EXTRACT": ExpressionParser._extract,
    "TRIM": ExpressionParser._trim,
    "SUBSTRING": ExpressionParser._substring,
    "POSITION": ExpressionParser._position,
}
