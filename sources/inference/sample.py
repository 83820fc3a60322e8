"""Samples: the first rows of a text or a file, column by column.

A sample is at most :data:`MAX_ROWS` rows of at most :data:`SAMPLE_BYTES` bytes of text, however much there is. What
cannot be read within it is counted and passed over, since the end of a sample may be cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import pyarrow as pa
from pyarrow import types

from braid.sources.core.errors import MalformedRequest, ServiceError
from braid.sources.core.schema import DOUBLE
from braid.sources.formats.csv_document import MAX_COLUMNS, TOO_WIDE, check_delimiter
from braid.sources.formats.csv_records import record_ends, split_fields, without_end
from braid.sources.formats.json_rows import elements_of, parse_json
from braid.sources.formats.parquet_rows import ParquetRows
from braid.sources.formats.texts import MARK
from braid.sources.inference.columns import Inferred, column_of_arrow, column_of_json, column_of_texts
from braid.sources.inference.numbers import may_be_thousands

SAMPLE_BYTES = 4 << 20
MAX_ROWS = 20_000
MAX_WIDTH = 1000
CSV, JSON, PARQUET = "csv", "json", "parquet"
FORMS = (CSV, JSON, PARQUET)
_PARQUET_MAGIC = b"PAR1"
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"PK\x03\x04": "zip"}
_DELIMITERS = ",;\t|"
_LOOKED_AT = 20
_NEARLY_ALL = 0.8
"""So many records tell the delimiter."""
_MAX_CELLS = 2_000_000
"""So many values are looked at of wide rows."""
_ARROW_BYTES = 64 << 20


@dataclass(frozen=True)
class Sample:
    """``columns`` of ``rows`` rows; ``options`` are the format's, as WITH takes them.

    ``unreadable`` has the numbers of the rows that are passed over as they are not of the format; rows are counted from
    1, without a line of names. ``is_array`` is set for JSON that is one array instead of an object a line.
    """

    form: str
    columns: tuple[Inferred, ...]
    rows: int
    options: Mapping[str, str] = field(default_factory=dict)
    unreadable: Sequence[int] = ()
    is_array: bool = False

    @property
    def has_names(self) -> bool:
        """Whether columns are found by their names; without, all of them must be declared, in order."""
        return self.options.get("header") != "false"


def form_of(head: bytes) -> str:
    """Return the format that text or a file seems to have by its first bytes; MalformedRequest for what is packed."""
    if head.startswith(_PARQUET_MAGIC):
        return PARQUET
    for magic, name in _PACKED.items():
        if head.startswith(magic):
            raise MalformedRequest(f"A sample must be CSV, JSON or Parquet; got {name}. Unpack it first.")
    return JSON if head.removeprefix(MARK).lstrip()[:1] in (b"{", b"[") else CSV


def sample_texts(form: str, texts: Sequence[bytes], options: Mapping[str, str] | None = None) -> Sample:
    """Return the sample of CSV or JSON texts of the same kind, of which each may be cut anywhere but at its begin.

    ``options`` are ``delimiter`` and ``header``, where they are known. MalformedRequest when no row can be read.
    """
    readable = [_whole_characters(text.removeprefix(MARK)) for text in texts]
    return _sample_csv(readable, options or {}) if form == CSV else _sample_json(readable)


def sample_parquet(sources: Sequence[Any]) -> Sample:
    """Return the sample of Parquet files; MalformedRequest when one cannot be read or has other columns."""
    pieces: list[pa.RecordBatch] = []
    schema: pa.Schema | None = None
    rows = size = 0
    for batch in _batches(sources):
        schema = batch.schema if schema is None else schema
        if not batch.schema.equals(schema):
            raise MalformedRequest("All files of a stream must have the same columns of the same types; they do not.")
        pieces.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= MAX_ROWS or size >= _ARROW_BYTES:
            break
    if schema is None:
        raise MalformedRequest("The sample is empty: at least one row is needed.")
    table = pa.Table.from_batches(pieces).slice(0, MAX_ROWS)
    columns = [column_of_arrow(f.name, table.column(i)) for i, f in enumerate(table.schema)]
    nested = [f for f in ParquetRows(sources[0]).schema if types.is_nested(f.type)]
    columns += [Inferred(f.name, None, f"Arrow's type {str(f.type)[:100]}") for f in nested]
    return Sample(PARQUET, tuple(columns), table.num_rows)


def _batches(sources: Sequence[Any]) -> Iterator[pa.RecordBatch]:
    for source in sources:
        parquet = ParquetRows(source)
        try:
            names = [f.name for f in parquet.schema if not types.is_nested(f.type)]
        except UnicodeDecodeError:
            raise MalformedRequest("The names of columns must be UTF-8, got others.") from None
        if len(set(names)) != len(names):
            raise MalformedRequest(f"The columns of Parquet must have names that differ; got {names!r:.300}.")
        for group in range(len(parquet.groups)):
            yield from parquet.batches(group, names, MAX_ROWS)


def _whole_characters(text: bytes) -> bytes:
    """Return a text without what is cut at its end, and without an unfinished line; MalformedRequest for no UTF-8."""
    is_cut = len(text) >= SAMPLE_BYTES
    if is_cut:
        text = text[:SAMPLE_BYTES]
        text = text[: text.rfind(b"\n") + 1] or text[: SAMPLE_BYTES - 4]
    try:
        text.decode()
    except UnicodeDecodeError as problem:
        if b"\0" in text:
            raise MalformedRequest("A sample must be CSV or JSON in UTF-8, or Parquet; this is no text.") from None
        if not is_cut or problem.start < len(text) - 4:
            raise MalformedRequest(
                f"A sample must be UTF-8; byte {problem.start + 1} is not. Convert it: iconv -f WINDOWS-1252 -t UTF-8."
            ) from None
        text = text[: problem.start]
    return text


# CSV


def _sample_csv(texts: Sequence[bytes], options: Mapping[str, str]) -> Sample:
    first = texts[0].lstrip(b"\r\n")
    delimiter = options.get("delimiter") or _delimiter_of(first)
    check_delimiter(delimiter)
    heads = [record.decode().strip() for record in _head_of(first, delimiter)]
    if heads in ([], [""]):
        raise MalformedRequest("The sample is empty: at least one row is needed.")
    if len(heads) > MAX_COLUMNS:
        raise MalformedRequest(TOO_WIDE)
    header = options.get("header", "").lower()
    has_names = _are_names(heads) if header not in ("true", "false") else header == "true"
    names = heads if has_names else [f"c{number}" for number in range(1, len(heads) + 1)]
    rows: list[list[bytes | None]] = []
    most = max(min(MAX_ROWS, _MAX_CELLS // len(names)), 1)
    numbers: list[int] = []
    unreadable: list[int] = []
    for text in texts:
        records = _records(text, delimiter)
        if has_names and [name.decode().strip() for name in _fields(next(records, b""), delimiter)] != names:
            raise MalformedRequest("All files of a stream must have the same columns; they do not.")
        for record in islice(records, most - len(rows)):
            fields = split_fields(record, delimiter)
            if fields is None or len(fields) != len(names):
                unreadable.append(len(rows) + len(unreadable) + 1)
            else:
                numbers.append(len(rows) + len(unreadable) + 1)
                rows.append(fields)
    if not rows:
        if unreadable and has_names:
            raise MalformedRequest(
                f"The first line of the sample, {', '.join(names)[:100]!r}, has {len(names)} field(s), and no other"
                " line has as many: the names of the columns must come first. Take away the lines before them."
            )
        raise MalformedRequest(
            f"The sample has no row of {len(names)} field(s) besides the names: a line of names and at least one row"
            " are needed."
        )
    columns = [
        column_of_texts(name, [None if row[i] is None else row[i].decode() for row in rows], numbers)  # type: ignore[union-attr]
        for i, name in enumerate(names)
    ]
    if delimiter == ";":
        columns = [_with_doubt(column, [row[i] for row in rows]) for i, column in enumerate(columns)]
    found = {"delimiter": delimiter} if delimiter != "," else {}
    return Sample(CSV, tuple(columns), len(rows), found if has_names else {**found, "header": "false"}, unreadable)


def _with_doubt(column: Inferred, values: Sequence[bytes | None]) -> Inferred:
    """Return a column, with what its numbers may mean as well where semicolons stand between fields."""
    if column.type != DOUBLE or not may_be_thousands(value.decode() for value in values if value is not None):
        return column
    why = "if 2.350 is meant to be 2350: declare VARCHAR, and write CAST(REPLACE(…, '.', '') AS DOUBLE)"
    return replace(column, why=why)


def _records(text: bytes, delimiter: str) -> Iterator[bytes]:
    """Yield the records that have text."""
    ends = record_ends(text, delimiter).tolist()
    if not ends or ends[-1] < len(text):
        ends.append(len(text))
    for begin, end in zip([0, *ends], ends, strict=False):
        if without_end(text[begin:end]):
            yield text[begin:end]


def _fields(record: bytes, delimiter: str) -> list[bytes]:
    return [field or b"" for field in split_fields(record, delimiter) or []]


def _head_of(text: bytes, delimiter: str) -> list[bytes]:
    return _fields(next(_records(text, delimiter), b""), delimiter)


def _delimiter_of(text: bytes) -> str:
    """Return the delimiter that cuts nearly all of the first records into most fields, equally many."""
    head = b"".join(text.splitlines(keepends=True)[:_LOOKED_AT])
    best, most = ",", 1
    for delimiter in _DELIMITERS:
        widths = Counter(len(_fields(record, delimiter)) for record in _records(head, delimiter))
        (width, records), *_ = widths.most_common(1) or [(0, 0)]
        if width > most and records >= _NEARLY_ALL * widths.total():
            best, most = delimiter, width
    return best


def _are_names(fields: Sequence[str]) -> bool:
    """Whether a record names columns: it has text, and no field of it is a number, a time or a truth value."""
    kinds = {column_of_texts("", [field]).type for field in fields if field}
    return {str(kind) for kind in kinds} == {"VARCHAR"}


# JSON


def _sample_json(texts: Sequence[bytes]) -> Sample:
    objects: list[dict[str, Any]] = []
    numbers: list[int] = []
    unreadable: list[int] = []
    is_array = False
    for text in texts:
        is_array = text.lstrip()[:1] == b"["
        values = _elements(text) if is_array else _lines(text)
        for value in islice(values, MAX_ROWS - len(objects)):
            if isinstance(value, dict):
                numbers.append(len(objects) + len(unreadable) + 1)
                objects.append(value)
            else:
                unreadable.append(len(objects) + len(unreadable) + 1)
    if not objects:
        raise MalformedRequest("A sample of JSON must have an object; it has none.")
    names = {name: None for value in objects for name in islice(value, MAX_WIDTH)}
    looked_at = objects[: max(_MAX_CELLS // max(len(names), 1), 1)]
    columns = [
        column_of_json(name, [value.get(name) for value in looked_at], numbers) for name in islice(names, MAX_WIDTH)
    ]
    return Sample(JSON, tuple(columns), len(looked_at), unreadable=unreadable, is_array=is_array)


def _elements(text: bytes) -> Iterator[Any]:
    """Yield the elements of an array as far as it can be read."""
    try:
        yield from elements_of(text, exact=True)
    except ValueError:
        return


def _lines(text: bytes) -> Iterator[Any]:
    """Yield the value of each line, None for one that is none; or that of the whole text, if its lines are not."""
    lines = [line for line in text.split(b"\n") if line.strip()]
    values = [_parsed(line) for line in lines[:MAX_ROWS]]
    if not any(isinstance(value, dict) for value in values):
        values = [_parsed(text)]
    yield from values


def _parsed(text: bytes) -> Any:
    try:
        return parse_json(text, exact=True)  # integers beyond 64 bits keep their digits
    except (ValueError, ServiceError):
        return None
