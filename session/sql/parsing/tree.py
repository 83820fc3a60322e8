"""From sqlglot's trees to Braid's: one table of the nodes that Braid has, and a refusal of all others."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from sqlglot import exp
from sqlglot.expressions import Expr

from braid.operators.expressions import Literal
from braid.operators.functions.coercion import decimal_type, integer_type, parse_date, parse_timestamp
from braid.session.sql.parsing.function_names import AGGREGATES, FIELD_NAMES, FUNCTION_NAMES
from braid.session.sql.parsing.limits import MAX_DEPTH, MAX_NODES
from braid.session.sql.parsing.tokens import SqlText
from braid.session.sql.syntax import Node, NodeKind
from braid.sources.core.schema import BOOLEAN, DATE, DOUBLE, INT, NULL, TIMESTAMP, VARCHAR

# operators of two operands, and their names in braid.operators.functions
_BINARY: dict[type[Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "is_not_distinct_from",
    exp.NullSafeNEQ: "is_distinct_from",
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.Like: "like",
    exp.ILike: "ilike",
    exp.JSONExtract: "json_extract",
    exp.JSONExtractScalar: "json_extract_string",
}
# operators of which a AND b AND c is one call
_CHAINED: dict[type[Expr], str] = {exp.And: "and", exp.Or: "or", exp.DPipe: "concat"}
_SIDES = {None: "trim", "BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}
_REFUSED: dict[type[Expr], str] = {
    exp.AtTimeZone: "AT TIME ZONE is not supported: all times are UTC.",
    exp.Concat: "Texts side by side are not joined; write || between them.",
}


class TreeReader:
    """Turns the expressions of one statement into nodes.

    Operators lean to the left, as deep as the text is long: their left operands are walked without recursion.
    """

    def __init__(self, sql: SqlText) -> None:
        self._sql = sql

    def read(self, expression: Expr) -> Node:
        """Return the node of an expression; SqlNotAllowed for what Braid does not have."""
        spine: list[Expr] = []
        while type(expression) in _LEANING:
            spine.append(expression)
            # LIKE … ESCAPE is a node around a node, and one operator here
            expression = expression.this.this if isinstance(expression, exp.Escape) else expression.this
        leaf = _LEAVES.get(type(expression))
        if leaf is None:
            raise self._unsupported(expression)
        node = leaf(self, expression)
        while spine:
            part = spine.pop()
            node = self._chain(part, spine, node) if type(part) in _CHAINED else _LEANING[type(part)](self, part, node)
        return node

    def call(self, name: str, at: int, *children: Node) -> Node:
        """Return the node of a call."""
        return self.node("call", at, name, *children)

    def node(self, kind: NodeKind, at: int, value: Any, *children: Node) -> Node:
        """Return a node; SqlNotAllowed when the tree gets too deep or too large."""
        depth = 1 + max((child.depth for child in children), default=0)
        if depth > MAX_DEPTH:
            raise self._sql.not_allowed(
                f"An expression must not be nested more than {MAX_DEPTH} deep; split it, or use IN for a list.", at
            )
        # the subject of CASE occurs once for each WHEN, so trees can be larger than their text
        size = 1 + sum(child.size for child in children)
        if size > MAX_NODES:
            raise self._sql.not_allowed(f"An expression must have at most {MAX_NODES} parts; split it.", at)
        return Node(kind, at, value, children, depth, size)

    def _unsupported(self, expression: Expr) -> Exception:
        detail = _REFUSED.get(type(expression), f"{expression.key.upper()} is not supported in an expression.")
        return self._sql.not_allowed(detail, _at(expression))

    # operators

    def _chain(self, part: Expr, spine: list[Expr], first: Node) -> Node:
        kind = type(part)
        parts = [first, self.read(part.expression)]
        at = _after(part.this)
        while spine and type(spine[-1]) is kind:
            parts.append(self.read(spine.pop().expression))
        return self.call(_CHAINED[kind], at, *parts)

    def _subquery(self, leaf: Expr) -> Node:
        return self.node("subquery", leaf.meta["at"], leaf.meta["select"])

    def _exists(self, leaf: Expr) -> Node:
        return self.call("exists", _at(leaf), self.read(leaf.this))

    def _binary(self, part: Expr, left: Node) -> Node:
        at = _after(part.this)
        node = self.call(_BINARY[type(part)], at, left, self.read(part.expression))
        return self.call("not", at, node) if part.args.get("negate") else node

    def _escape(self, part: Expr, left: Node) -> Node:
        like = part.this
        at = _after(like.this)
        operands = (left, self.read(like.expression), self.read(part.expression))
        node = self.call(_BINARY[type(like)], at, *operands)
        return self.call("not", at, node) if like.args.get("negate") else node

    def _between(self, part: Expr, left: Node) -> Node:
        low, high = self.read(part.args["low"]), self.read(part.args["high"])
        at = _after(part.this)
        if not part.args.get("symmetric"):
            return self.call("between", at, left, low, high)
        if _is_number(low) and _is_number(high):
            return self.call("between", at, left, *sorted((low, high), key=lambda bound: bound.value.value))
        ranges = (self.call("between", at, left, *bounds) for bounds in ((low, high), (high, low)))
        return self.call("or", at, *ranges)

    def _in(self, part: Expr, left: Node) -> Node:
        if (subquery := part.args.get("query")) is not None:
            return self.call("in_subquery", _after(part.this), left, self.read(subquery))
        return self.call("in", _after(part.this), left, *map(self.read, part.expressions))

    def _is(self, part: Expr, left: Node) -> Node:
        """Return ``IS NULL``, ``IS TRUE`` or ``IS FALSE``; the last two replace NULL by the other truth value."""
        at, right = _after(part.this), part.expression
        if isinstance(right, exp.Null):
            return self.call("is_null", at, left)
        is_true = bool(right.this)
        result = self.call("coalesce", at, left, Node("literal", _at(right), Literal(not is_true, BOOLEAN)))
        return result if is_true else self.call("not", at, result)

    def _not(self, part: Expr, operand: Node) -> Node:
        if "at" in part.meta:
            return self.call("not", part.meta["at"], operand)
        # a NOT IN (…), a IS NOT NULL: sqlglot's NOT stands around the predicate
        if isinstance(part.this, exp.Is) and operand.value == "not":
            return operand.children[0]
        return self.call("not", operand.at, operand)

    def _negative(self, part: Expr, operand: Node) -> Node:
        return self.call("negate", _at(part), operand)

    def _paren(self, part: Expr, inner: Node) -> Node:  # noqa: ARG002 - one of the readers
        return inner

    def _cast(self, part: Expr, value: Node) -> Node:
        kind = part.args["to"]
        if "type" in kind.meta:
            return self.node("cast", kind.meta.get("at", _at(part)), kind.meta["type"], value)
        # DATE '…' and TIMESTAMP '…'
        text, is_date = value.value.value, kind.this == exp.DType.DATE
        moment = parse_date(text) if is_date else parse_timestamp(text)
        if moment is None:
            name, example = ("DATE", "2026-01-31") if is_date else ("TIMESTAMP", "2026-01-31 12:00:00")
            raise self._sql.not_allowed(f"A {name} must read like '{example}'; got {text!r}.", value.at)
        return Node("literal", _at(part), Literal(moment, DATE if is_date else TIMESTAMP))

    def _dot(self, part: Expr, left: Node) -> Node:
        """Return a longer name, whose parts are told apart when columns are known; or a member of what is no name."""
        member = part.expression.name
        if left.kind == "name":
            return Node("name", left.at, (*left.value, member))
        return self.call("member", left.at, left, Node("literal", left.at, Literal(member, VARCHAR)))

    def _bracket(self, part: Expr, left: Node) -> Node:
        return self.call("element", _after(part.this), left, self.read(part.expressions[0]))

    # operands

    def _column(self, leaf: Expr) -> Node:
        parts = [leaf.args[key] for key in ("catalog", "db", "table", "this") if leaf.args.get(key) is not None]
        if isinstance(parts[-1], exp.Star):
            return Node("star", _at(leaf), parts[0].name)
        return Node("name", _at(leaf), tuple(part.name for part in parts))

    def _star(self, leaf: Expr) -> Node:
        return Node("star", _at(leaf), None)

    def _constant(self, leaf: Expr) -> Node:
        literal = Literal(None, NULL) if isinstance(leaf, exp.Null) else Literal(bool(leaf.this), BOOLEAN)
        return Node("literal", _at(leaf), literal)

    def _literal(self, leaf: Expr) -> Node:
        text: str = leaf.this
        at = _at(leaf)
        return Node("literal", at, Literal(text, VARCHAR) if leaf.is_string else self.number(text, at))

    def number(self, text: str, at: int) -> Literal:
        """Return the literal of a number; SqlNotAllowed when no type holds it."""
        if "e" in text.lower():
            value = float(text)
            if value in (float("inf"), float("-inf")):
                raise self._sql.not_allowed(f"The number {text} is beyond what a DOUBLE holds.", at)
            return Literal(value, DOUBLE)
        # Python would take long to read a longer text
        number = Decimal(text) if len(text) <= 100 else Decimal("Infinity")
        int_type = integer_type(int(number)) if "." not in text and number.is_finite() else None
        if int_type is not None:
            return Literal(int(number), int_type)
        if text.endswith("."):
            number = Decimal(f"{text}0")
        kind = decimal_type(number)
        if kind is None:
            raise self._sql.not_allowed("A number must have at most 38 digits; write it like 1e40 to get a DOUBLE.", at)
        return Literal(number, kind)

    def _interval(self, leaf: Expr) -> Node:
        return Node("interval", _at(leaf), leaf.meta["duration"])

    def _case(self, leaf: Expr) -> Node:
        subject = None if leaf.this is None else self.read(leaf.this)
        parts: list[Node] = []
        for branch in leaf.args["ifs"]:
            condition = self.read(branch.this)
            parts.append(condition if subject is None else self.call("=", _at(branch), subject, condition))
            parts.append(self.read(branch.args["true"]))
        default = leaf.args.get("default")
        parts.append(Node("literal", _at(leaf), Literal(None, NULL)) if default is None else self.read(default))
        return self.call("case", _at(leaf), *parts)

    # functions

    def _function(self, leaf: Expr) -> Node:
        name, operands = leaf.name.lower(), leaf.expressions
        distinct = bool(operands) and isinstance(operands[0], exp.Distinct)
        arguments = [self.read(argument) for argument in (operands[0].expressions if distinct else operands)]
        if name == "date_part":
            return self._date_part(_at(leaf), arguments)
        if name in AGGREGATES:
            if "filter" in leaf.meta:
                condition = self.read(leaf.meta["filter"])
                arguments = [self._where(condition, argument) for argument in arguments]
            return self.node("aggregate", _at(leaf), "count_distinct" if distinct else AGGREGATES[name], *arguments)
        return self.call(FUNCTION_NAMES.get(name, name), _at(leaf), *arguments)

    def _where(self, condition: Node, value: Node) -> Node:
        """Return what an aggregate with FILTER takes in: the value where the condition holds, else NULL."""
        at = condition.at
        value = Node("literal", at, Literal(1, INT)) if value.kind == "star" else value
        return self.call("case", at, condition, value, Node("literal", at, Literal(None, NULL)))

    def _date_part(self, at: int, arguments: list[Node]) -> Node:
        field = arguments[0].value if arguments and arguments[0].kind == "literal" else None
        if len(arguments) != 2 or field is None or not isinstance(field.value, str):
            raise self._sql.not_allowed("Write DATE_PART('hour', timestamp).", at)
        return self.call(self._field(field.value, arguments[0].at), at, arguments[1])

    def _extract(self, leaf: Expr) -> Node:
        return self.call(self._field(leaf.name, _at(leaf.this)), _at(leaf), self.read(leaf.expression))

    def _field(self, text: str, at: int) -> str:
        if text.lower() not in FIELD_NAMES:
            fields = ", ".join(sorted(set(FIELD_NAMES.values())))
            raise self._sql.not_allowed(f"EXTRACT has no field {text!r}; it has {fields}.", at)
        return FIELD_NAMES[text.lower()]

    def _trim(self, leaf: Expr) -> Node:
        return self._call_of_parts(_SIDES[leaf.args.get("position")], leaf, "this", "expression")

    def _position(self, leaf: Expr) -> Node:
        return self._call_of_parts("strpos", leaf, "this", "substr")

    def _call_of_parts(self, name: str, leaf: Expr, *keys: str) -> Node:
        operands = [leaf.args[key] for key in keys if leaf.args.get(key) is not None]
        return self.call(name, _at(leaf), *map(self.read, operands))


def _is_number(node: Node) -> bool:
    return node.kind == "literal" and bool(node.value.type.is_numeric)


def _at(expression: Expr) -> int:
    """Return the offset where a node begins; where sqlglot made it up, where its first part does."""
    current: Any = expression
    while isinstance(current, Expr):
        at = current.meta.get("at", current.meta.get("start"))
        if at is not None:
            return int(at)
        current = current.this
    return 0


def _after(left: Expr) -> int:
    """Return the offset of the operator after its left operand."""
    current: Any = left
    while isinstance(current, Expr):
        if "after" in current.meta:
            return int(current.meta["after"])
        current = current.this
    return 0


_LEANING: dict[type[Expr], Callable[[TreeReader, Expr, Node], Node]] = {
    **dict.fromkeys(_BINARY, TreeReader._binary),
    # read by _chain, many at once
    **dict.fromkeys(_CHAINED, TreeReader._binary),
    exp.Escape: TreeReader._escape,
    exp.Between: TreeReader._between,
    exp.In: TreeReader._in,
    exp.Is: TreeReader._is,
    exp.Not: TreeReader._not,
    exp.Neg: TreeReader._negative,
    exp.Paren: TreeReader._paren,
    exp.Dot: TreeReader._dot,
    exp.Bracket: TreeReader._bracket,
    exp.Cast: TreeReader._cast,
}
_LEAVES: dict[type[Expr], Callable[[TreeReader, Expr], Node]] = {
    exp.Subquery: TreeReader._subquery,
    exp.Exists: TreeReader._exists,
    exp.Column: TreeReader._column,
    exp.Star: TreeReader._star,
    exp.Null: TreeReader._constant,
    exp.Boolean: TreeReader._constant,
    exp.Literal: TreeReader._literal,
    exp.Interval: TreeReader._interval,
    exp.Case: TreeReader._case,
    exp.Anonymous: TreeReader._function,
    exp.Extract: TreeReader._extract,
    exp.Trim: TreeReader._trim,
    exp.StrPosition: TreeReader._position,
}
