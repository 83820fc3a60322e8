"""Parse SELECT, and refuse with a hint what this version does not have."""

from __future__ import annotations

from dataclasses import replace

from session.sql.cursor import RESERVED
from session.sql.expression_parser import ExpressionParser
from session.sql.statements import Select, SelectItem, WindowedSource
from session.sql.syntax import Node
from session.sql.windows import WINDOW_FUNCTIONS, parse_range, parse_window_function

_JOINS = "Joins of streams and of static tables are not supported yet in this version; register one query per stream."
_JOIN_WORDS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "OUTER", ",")
_REFUSED_CLAUSES = {
    "ORDER": "ORDER BY is not supported: a stream has no end to sort at. Rows come in order of time already.",
    "LIMIT": "LIMIT is not supported: a continuous query has no last row. Read with ?limit= instead.",
    "OFFSET": "OFFSET is not supported: read with ?after= instead.",
    "FETCH": "FETCH is not supported: a continuous query has no last row. Read with ?limit= instead.",
    "UNION": "UNION is not supported yet; register each SELECT as its own query.",
    "EXCEPT": "EXCEPT is not supported; write the condition in WHERE.",
    "INTERSECT": "INTERSECT is not supported; write the condition in WHERE.",
    "WINDOW": "WINDOW is not supported; write the window in FROM: FROM s [RANGE 8 SECONDS].",
    "QUALIFY": "QUALIFY is not supported; write HAVING for a condition on aggregates.",
}


class SelectParser(ExpressionParser):
    """A cursor that reads SELECT statements."""

    def select(self) -> Select:
        """Read a SELECT up to where it ends."""
        if self.at("WITH"):
            raise self.not_allowed("WITH is not supported yet; register the inner SELECT as its own query.")
        start = self.expect("SELECT").start
        if self.at("DISTINCT"):
            raise self.not_allowed(
                "SELECT DISTINCT is not supported yet; write GROUP BY over a window to get each value once a window."
            )
        self.accept("ALL")
        items = [self._item()]
        while self.accept(","):
            items.append(self._item())
        self.expect("FROM", "and a stream")
        source = self._source()
        where = self.expression() if self.accept("WHERE") else None
        group_by = self._group_by()
        having = self.expression() if self.accept("HAVING") else None
        emit_at = self._emit()
        if self.token.upper in _REFUSED_CLAUSES and self.token.kind == "word":
            raise self.not_allowed(_REFUSED_CLAUSES[self.token.upper])
        if self.at(*_JOIN_WORDS) and where is None and not group_by and having is None:
            raise self.not_allowed(_JOINS)
        return Select(self.sql, start, self.behind, tuple(items), source, where, group_by, having, emit_at)

    def _item(self) -> SelectItem:
        start = self.token.start
        node = self._star() or self.expression()
        text = " ".join(self.sql.text[start : self.behind].split())
        alias = None
        if node.kind != "star":
            alias = self._alias("the name of an output column")
        return SelectItem(node, alias, text)

    def _star(self) -> Node | None:
        token = self.token
        if self.accept("*"):
            return Node("star", token.start, None)
        if token.kind in ("word", "quoted") and self.ahead().upper == "." and self.ahead(2).upper == "*":
            name = self.name("the name of a stream")
            self.advance()
            self.advance()
            return Node("star", token.start, name)
        return None

    def _alias(self, what: str) -> str | None:
        if self.accept("AS"):
            return self.name(what)
        if self.token.kind == "quoted" or (self.token.kind == "word" and self.token.upper not in RESERVED):
            return self.name(what)
        return None

    def _source(self) -> WindowedSource:
        wrapped = self.at("TABLE") and self.ahead().upper == "("
        if wrapped:
            self.advance()
            self.advance()
        if self.at("("):
            raise self.not_allowed("Subqueries are not supported yet; name a stream in FROM.")
        if self.ahead().upper == "(" and (self.token.upper in WINDOW_FUNCTIONS or self.token.upper == "TABLE"):
            source = parse_window_function(self)
        elif self.at("LATERAL", "UNNEST", "VALUES"):
            raise self.not_allowed(f"{self.token.upper} is not supported; name a stream in FROM.")
        else:
            source = WindowedSource(at=self.token.start, stream=self.name("the name of a stream"))
        if wrapped:
            self.expect(")")
        source = self._windowed(source)
        alias = self._alias("the alias of the stream")
        source = source if alias is None else replace(source, alias=alias)
        # the window may also follow the alias
        return self._windowed(source)

    def _windowed(self, source: WindowedSource) -> WindowedSource:
        if not self.at("["):
            return source
        at = self.token.start
        if source.window is not None:
            raise self.not_allowed("A stream must have one window; this one has two.")
        return replace(source, window=parse_range(self), window_at=at)

    def _group_by(self) -> tuple[Node, ...]:
        if not self.accept("GROUP"):
            return ()
        self.expect("BY")
        if self.at("ROLLUP", "CUBE", "GROUPING") and self.ahead().upper in ("(", "SETS"):
            raise self.not_allowed("GROUPING SETS, ROLLUP and CUBE are not supported; register one query per grouping.")
        if self.at("ALL"):
            raise self.not_allowed("GROUP BY ALL is not supported; name the columns.")
        nodes = [self.expression()]
        while self.accept(","):
            nodes.append(self.expression())
        return tuple(nodes)

    def _emit(self) -> int | None:
        if not self.at("EMIT"):
            return None
        at = self.advance().start
        if not self.accept_all("AFTER", "WATERMARK"):
            raise self.not_allowed("EMIT must be followed by AFTER WATERMARK in this version.", at)
        if self.at("AND", ","):
            raise self.not_allowed("EMIT AFTER WATERMARK stands alone in this version.")
        return at
