"""sqlglot's expression grammar, narrowed to Braid's and with the places of its nodes.

sqlglot accepts much that is wrong (a missing THEN, a missing bracket after CAST, an empty operand): it is refused here.
Each node's ``meta`` gets ``at``, the offset where it begins, and ``after``, the offset of the token after it: the place
of an operator is ``after`` of its left operand.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import TokenType, exp
from sqlglot.expressions import Expr
from sqlglot.parser import IsPredicatePrecedence, Parser
from sqlglot.tokenizer_core import Token

from braid.session.sql.parsing.column_types import parse_type
from braid.session.sql.parsing.cursor import Cursor
from braid.session.sql.parsing.durations import parse_interval
from braid.session.sql.parsing.function_names import AGGREGATES, DISTINCT_AGGREGATES, FUNCTION_NAMES, unknown_function

SUBQUERY = "A subquery stands in FROM, or alone between the ANDs of WHERE: x IN (SELECT …), EXISTS (SELECT …)."
_LITERALS = (TokenType.STRING, TokenType.NUMBER)


def _pick(table: dict[Any, Any], *keys: Any) -> dict[Any, Any]:
    return {key: table[key] for key in keys}


class ExpressionParser(Cursor):
    """Reads expressions as sqlglot trees."""

    # names are all words but the reserved ones
    ID_VAR_TOKENS: ClassVar[set[TokenType]] = {TokenType.VAR}
    FUNC_TOKENS: ClassVar[set[TokenType]] = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.LEFT, TokenType.RIGHT}
    # every function is exp.Anonymous and keeps its name: no typed nodes, no rewriting
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[Any, Any]] = {}
    SUBQUERY_PREDICATES: ClassVar[dict[Any, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        "CAST": lambda self: self._parse_cast(),
        # what does not convert is NULL anyway
        "TRY_CAST": lambda self: self._parse_cast(),
        "EXTRACT": lambda self: self._parse_extract(),
        "TRIM": lambda self: self._parse_trim(),
        "SUBSTRING": lambda self: self._parse_substring(),
        "POSITION": lambda self: self._parse_position(),
        **dict.fromkeys(("TIMESTAMPDIFF", "DATEDIFF", "DATE_DIFF"), lambda self: self._parse_difference()),
    }
    STRING_PARSERS: ClassVar[dict[Any, Any]] = _pick(Parser.STRING_PARSERS, TokenType.STRING)
    NUMERIC_PARSERS: ClassVar[dict[Any, Any]] = _pick(Parser.NUMERIC_PARSERS, TokenType.NUMBER)
    PRIMARY_PARSERS: ClassVar[dict[Any, Any]] = {
        **STRING_PARSERS,
        **NUMERIC_PARSERS,
        **_pick(Parser.PRIMARY_PARSERS, TokenType.NULL, TokenType.TRUE, TokenType.FALSE),
    }
    PLACEHOLDER_PARSERS: ClassVar[dict[Any, Any]] = {}
    UNARY_PARSERS: ClassVar[dict[Any, Any]] = {
        **_pick(Parser.UNARY_PARSERS, TokenType.PLUS, TokenType.NOT),
        TokenType.DASH: lambda self: self._parse_negative(),
    }
    RANGE_PARSERS: ClassVar[dict[Any, Any]] = _pick(
        Parser.RANGE_PARSERS,
        TokenType.BETWEEN,
        TokenType.IN,
        TokenType.IS,
        TokenType.LIKE,
        TokenType.ILIKE,
    )
    # price > 1 IS NULL asks about the comparison, as in PostgreSQL
    IS_PREDICATE_PRECEDENCE: ClassVar[IsPredicatePrecedence] = IsPredicatePrecedence.LOW
    BRACKETS: ClassVar[frozenset[TokenType]] = frozenset({TokenType.L_BRACKET})
    COLUMN_OPERATORS: ClassVar[dict[Any, Any]] = {
        TokenType.DOT: None,
        TokenType.ARROW: lambda self, this, path: self.extract(exp.JSONExtract, this, path),
        TokenType.DARROW: lambda self, this, path: self.extract(exp.JSONExtractScalar, this, path),
        TokenType.DCOLON: lambda self, this, to: self.expression(exp.Cast(this=this, to=to)),
    }

    def expression(self, instance: Any, token: Token | None = None, comments: list[str] | None = None) -> Any:
        """Finish a node: remember the token after it."""
        instance = super().expression(instance, token, comments)
        instance.meta["after"] = self.start
        return instance

    def _parse_bitwise(self) -> Expr | None:
        this = self._parse_term()
        while self._match(TokenType.DPIPE):
            this = self.expression(exp.DPipe(this=this, expression=self._parse_term()))
        return this

    # operands

    def _parse_unary(self) -> Expr:
        start = self.start
        this = self._parse_operand(self._curr.token_type)
        if this is None:
            raise self.unexpected("an expression")
        meta = this.meta
        # a plus sign leaves its operand as it is
        meta.setdefault("at", start)
        meta["after"] = self.start
        return this

    def _parse_operand(self, kind: TokenType) -> Expr | None:
        """Read an operand; what is nested most is read in the fewest calls, to spare the stack."""
        next_kind = self._next.token_type
        if kind in self.UNARY_PARSERS:
            self._advance()
            return self.UNARY_PARSERS[kind](self)
        if kind == TokenType.L_PAREN:
            return self._parse_column_ops(self._parse_paren())
        if kind == TokenType.CASE:
            self._advance()
            return self._parse_column_ops(self._parse_window(self._parse_case()))
        if kind in self.FUNC_TOKENS and next_kind == TokenType.L_PAREN:
            return self._parse_column_ops(self._parse_function_call())
        if kind == TokenType.DOT or self.at("CAST"):
            # sqlglot reads . 5 as a number; CAST is not reserved there
            return None
        if kind == TokenType.VAR and next_kind in _LITERALS:
            return self._parse_typed_literal() or self._parse_type(parse_interval=False)
        if self.at("EXISTS"):
            token = self.advance()
            self.expect("(", "and a SELECT")
            return self.expression(exp.Exists(this=self._parse_value_subquery()), token)
        return self._parse_type(parse_interval=False)

    def _parse_negative(self) -> Expr | None:
        if self._curr.token_type != TokenType.NUMBER:
            return self.expression(exp.Neg(this=self._parse_unary()))
        # the sign is part of the number: -2147483648 is an INT, 2147483648 is none
        token = self.advance()
        literal = exp.Literal(this=f"-{token.text}", is_string=False)
        return self._parse_column_ops(self.expression(literal, token))

    def _parse_typed_literal(self) -> Expr | None:
        """Read ``INTERVAL '1' DAY``, ``DATE '2026-01-31'`` or ``TIMESTAMP '…'``."""
        if self.at("INTERVAL"):
            interval = exp.Interval()
            interval.meta["duration"] = parse_interval(self)
            return interval
        if not self.at("DATE", "TIMESTAMP") or self._next.token_type != TokenType.STRING:
            return None
        kind = exp.DataType(this=exp.DType.DATE if self.at("DATE") else exp.DType.TIMESTAMP)
        self._advance()
        token = self.advance()
        text = self.expression(exp.Literal(this=token.text, is_string=True), token)
        return self._parse_column_ops(self.expression(exp.Cast(this=text, to=kind)))

    def _parse_paren(self) -> Expr | None:
        if not self.accept("("):
            return None
        if self.at("SELECT", "WITH", "VALUES"):
            return self._parse_value_subquery()
        this: Expr = self.expression(exp.Paren(this=self._parse_disjunction()))
        if self.at(","):
            raise self.not_allowed("Rows in parentheses are not supported; compare the columns one by one.")
        self.expect(")")
        return this

    def _parse_value_subquery(self) -> Expr:
        """Read a SELECT after an opening bracket, and the closing one."""
        subquery = exp.Subquery()
        subquery.meta["at"] = self.start
        subquery.meta["select"] = self.query()
        self.expect(")")
        return subquery

    def query(self) -> object:
        """Read a SELECT; expressions alone have none."""
        raise self.not_allowed(SUBQUERY)

    def refuse_subquery(self, detail: str = SUBQUERY) -> None:
        """Raise SqlNotAllowed at a SELECT where a value must stand."""
        if self.at("SELECT", "WITH", "VALUES"):
            raise self.not_allowed(detail)

    def _parse_field(self, any_token: bool = False, *args: Any, **kwargs: Any) -> Expr | None:
        if any_token:
            # after a dot, where sqlglot takes any token
            return exp.Identifier(this=self.name("a column"))
        return super()._parse_field(any_token, *args, **kwargs)

    def _parse_bracket(self, this: Expr | None = None) -> Expr | None:
        """Read ``[number]`` or ``['key']`` after an array or a map."""
        while this is not None and self.at("["):
            self._advance()
            place = self._parse_disjunction()
            if place is None:
                raise self.unexpected("the number of an element from 1, or a key")
            self.expect("]")
            this = self.expression(exp.Bracket(this=this, expressions=[place]))
        return this

    def extract(self, kind: type[Expr], this: Expr, path: Expr | None) -> Expr:
        """Return what ``->`` or ``->>`` takes out of JSON."""
        if path is None:
            raise self.unexpected("a key, a path or the number of an element from 0")
        path.meta.setdefault("at", self._prev.start)
        return self.expression(kind(this=this, expression=path))

    # functions

    def _parse_function_call(self, *args: Any, **kwargs: Any) -> Expr | None:
        if self._next.token_type == TokenType.L_PAREN and self._curr.token_type in self.FUNC_TOKENS:
            name = self._curr.text.lower()
            is_known = name in AGGREGATES or name in FUNCTION_NAMES or name == "date_part"
            if not is_known and name.upper() not in self.FUNCTION_PARSERS:
                raise self.not_allowed(unknown_function(self._curr.text))
        return super()._parse_function_call(*args, **kwargs)

    def _parse_function_args(self, alias: bool = False) -> list[Expr]:  # noqa: ARG002 - sqlglot's signature
        name = self._tokens[self._index - 2].text.upper()
        if self.at("DISTINCT"):
            return self._parse_distinct(name)
        self.accept("ALL")
        if self.at("*") and name == "COUNT":
            return [self.star()]
        arguments = [] if self.at(")") else self._parse_csv(self._parse_disjunction)
        if self.at("TO") and name in ("FLOOR", "CEIL", "CEILING"):
            raise self.not_allowed(f"{name} rounds numbers; write DATE_TRUNC('hour', timestamp) for the hour it is in.")
        return arguments

    def _parse_distinct(self, name: str) -> list[Expr]:
        """Read ``DISTINCT value`` inside a function."""
        if name.lower() not in AGGREGATES:
            raise self.not_allowed(f"{name} is no aggregate and takes no DISTINCT; remove the word.")
        if name.lower() not in DISTINCT_AGGREGATES:
            raise self.not_allowed(
                f"{name}(DISTINCT …) is not supported; {', '.join(map(str.upper, DISTINCT_AGGREGATES))} take DISTINCT."
                " GROUP BY the value gives each value once a window."
            )
        self._advance()
        if self.at("*"):
            raise self.not_allowed("Write COUNT(*) for all rows, or COUNT(DISTINCT value).")
        values = [] if self.at(")") else self._parse_csv(self._parse_disjunction)
        return [exp.Distinct(expressions=values)] if name == "COUNT" else values

    def star(self) -> Expr:
        """Read ``*``."""
        star = exp.Star()
        star.meta["at"] = self.expect("*").start
        return star

    def _parse_window(self, this: Expr | None, alias: bool = False) -> Expr | None:  # noqa: ARG002
        if this is not None and self.at("FILTER") and self.ahead() == "(":
            self._parse_filter(this)
        if self.at("OVER"):
            raise self.not_allowed(
                "OVER is not supported yet. An aggregate is over a window in FROM, as FROM s [RANGE 8 SECONDS]; to"
                " compare each row with it, write WHERE x = (SELECT MAX(x) FROM s)."
            )
        return this

    def _parse_filter(self, this: Expr) -> None:
        """Read ``FILTER (WHERE condition)`` behind an aggregate."""
        if not isinstance(this, exp.Anonymous) or this.name.lower() not in AGGREGATES:
            raise self.not_allowed("FILTER must follow an aggregate, as in COUNT(*) FILTER (WHERE condition).")
        self._advance(2)
        self.expect("WHERE")
        this.meta["filter"] = self._parse_disjunction()
        self.expect(")")

    def _closed(self, this: Expr) -> Expr:
        # sqlglot takes the bracket when it is there, and does not mind when it is not
        if not self.at(")"):
            raise self.unexpected(")")
        return self.expression(this)

    def _parse_cast(self, strict: bool = True, safe: bool | None = None) -> Expr:  # noqa: ARG002
        this = self._parse_disjunction()
        self.expect("AS", "and a type")
        return self._closed(exp.Cast(this=this, to=self._parse_types()))

    def _parse_types(self, check_func: bool = False, *_args: Any, **_kwargs: Any) -> Expr | None:
        if check_func:
            return None
        kind = exp.DataType(this=exp.DType.UNKNOWN)
        kind.meta["type"] = parse_type(self)
        return kind

    def _parse_dcolon(self) -> Expr | None:
        at = self._prev.start
        kind = self._parse_types()
        if kind is not None:
            kind.meta["at"] = at
        return kind

    def _parse_extract(self) -> Any:
        if self.kind not in ("word", "string"):
            raise self.unexpected("a field such as HOUR")
        field = exp.Var(this=self._curr.text)
        field.meta["at"] = self.advance().start
        self.expect("FROM")
        return self._closed(exp.Extract(this=field, expression=self._parse_disjunction()))

    def _parse_trim(self) -> Any:
        side = None
        if self.at("BOTH", "LEADING", "TRAILING") and self.ahead() not in (",", ")"):
            side = self.advance().text.upper()
        first = None if side and self.at("FROM") else self._parse_disjunction()
        if self.accept("FROM"):
            return self._closed(exp.Trim(this=self._parse_disjunction(), expression=first, position=side))
        second = self._parse_disjunction() if self.accept(",") else None
        return self._closed(exp.Trim(this=first, expression=second, position=side))

    def _parse_substring(self) -> Any:
        parts = [self._parse_disjunction()]
        if self.accept("FROM"):
            parts.append(self._parse_disjunction())
            if self.accept("FOR"):
                parts.append(self._parse_disjunction())
        else:
            while self.accept(","):
                parts.append(self._parse_disjunction())
        return self._closed(exp.Anonymous(this="substring", expressions=parts))

    def _parse_position(self, haystack_first: bool = False) -> Any:  # noqa: ARG002
        needle = self._parse_bitwise()
        self.expect("IN")
        return self._closed(exp.StrPosition(this=self._parse_disjunction(), substr=needle))

    def _parse_difference(self) -> Any:
        """Read the unit as a word or a text, and what the units are counted between."""
        name = self._tokens[self._index - 2].text
        arguments: list[Expr] = []
        if self.kind == "word" and self.ahead() == ",":
            unit = self.advance()
            arguments.append(self.expression(exp.Literal(this=unit.text, is_string=True), unit))
            self.expect(",")
        arguments.extend([] if self.at(")") else self._parse_csv(self._parse_disjunction))
        return self._closed(exp.Anonymous(this=name, expressions=arguments))

    # CASE and predicates

    def _parse_case(self) -> Expr:
        subject = None if self.at("WHEN") else self._parse_disjunction()
        if not self.at("WHEN"):
            raise self.unexpected("WHEN")
        ifs = []
        while self.at("WHEN"):
            at = self.advance().start
            condition = self._parse_disjunction()
            self.expect("THEN")
            ifs.append(exp.If(this=condition, true=self._parse_disjunction()))
            ifs[-1].meta["at"] = at
        default = self._parse_disjunction() if self.accept("ELSE") else None
        self.expect("END")
        return self.expression(exp.Case(this=subject, ifs=ifs, default=default))

    def _parse_is_rhs(self, distinct: bool = False) -> Expr | None:
        if distinct:
            return self._parse_bitwise()
        if self.at("NULL", "UNKNOWN"):
            self._advance()
            return self.expression(exp.Null())
        if self.at("TRUE", "FALSE"):
            token = self.advance()
            return self.expression(exp.Boolean(this=token.text.upper() == "TRUE"), token)
        raise self.unexpected("NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM")

    def _parse_between(self, this: Expr | None) -> exp.Between:
        symmetric = False
        # before AND it is a column of that name
        if self.at("SYMMETRIC", "ASYMMETRIC") and self.ahead() != "AND":
            symmetric = self.advance().text.upper() == "SYMMETRIC"
        low = self._parse_bitwise()
        self.expect("AND")
        return self.expression(exp.Between(this=this, low=low, high=self._parse_bitwise(), symmetric=symmetric))

    def _parse_in(self, this: Expr | None, alias: bool = False) -> exp.In:  # noqa: ARG002
        self.expect("(")
        if self.at("SELECT", "WITH", "VALUES"):
            return self.expression(exp.In(this=this, query=self._parse_value_subquery()))
        members = self._parse_csv(self._parse_disjunction)
        self.expect(")")
        return self.expression(exp.In(this=this, expressions=members))
