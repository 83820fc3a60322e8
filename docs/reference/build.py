"""Write the SQL reference from its template, with what a running service answers to the examples.

Start a service, then run it after a change, and commit what it writes::

    braid serve
    python docs/reference/build.py

It reads ``docs/reference/sql.in.md`` and writes ``docs/sql-reference.md``. Fenced blocks of the template say what they
are: ``sql declare`` (carried out), ``ndjson STREAM`` (pushed once all queries run), ``csv FILE``, ``sql query [without
COLUMN]`` (its rows follow), ``sql refused`` (the refusal follows), ``functions [STREAM]`` (an expression a line, with
its value for the first tuple), ``synonyms`` and ``fields``.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from braid.client import DEFAULT_URL, Client, Refused
from braid.session.sql.parsing.function_names import FIELD_NAMES, FUNCTION_NAMES

HERE = Path(__file__).resolve().parent
TEMPLATE = HERE / "sql.in.md"
PAGE = HERE.parent / "sql-reference.md"
WAIT_SECONDS = 60.0
# far enough ahead to end all windows of the examples, and near enough not to be malformed
CLOSING = "2026-01-01T12:05:00Z"
ENDED = "2026-01-01T12:04:00Z"
POLL_SECONDS = 0.1
_FENCE = re.compile(r"^```(.*)\n((?:.*\n)*?)```$", re.MULTILINE)


@dataclass(frozen=True)
class ExampleBlock:
    """A fenced block: the words behind its fence, and its text."""

    words: tuple[str, ...]
    text: str


def blocks(template: str) -> list[ExampleBlock]:
    """Return the fenced blocks of a template in order."""
    return [ExampleBlock(tuple(found[1].split()), found[2]) for found in _FENCE.finditer(template)]


def build(braid: Client, template: str) -> str:
    """Return the page; the service must have no stream or table of the names in it, and has none afterwards."""
    parts = blocks(template)
    with tempfile.TemporaryDirectory() as folder:
        try:
            answers = _answers(braid, parts, Path(folder))
        finally:
            _clean_up(braid, parts)
    filled = iter(answers)
    return _FENCE.sub(lambda _: next(filled), template)


def examples(template: str) -> list[str]:
    """Return the expressions that show functions and operators."""
    return [line for block in blocks(template) if block.words[0] == "functions" for line in block.text.splitlines()]


def _answers(braid: Client, parts: Sequence[ExampleBlock], folder: Path) -> list[str]:
    """Return what stands on the page for each block."""
    for block in parts:
        if block.words[0] == "csv":
            (folder / block.words[1]).write_text(block.text, encoding="utf-8")
    for block in parts:
        if block.words == ("sql", "declare"):
            braid.sql(re.sub(r"path = '(.*?)'", lambda path: f"path = '{folder / path[1]}'", block.text))
    queries = {
        block: braid.create_query(_text(block), wait=WAIT_SECONDS)["id"]
        for block in parts
        if block.words[:2] == ("sql", "query") or block.words[0] == "functions"
    }
    for block in parts:
        if block.words[0] == "ndjson":
            braid.push(block.words[1], block.text)
            braid.push(block.words[1], f'{{"time": "{CLOSING}"}}\n')
    for name, kind in _declared(parts):
        if kind == "STREAM":
            _wait_until_windows_are_final(braid, name)
    rows = {block: _rows(braid, query_id) for block, query_id in queries.items()}
    return [_shown(braid, block, rows.get(block, [])) for block in parts]


def _text(block: ExampleBlock) -> str:
    """Return the query of a block: all expressions of a table of functions are one."""
    if block.words[0] != "functions":
        return block.text
    columns = (f"{expression} AS c{number}" for number, expression in enumerate(block.text.splitlines()))
    return f"SELECT {', '.join(columns)} FROM {[*block.words, 'purchases'][1]}"


def _wait_until_windows_are_final(braid: Client, stream: str) -> None:
    """Return when a batch is over that ends the windows of the examples, whose rows are there then."""
    until = time.monotonic() + WAIT_SECONDS
    while (braid.stream(stream)["watermark"] or "") < ENDED:
        if time.monotonic() > until:
            raise TimeoutError(f"the watermark of {stream} must reach {ENDED} within {WAIT_SECONDS:g} s")
        time.sleep(POLL_SECONDS)


def _rows(braid: Client, query_id: str) -> list[dict[str, Any]]:
    """Return all rows up to the closing tuples; the query is retired."""
    braid.delete_query(query_id, drain=False)
    rows = list(braid.follow(query_id))
    return [row for row in rows if CLOSING[:16] not in str(row.get("window_start"))]


def _shown(braid: Client, block: ExampleBlock, rows: list[dict[str, Any]]) -> str:
    kind = block.words[1] if block.words[0] == "sql" and len(block.words) > 1 else block.words[0]
    if block.words[0] in ("ndjson", "csv"):
        return f"```{block.words[0]}\n{block.text}```"
    if kind == "synonyms":
        pairs = {name: known for name, known in FUNCTION_NAMES.items() if name != known}
        return _table(["name", "is"], [[f"`{name.upper()}`", f"`{known.upper()}`"] for name, known in pairs.items()])
    if kind == "fields":
        return ", ".join(f"`{name.upper()}`" for name in dict.fromkeys(FIELD_NAMES.values())) + "."
    if kind == "functions":
        lines = zip(block.text.splitlines(), rows[0].values(), strict=True)
        return _table(["expression", "value"], [[f"`{text}`", f"`{_cell(value)}`"] for text, value in lines])
    fenced = f"```sql\n{block.text}```"
    if kind == "refused":
        return f"{fenced}\n\n> {_refusal(braid, block.text)}"
    if kind != "query":
        return fenced
    left_out = block.words[3:]
    columns = [name for name in (rows[0] if rows else {}) if name not in left_out]
    return f"{fenced}\n\n{_table(columns, [[_cell(row[name]) for name in columns] for row in rows])}"


def _refusal(braid: Client, sql: str) -> str:
    try:
        braid.validate(sql)
    except Refused as refused:
        where = "" if refused.position is None else f" (line {refused.position[0]}, column {refused.position[1]})"
        return f"{refused.status} {refused.title}{where}: {refused.detail}"
    raise AssertionError(f"this must be refused: {sql}")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value).removesuffix(".000000Z")


def _clean_up(braid: Client, parts: Sequence[ExampleBlock]) -> None:
    for name, kind in _declared(parts):
        braid.sql(f"DROP {kind} IF EXISTS {name}")


def _declared(parts: Sequence[ExampleBlock]) -> Iterator[tuple[str, str]]:
    for block in parts:
        found = re.match(r"CREATE (STREAM|TABLE) (\w+)", block.text)
        if block.words == ("sql", "declare") and found is not None:
            yield found[2], found[1]


def main(environment: Mapping[str, str] = os.environ) -> int:
    """Write the page."""
    with Client(environment.get("BRAID_URL", DEFAULT_URL), timeout=WAIT_SECONDS) as braid:
        PAGE.write_text(build(braid, TEMPLATE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
