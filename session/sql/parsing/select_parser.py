"""Braid's SQL as a dialect of sqlglot: the grammar of SELECT with windows, and hints at what to write instead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from sqlglot import TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.expressions import Expr

from braid.session.sql.parsing.cursor import word_of
from braid.session.sql.parsing.emit import parse_emit
from braid.session.sql.parsing.expression_parser import ExpressionParser
from braid.session.sql.parsing.function_names import HIGHEST_ROW
from braid.session.sql.parsing.tokenizer import RESERVED, BraidTokenizer
from braid.session.sql.parsing.tree import TreeReader
from braid.session.sql.parsing.windows import WINDOW_FUNCTIONS, parse_range, parse_window_function
from braid.session.sql.statements import (
    SUBQUERY,
    UNNEST,
    InlineRows,
    JoinedSource,
    Select,
    SelectItem,
    Unnested,
    WindowedSource,
)
from braid.session.sql.syntax import Node
from braid.sources.connectors.static_table import INLINE

_REFUSED_JOINS = {
    "RIGHT": "RIGHT JOIN is not supported; swap the streams and write LEFT JOIN.",
    "FULL": "FULL JOIN is not supported yet; write LEFT JOIN or JOIN.",
    "CROSS": "CROSS JOIN is not supported: a join of streams needs equal columns. Write JOIN … ON a.x = b.x.",
    "ASOF": "ASOF JOIN is not supported yet; for values that seldom change, join with a static table.",
    "NATURAL": "NATURAL JOIN is not supported; write JOIN … USING (column).",
    "OUTER": "Write LEFT OUTER JOIN; there is no other outer join.",
}
_REFUSED_CLAUSES = {
    "ORDER": "ORDER BY is not supported yet. Rows of windows come by the window's end; sort those of one where you"
    f" read them. {HIGHEST_ROW}",
    "LIMIT": "LIMIT is not supported: a continuous query has no last row. Read with `braid query --limit` or ?limit=.",
    "OFFSET": "OFFSET is not supported: read with ?after= instead.",
    "FETCH": "FETCH is not supported: a continuous query has no last row. Read with `braid query --limit` or ?limit=.",
    "EXCEPT": "EXCEPT is not supported; write WHERE x NOT IN (SELECT …), over a window or a static table.",
    "INTERSECT": "INTERSECT is not supported; write WHERE x IN (SELECT …), over a window or a static table.",
    "WINDOW": "WINDOW is not supported; write the window in FROM: FROM s [RANGE 8 SECONDS].",
    "QUALIFY": f"QUALIFY is not supported, as there is no OVER yet. {HIGHEST_ROW} Write HAVING for a condition on"
    " aggregates.",
    "TRIGGER": "TRIGGER is not supported; EMIT at the end says when rows come: EMIT STREAM for every change.",
    "MATCH_RECOGNIZE": "MATCH_RECOGNIZE is not supported; [SESSION 5 SECONDS] brings rows together that follow soon.",
    "TABLESAMPLE": "TABLESAMPLE is not supported; a tenth of the rows: WHERE MOD(id, 10) = 0.",
    "PIVOT": "PIVOT is not supported; write an aggregate a column: COUNT_IF(x = 1), SUM(y) FILTER (WHERE x = 1).",
    "FOR": "FOR SYSTEM_TIME AS OF is not supported yet; a join with a static table has its rows as they are.",
    **dict.fromkeys(("SIMILAR", "RLIKE", "REGEXP", "GLOB"), "Write REGEXP_LIKE(text, pattern)."),
}


MAX_DEPTH = 16
"""How deep subqueries may be nested."""

# which words follow an input, and so are no alias of it unless AS stands before them
_FOLLOWING = frozenset({*_REFUSED_JOINS, *_REFUSED_CLAUSES})

_OPENING, _CLOSING = ("(", "[", "CASE"), (")", "]", "END")


class BraidParser(ExpressionParser):
    """Reads SELECT statements."""

    OPERATION_MODIFIERS: ClassVar[set[str]] = set()
    _depth = 0

    def query(self) -> Select:
        """Read ``[WITH …] SELECT … [UNION ALL SELECT …]`` up to where it ends."""
        start = self.start
        named = self._parse_named()
        first, *others = self._parse_branches()
        span = (first.start, first.end) if others else (0, 0)
        return replace(first, start=start, end=self.previous_end, named=named, union=tuple(others), first=span)

    def _parse_named(self) -> tuple[tuple[str, Select], ...]:
        """Read ``WITH name AS (query), …`` if it is there."""
        if not self.accept("WITH"):
            return ()
        if self.at("RECURSIVE") and self.ahead() != "AS":
            raise self.not_allowed("WITH RECURSIVE is not supported; write each level as a subquery of its own.")
        named: dict[str, Select] = {}
        while True:
            at, name = self.start, self.name("the name of a subquery")
            if name.lower() in named:
                raise self.not_allowed(f"Names in WITH must differ; {name!r} is there twice.", at)
            columns_at = self.start
            columns = self._parse_column_names() if self.accept("(") else ()
            self.expect("AS", "and a SELECT in brackets")
            named[name.lower()] = self._with_columns(self._parse_bracketed(), columns, columns_at)
            if not self.accept(","):
                return tuple(named.items())

    def _parse_branches(self) -> list[Select]:
        """Read SELECTs, in brackets or not, with UNION ALL between them."""
        branches = []
        while True:
            if self.at("("):
                branch = self._parse_bracketed()
                branches += [replace(branch, union=()), *branch.union] if not branch.named else [branch]
            else:
                branches.append(self.select())
            if not self.accept("UNION"):
                return branches
            if not self.accept("ALL"):
                raise self.not_allowed(
                    "UNION removes duplicates, which a stream without an end cannot; write UNION ALL. GROUP BY over a"
                    " window gives each value once a window.",
                    self.start,
                )

    def _parse_bracketed(self) -> Select:
        self.expect("(")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.not_allowed(
                f"Subqueries may be nested {MAX_DEPTH} deep; these are deeper. Write CREATE QUERY for an inner one, and"
                " name it in FROM."
            )
        query = self.query()
        self._depth -= 1
        self.expect(")")
        return query

    def select(self) -> Select:
        """Read one SELECT up to where it ends."""
        start = self.start
        if self.at("VALUES"):
            source = self._parse_values()
            star = SelectItem(Node("star", start, None), None, "*")
            return Select(self.sql_text, start, self.previous_end, (star,), source, is_values=True)
        if not self.at("SELECT"):
            raise self.unexpected("SELECT")
        tree = self._parse_select_query(parse_set_operation=False)
        assert isinstance(tree, exp.Select)
        reader = TreeReader(self.sql_text)
        where, group, having = (tree.args.get(key) for key in ("where", "group", "having"))
        return Select(
            self.sql_text,
            start,
            self.previous_end,
            tuple(self._item(reader, item) for item in tree.expressions),
            tree.args["from_"].this.meta["source"],
            None if where is None else reader.read(where.this),
            () if group is None else tuple(map(reader.read, group.expressions)),
            None if having is None else reader.read(having.this),
            tree.meta.get("emit"),
            tuple(
                replace(joined, on=None if condition is None else reader.read(condition))
                for joined, condition in tree.meta["joins"]
            ),
        )

    def scalar(self) -> tuple[Node, str]:
        """Read the expression of a column, and return its text, too; NOT NULL after it is not part of it."""
        start = self.start
        self._keep_not_null()
        node = TreeReader(self.sql_text).read(self._parse_condition("an expression"))
        return node, " ".join(self.sql[start : self.previous_end].split())

    def _keep_not_null(self) -> None:
        """Have the next expression end before NOT NULL, which sqlglot reads as IS NOT NULL."""
        depth = 0
        for at in range(self._index, self._tokens_size - 1):
            before, word, after = (word_of(self._tokens[place]) for place in (at - 1, at, at + 1))
            depth += (word in _OPENING) - (word in _CLOSING)
            if depth < 0 or (not depth and word == ","):
                return
            if not depth and (word, after) == ("NOT", "NULL") and before != "IS":
                self._tokens[at].token_type = TokenType.COMMAND
                return

    @staticmethod
    def _item(reader: TreeReader, item: Expr) -> SelectItem:
        alias = item.alias if isinstance(item, exp.Alias) else None
        value = item.this if isinstance(item, exp.Alias) else item
        return SelectItem(reader.read(value), alias, value.meta["text"])

    def _parse_statement(self) -> Expr | None:
        return self._parse_select_query(parse_set_operation=False)

    def _parse_select(self, *_args: Any, **_kwargs: Any) -> None:
        # sqlglot looks for subqueries in many places
        self.refuse_subquery()

    # the select list

    def _parse_projections(self) -> tuple[list[Expr], list[Expr] | None]:
        if self._prev.token_type == TokenType.DISTINCT:
            raise self.not_allowed(
                "SELECT DISTINCT is not supported yet; write GROUP BY over a window to get each value once a window.",
                self._prev.start,
            )
        if self._prev.token_type == TokenType.ALIAS:
            # sqlglot reads SELECT AS STRUCT, too
            raise self.syntax_error("Expected an expression, got 'AS'.", self._prev.start)
        return self._parse_csv(self._parse_expression), None

    def _parse_expression(self) -> Expr:
        start = self.start
        star = self._parse_star_item()
        if star and self.at("EXCEPT", "EXCLUDE", "REPLACE"):
            raise self.not_allowed(f"* {self.word} is not supported; list the columns.")
        this = star or self._parse_disjunction()
        if this is None:
            raise self.unexpected("an expression")
        this.meta["text"] = " ".join(self.sql[start : self.previous_end].split())
        return this if star else self._parse_alias(this)

    def _parse_star_item(self) -> Expr | None:
        start = self.start
        if self.at("*"):
            return self.star()
        if self.kind in ("word", "quoted") and self.ahead() == "." and self.ahead(2) == "*":
            table = exp.Identifier(this=self.name("the name of a stream"))
            self.expect(".")
            column = exp.Column(this=self.star(), table=table)
            column.meta["at"] = start
            return column
        return None

    def _parse_alias(self, this: Any, explicit: bool = False) -> Any:  # noqa: ARG002 - sqlglot's signature
        alias = self._optional_name("the name of an output column")
        return this if alias is None else exp.Alias(this=this, alias=exp.Identifier(this=alias))

    def _optional_name(self, expected: str) -> str | None:
        if self.at("AS") and self.ahead() == "OF":
            raise self.not_allowed(
                "AS OF is not supported: a query reads what comes. One that is to begin in the past says so:"
                " CREATE QUERY name WITH (start = '-1 hour') AS SELECT …."
            )
        if self.accept("AS"):
            return self.name(expected)
        if self.kind == "quoted" or (self.kind == "word" and self.word not in RESERVED | _FOLLOWING):
            return self.name(expected)
        return None

    # FROM

    def _parse_from(self, *_args: Any, **_kwargs: Any) -> exp.From:
        self.expect("FROM", "and a stream")
        return exp.From(this=self._parse_table())

    def _parse_table(self, *_args: Any, **_kwargs: Any) -> Expr:
        wrapped = self.at("TABLE") and self.ahead() == "("
        if wrapped:
            self._advance(2)
        source = self._parse_source()
        if wrapped:
            self.expect(")")
        source = self._parse_range_of(source)
        alias = self._optional_name("the alias of the stream")
        source = source if alias is None else replace(source, alias=alias)
        columns_at = self.start
        if source.unnest is not None and alias is not None and self.accept("("):
            source = replace(source, unnest=replace(source.unnest, columns=self._parse_column_names()))
        elif source.inline is not None and alias is not None and self.accept("("):
            source = replace(source, inline=self._with_names(source.inline, self._parse_column_names(), columns_at))
        elif source.select is not None and alias is not None and self.accept("("):
            source = replace(source, select=self._with_columns(source.select, self._parse_column_names(), columns_at))
        # the window may also follow the alias
        source = self._parse_range_of(source)
        table = exp.Table(this=exp.Identifier(this=source.stream))
        table.meta["source"] = source
        return table

    def _parse_source(self) -> WindowedSource:
        if self.at("("):
            at = self.start
            if self.ahead() == "VALUES":
                self.expect("(")
                source = self._parse_values()
                self.expect(")")
                return source
            return WindowedSource(at=at, stream=SUBQUERY, select=self._parse_bracketed())
        if self.ahead() == "(" and (self.word in WINDOW_FUNCTIONS or self.word == "TABLE"):
            return parse_window_function(self)
        if self.at("UNNEST") and self.ahead() == "(":
            return self._parse_elements()
        if self.at("VALUES"):
            raise self.not_allowed("VALUES stands in brackets: FROM (VALUES (1, 'a'), (2, 'b')) AS v (id, name).")
        if self.at("LATERAL"):
            raise self.not_allowed("LATERAL is not supported; name a stream in FROM.")
        return WindowedSource(at=self.start, stream=self.name("the name of a stream"))

    def _parse_values(self) -> WindowedSource:
        """Read ``VALUES (expression, …), …``; a value that is alone needs no brackets."""
        at, rows = self.advance().start, list[tuple[Node, ...]]()
        reader = TreeReader(self.sql_text)
        while not rows or self.accept(","):
            row_at, bracketed = self.start, self.accept("(")
            values = self._parse_csv(self._parse_disjunction) if bracketed else [self._parse_disjunction()]
            if not all(values):
                raise self.unexpected("a value")
            if bracketed:
                self.expect(")")
            rows.append(tuple(reader.read(value) for value in values if value is not None))
            if len(rows[-1]) != len(rows[0]):
                raise self.not_allowed(f"All rows of VALUES need as many values; this has {len(rows[-1])}.", row_at)
        names = tuple(f"column{number}" for number in range(1, len(rows[0]) + 1))
        return WindowedSource(stream=INLINE, at=at, inline=InlineRows(tuple(rows), names))

    def _parse_elements(self) -> WindowedSource:
        """Read ``UNNEST(array) [WITH ORDINALITY]``."""
        at = self.advance().start
        self.expect("(")
        array = TreeReader(self.sql_text).read(self._parse_condition("an array"))
        if self.at(","):
            raise self.not_allowed("UNNEST takes one array; write UNNEST(a), UNNEST(b) for all pairs of two.")
        self.expect(")")
        return WindowedSource(stream=UNNEST, at=at, unnest=Unnested(array, self.accept_all("WITH", "ORDINALITY")))

    def _parse_column_names(self) -> tuple[str, ...]:
        names = [self.name("the name of a column")]
        while self.accept(","):
            names.append(self.name("the name of a column"))
        self.expect(")")
        return tuple(names)

    def _with_names(self, rows: InlineRows, names: tuple[str, ...], at: int) -> InlineRows:
        if names and len(names) != len(rows.names):
            raise self.not_allowed(
                f"VALUES have {len(rows.names)} column(s), and {len(names)} name(s) follow; write one each.", at
            )
        return replace(rows, names=names or rows.names)

    def _with_columns(self, select: Select, names: tuple[str, ...], at: int) -> Select:
        """Return a subquery whose columns have other names, where there are some."""
        if not names:
            return select
        if (rows := select.source.inline) is not None and select.is_values:
            source = replace(select.source, inline=self._with_names(rows, names, at))
            return replace(select, source=source)
        if len(names) != len(select.items) or any(item.node.kind == "star" for item in select.items):
            raise self.not_allowed(
                "The names in brackets are those of the columns that the SELECT of the subquery lists, one each; or"
                " write AS there.",
                at,
            )
        items = (replace(item, alias=name) for item, name in zip(select.items, names, strict=True))
        return replace(select, items=tuple(items))

    def _parse_range_of(self, source: WindowedSource) -> WindowedSource:
        if not self.at("["):
            return source
        at = self.start
        if source.window is not None:
            raise self.not_allowed("A stream must have one window; this one has two. Remove one.")
        return replace(source, window=parse_range(self), window_at=at)

    # what follows FROM

    def _parse_query_modifiers(self, this: Any) -> Any:
        this.meta["joins"] = list(iter(self._parse_joined, None))
        this.set("where", self._parse_where())
        this.set("group", self._parse_group())
        this.set("having", self._parse_having())
        if self.at("EMIT"):
            this.meta["emit"] = parse_emit(self)
        if self.word in _REFUSED_CLAUSES:
            raise self.not_allowed(_REFUSED_CLAUSES[self.word])
        return this

    def _parse_joined(self) -> tuple[JoinedSource, Expr | None] | None:
        """Read a further input of FROM with the condition of its ON, if one comes."""
        if self.accept(","):
            return JoinedSource(self._parse_table().meta["source"]), None
        if self.ahead(2) == "UNNEST" and self.accept_all("CROSS", "JOIN"):
            return JoinedSource(self._parse_table().meta["source"]), None
        if self.word in _REFUSED_JOINS:
            raise self.not_allowed(_REFUSED_JOINS[self.word])
        left = self.accept("LEFT")
        if left:
            self.accept("OUTER")
        if not left and not self.at("INNER", "JOIN"):
            return None
        if not left:
            self.accept("INNER")
        self.expect("JOIN")
        joined = JoinedSource(self._parse_table().meta["source"], left)
        if self.accept("ON"):
            return joined, self._parse_condition()
        if not self.accept("USING"):
            raise self.unexpected("ON and a condition, or USING and columns")
        self.expect("(")
        columns = [(self.start, self.name("a column"))]
        while self.accept(","):
            columns.append((self.start, self.name("a column")))
        self.expect(")")
        return replace(joined, using=tuple((name, at) for at, name in columns)), None

    def _parse_condition(self, expected: str = "a condition") -> Expr:
        condition = self._parse_disjunction()
        if condition is None:
            raise self.unexpected(expected)
        return condition

    def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:  # noqa: ARG002
        if not self.accept("GROUP"):
            return None
        self.expect("BY")
        if self.at("ROLLUP", "CUBE", "GROUPING") and self.ahead() in ("(", "SETS"):
            raise self.not_allowed("GROUPING SETS, ROLLUP and CUBE are not supported; register one query per grouping.")
        if self.at("ALL"):
            raise self.not_allowed("GROUP BY ALL is not supported; name the columns.")
        return exp.Group(expressions=self._parse_csv(self._parse_disjunction))


class Braid(Dialect):
    """The words, the expressions and the SELECT of Braid; ``session/sql/parser.py`` reads the other statements."""

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
