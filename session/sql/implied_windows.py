"""Windows that a SELECT means without a window in FROM: it groups by the ends of windows that a subquery has.

``SELECT window_start, window_end, MAX(n) FROM (SELECT …, COUNT(*) AS n FROM bids [RANGE 10 SECONDS] …) GROUP BY
window_start, window_end`` puts together rows that have the same window, and so does a join on equal ends. The windows
that do so are as long as the ends are apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from braid.operators.derived import shown_name, window_behind
from braid.operators.windows import Window
from braid.session.sql.statements import Select, WindowedSource
from braid.session.sql.syntax import Node, conjuncts
from braid.sources.core.schema import StreamDefinition

_Ends = tuple[WindowedSource, frozenset[str], Window]


def with_implied_windows(select: Select, definitions: Mapping[int, StreamDefinition]) -> Select:
    """Return a SELECT with the window that it means; ``definitions`` are those of its streams, by place in FROM."""
    sources = [select.source, *(joined.source for joined in select.joins)]
    if any(source.window is not None for source in sources) or len(definitions) != len(sources):
        return select
    ended: list[_Ends] = []
    for number, source in enumerate(sources):
        found = window_behind(definitions[number])
        if found is None:
            return select
        inner, ends = found.window, found.ends
        if inner.size_us == inner.slide_us:
            ends |= found.starts  # of tumbling windows one says the other
        phase = (inner.offset_us + inner.size_us) % inner.slide_us
        shown = frozenset(shown_name(name).lower() for name in ends)
        ended.append((source, shown, Window(inner.slide_us, inner.slide_us, phase)))
    window = ended[0][2]
    if any(each != window for _, _, each in ended) or not _are_of_one_window(select, ended):
        return select
    joins = tuple(replace(joined, source=replace(joined.source, window=window)) for joined in select.joins)
    return replace(select, source=replace(select.source, window=window, is_implied=not joins), joins=joins)


def _are_of_one_window(select: Select, ended: list[_Ends]) -> bool:
    if not select.joins:
        return any(_input_of(node, ended) is not None for node in select.group_by)
    connected = {0}
    pairs = [set(pair) for pair in _equal_ends(select, ended)]
    while grown := [pair for pair in pairs if pair & connected and not pair <= connected]:
        connected.update(*grown)
    return len(connected) == len(ended)


def _equal_ends(select: Select, ended: list[_Ends]) -> Iterator[tuple[int, int]]:
    """Yield the inputs of which ON or WHERE compares the ends."""
    conditions = [select.where, *(joined.on for joined in select.joins)]
    for condition in conditions:
        for node in () if condition is None else conjuncts(condition):
            if node.kind == "call" and node.value == "=":
                one, other = (_input_of(child, ended) for child in node.children)
                if one is not None and other is not None:
                    yield one, other
    for number, joined in enumerate(select.joins, start=1):
        for name, _ in joined.using:
            for other in range(number):
                if name.lower() in ended[number][1] and name.lower() in ended[other][1]:
                    yield other, number


def _input_of(node: Node, ended: list[_Ends]) -> int | None:
    """Return which input a name is the end of the windows of; None for anything else."""
    if node.kind != "name" or len(node.value) > 2:
        return None
    *qualifier, name = (part.lower() for part in node.value)
    for number, (source, ends, _) in enumerate(ended):
        called = (source.alias or source.stream).lower()
        if name in ends and qualifier in ([], [called]):
            return number
    return None
