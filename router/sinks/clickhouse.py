"""Rows inserted into a table of ClickHouse by its HTTP interface.

A table that has the columns ``_query`` and ``_row`` gets what tells rows apart that come again after a crash; a
``ReplacingMergeTree`` ordered by them keeps one of each. All columns of the query must be there.

Codes of errors say whether rows are refused for what is in them. For a code that is not known here, the server itself
says it: where it refuses the rows with the same code in the table function ``null``, which parses rows and keeps none,
and takes an empty row there. Rows that are refused for anything else wait and are tried again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import httpx
import orjson

from braid.operators.queries import Query
from braid.router.row_text import objects
from braid.router.sinks.http import LATER, HttpPlace, check_url, retry_after
from braid.router.sinks.options import check_options
from braid.router.sinks.sink import DelivererIdentity, RowsRefused, SinkDown, SinkRefused, SinkRows, Subject
from braid.sources.core.confinement import Confinement
from braid.sources.core.errors import NotAllowed
from braid.sources.core.http_client import http_client
from braid.sources.core.secret import check_secrets, reveal

NAME = "clickhouse"
FLUSH_ROWS, FLUSH_SECONDS = 100_000, 1.0
TIMEOUT_SECONDS = 30.0
_NAME = re.compile(r"[A-Za-z_]\w*")
_DOWN_CODES = (
    164,  # READONLY
    173,  # CANNOT_ALLOCATE_MEMORY
    201,  # QUOTA_EXCEEDED
    202,  # TOO_MANY_SIMULTANEOUS_QUERIES
    203,  # NO_FREE_CONNECTION
    209,  # SOCKET_TIMEOUT
    210,  # NETWORK_ERROR
    225,  # NO_ZOOKEEPER
    241,  # MEMORY_LIMIT_EXCEEDED
    242,  # TABLE_IS_READ_ONLY
    243,  # NOT_ENOUGH_SPACE
    252,  # TOO_MANY_PARTS
    319,  # UNKNOWN_STATUS_OF_INSERT
    364,  # RECEIVED_ERROR_TOO_MANY_REQUESTS
    425,  # SYSTEM_ERROR
    439,  # CANNOT_SCHEDULE_TASK
    745,  # SERVER_OVERLOADED
    749,  # TCP_CONNECTION_LIMIT_REACHED
    762,  # HTTP_CONNECTION_LIMIT_REACHED
    999,  # KEEPER_EXCEPTION
)
_ROWS_CODES = (
    6,  # CANNOT_PARSE_TEXT
    25,  # CANNOT_PARSE_ESCAPE_SEQUENCE
    26,  # CANNOT_PARSE_QUOTED_STRING
    27,  # CANNOT_PARSE_INPUT_ASSERTION_FAILED
    38,  # CANNOT_PARSE_DATE
    41,  # CANNOT_PARSE_DATETIME
    53,  # TYPE_MISMATCH
    69,  # ARGUMENT_OUT_OF_BOUND
    70,  # CANNOT_CONVERT_TYPE
    72,  # CANNOT_PARSE_NUMBER
    117,  # INCORRECT_DATA
    130,  # CANNOT_READ_ARRAY_FROM_TEXT
    131,  # TOO_LARGE_STRING_SIZE
    153,  # ILLEGAL_DIVISION, by an expression of a column or a materialized view
    321,  # VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE
    349,  # CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN
    376,  # CANNOT_PARSE_UUID
    395,  # FUNCTION_THROW_IF_VALUE_IS_NON_ZERO, by such an expression
    407,  # DECIMAL_OVERFLOW
    441,  # CANNOT_PARSE_DOMAIN_VALUE_FROM_STRING
    467,  # CANNOT_PARSE_BOOL
    469,  # VIOLATED_CONSTRAINT
    675,  # CANNOT_PARSE_IPV4
    676,  # CANNOT_PARSE_IPV6
    691,  # UNKNOWN_ELEMENT_OF_ENUM
)
_TOO_MANY_PARTITIONS = "Too many partitions for single INSERT"  # has the code of TOO_MANY_PARTS; fewer rows have fewer
_DOWN_ANSWERS = (*LATER, 502, 503, 504)  # of those that stand before the server
_TOO_LARGE = 413
_CODE = re.compile(r"\s*Code: (\d{1,9})\b")
_NOT_INSERTABLE = ("ALIAS", "MATERIALIZED")
QUERY, ROW = "_query", "_row"


def validate(options: Mapping[str, str], query: Query, confinement: Confinement) -> None:  # noqa: ARG001
    """Check what a query says of its table."""
    check_options(NAME, options, ("url", "table"), ("database", "username", "password"))
    check_url(NAME, options["url"], confinement.outgoing, has_query=False)
    check_secrets(options, ("password",))
    for option in ("table", "database"):
        if option in options and not _NAME.fullmatch(options[option]):
            raise NotAllowed(
                f"Option {option!r} of sink {NAME!r} must be a name of letters, digits and _; got {options[option]!r}."
            )


def destination(options: Mapping[str, str]) -> str:
    """Return the server, the user and the reference to its password."""
    return "\n".join(options.get(name, "") for name in ("url", "username", "password"))


def connect(options: Mapping[str, str], deliverer: DelivererIdentity) -> Server:
    """Return the server; nothing is sent yet."""
    headers, secrets = {}, []
    if "username" in options:
        headers["x-clickhouse-user"] = options["username"]
    if "password" in options:
        headers["x-clickhouse-key"] = reveal(options["password"])
        secrets.append(headers["x-clickhouse-key"])
    connections = http_client(deliverer.confinement.outgoing, TIMEOUT_SECONDS)
    return Server(connections, HttpPlace(connections, options["url"], headers, tuple(secrets)))


class Server:
    """A ClickHouse server."""

    def __init__(self, client: httpx.Client, place: HttpPlace) -> None:
        self._client = client
        self._place = place

    def open(self, subject: Subject, options: Mapping[str, str]) -> ClickHouseSink:
        """Return the sink of a query; its table must be there, with all columns."""
        database = options.get("database")
        table = f"`{options['table']}`" if database is None else f"`{database}`.`{options['table']}`"
        table_columns = self._columns(table)
        missing = [name for name in subject.schema.names if name not in table_columns]
        if missing:
            raise SinkRefused(
                f"Table {table} must have all columns of the query; {', '.join(missing)} are missing, there are"
                f" {', '.join(table_columns)}."
            )
        marks = {QUERY, ROW}.intersection(table_columns)
        written = {name: table_columns[name] for name in (*subject.schema.names, *sorted(marks))}
        return ClickHouseSink(self._place, table, subject.delivery_id, marks, written)

    def _columns(self, table: str) -> dict[str, str]:
        """Return the types of the columns of a table that take values."""
        answer = self._place.post(b"", params={"query": f"DESCRIBE TABLE {table} FORMAT JSON"})
        judge(self._place, answer)
        try:
            descriptions = orjson.loads(answer.content)["data"]
            return {
                column["name"]: column["type"]
                for column in descriptions
                if column["default_type"] not in _NOT_INSERTABLE
            }
        except (ValueError, KeyError, TypeError):
            raise SinkRefused(f"{self._place.says(answer)} This is not what ClickHouse answers.") from None

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


class ClickHouseSink:
    """The rows of one query in a table.

    ``marks`` are those of the columns QUERY and ROW that it has, ``types`` those of the columns that are written.
    """

    keeps_cursor = False

    def __init__(self, place: HttpPlace, table: str, delivery: str, marks: set[str], types: Mapping[str, str]) -> None:
        self._place = place
        self._table = table
        self._delivery = delivery
        self._marks = marks
        columns = ", ".join(f"{_quoted(name, '`')} {type_name}" for name, type_name in types.items())
        self._kept_nowhere = "FUNCTION null(" + _quoted(columns, "'") + ")"

    def resume(self) -> str | None:
        """Return None: what has been inserted is not asked."""
        return None

    def write(self, rows: SinkRows) -> None:
        """Insert rows."""
        records = objects(rows.table)
        if QUERY in self._marks:
            records = [{**record, QUERY: self._delivery} for record in records]
        if ROW in self._marks:
            records = [{**record, ROW: row_id} for record, row_id in zip(records, rows.ids, strict=True)]
        body = b"\n".join(map(orjson.dumps, records))
        answer = self._insert(self._table, body)
        code = _code(answer)
        if code is not None and code not in (*_DOWN_CODES, *_ROWS_CODES) and self._cannot_be_parsed(body, code):
            raise RowsRefused(self._place.says(answer))
        judge(self._place, answer)

    def _insert(self, into: str, body: bytes) -> httpx.Response:
        params = {"query": f"INSERT INTO {into} FORMAT JSONEachRow", "date_time_input_format": "best_effort"}
        return self._place.post(body, params=params)

    def _cannot_be_parsed(self, body: bytes, code: int) -> bool:
        """Whether the server refuses rows with a code also where none is kept, and takes an empty row there."""
        if _code(self._insert(self._kept_nowhere, body)) != code:
            return False
        control = self._insert(self._kept_nowhere, b"{}")
        return control.is_success and _code(control) is None


def _quoted(text: str, quote: str) -> str:
    """Return a text between quotes."""
    return quote + text.replace("\\", "\\\\").replace(quote, f"\\{quote}") + quote


def judge(place: HttpPlace, answer: httpx.Response) -> None:
    """Raise SinkDown, SinkRefused or RowsRefused unless a query is done: most answers of 500 are about its data."""
    code = _code(answer)
    if answer.is_success and code is None:
        return
    if code is None:  # it is of a server before it
        is_about_rows, is_down = answer.status_code == _TOO_LARGE, answer.status_code in _DOWN_ANSWERS
    else:
        is_about_rows = code in _ROWS_CODES or _TOO_MANY_PARTITIONS in answer.text
        is_down = code in _DOWN_CODES
    if is_about_rows:
        raise RowsRefused(place.says(answer))
    if is_down:
        raise SinkDown(place.says(answer), retry_after(answer))
    raise SinkRefused(place.says(answer))


def _code(answer: httpx.Response) -> int | None:
    """Return the number of the server's error, if it says one."""
    header = answer.headers.get("x-clickhouse-exception-code", "")
    if header.isascii() and header.isdigit():
        return int(header[:9])
    match = None if answer.is_success else _CODE.match(answer.text)
    return None if match is None else int(match[1])
