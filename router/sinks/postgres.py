"""Rows in a table of PostgreSQL, each exactly once: a write and the cursor after it are one transaction.

``append`` adds rows. ``upsert`` keeps one row for each query, window and key: with EMIT STREAM the table shows what
holds now, and a row that was retracted goes. A table that is not there is made. Its column ``_query`` tells the rows of
queries apart, also those of several services. Cursors are in ``_braid_cursors``, beside the table.

One connection serves all queries of a destination, so no statement waits long: a table that is locked refuses its own
query, and the others go on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from braid.operators.queries import Query
from braid.operators.query_parts import OP, RETRACT
from braid.operators.result_rows import schema_of
from braid.router.sinks.encoding import encode
from braid.router.sinks.options import check_options, choice, columns
from braid.router.sinks.sink import (
    DelivererIdentity,
    RowsRefused,
    SinkDown,
    SinkRefused,
    SinkRows,
    Subject,
    key_columns,
)
from braid.sources.core.confinement import Confinement
from braid.sources.core.errors import NotAllowed
from braid.sources.core.locations import check_local_file
from braid.sources.core.secret import check_secrets, hide, reveal

NAME = "postgres"
FLUSH_ROWS, FLUSH_SECONDS = 50_000, 0.0
APPEND, UPSERT = "append", "upsert"
OWNER, ORDER = "_query", "_order"
CURSORS, STAGE = "_braid_cursors", "_braid_stage"
CONNECT_SECONDS = 10
LOCK_TIMEOUT, STATEMENT_TIMEOUT = "10s", "60s"
OLDEST_FOR_UPSERT = 15
URL_PARTS = (
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "sslmode",
    "sslrootcert",
    "connect_timeout",
    "application_name",
)
_LIVENESS = {
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
# a path that cannot exist: libpq warns of one that exists and is no plain file
_NO_FILE = "/dev/null/none"
_SECONDS = re.compile(r"[1-9]\d?")
_DOWN_CLASSES = ("08", "53")  # the connection, resources
_DOWN_STATES = ("57P01", "57P02", "57P03", "40001", "40P01")  # it stops, crashed or starts; transactions collided
# values that do not fit, constraints, limits such as the size of an index row, a view's check, a trigger that objects
_ROWS_CLASSES = ("22", "23", "54", "44")
_ROWS_STATES = ("P0001",)


def validate(options: Mapping[str, str], query: Query, confinement: Confinement) -> None:
    """Check what a query says of its table."""
    check_options(NAME, options, ("url", "table"), ("mode", "key", "username", "password"))
    check_secrets(options, ("password",))
    check_url(options["url"])
    check_certificates(options["url"], confinement)
    if not 1 <= len(table_name(options["table"])) <= 2 or not all(table_name(options["table"])):
        raise NotAllowed(f"Option 'table' of sink {NAME!r} must be TABLE or SCHEMA.TABLE; got {options['table']!r}.")
    names = tuple(schema_of(query).names)
    key = columns(NAME, options, "key", names)
    if key and options.get("mode") == APPEND:
        raise NotAllowed("Sink 'postgres' with mode 'append' must be without 'key', which is for 'upsert'.")
    if mode(options, query) == UPSERT and not (key or key_columns(query)):
        raise NotAllowed(
            "Sink 'postgres' with mode 'upsert' must know what tells rows apart: select the bounds of the window and"
            " all columns of GROUP BY, or name columns with the option 'key'."
        )


def check_url(url: str) -> None:
    """Raise NotAllowed for a URL that names no database on a host, or says more than where it is; it is not shown."""
    try:
        if not url.isprintable():
            raise ValueError
        parameters = psycopg.conninfo.conninfo_to_dict(url)
    except (psycopg.Error, ValueError):
        raise NotAllowed(f"Option 'url' of sink {NAME!r} must be postgresql://HOST:PORT/DATABASE.") from None
    if "password" in parameters:
        raise NotAllowed("Option 'url' of sink 'postgres' must hold no password; use 'password' = 'secret:NAME'.")
    for part in parameters:
        if part not in URL_PARTS:
            raise NotAllowed(f"Option 'url' of sink {NAME!r} may hold {', '.join(URL_PARTS)}; got {part!r}.")
    # without a host it would be this machine, as the user that runs Braid
    hosts = str(parameters.get("host") or parameters.get("hostaddr") or "")
    if not all(hosts.split(",")):
        raise NotAllowed(f"Option 'url' of sink {NAME!r} must name a host.")
    if not _SECONDS.fullmatch(str(parameters.get("connect_timeout", CONNECT_SECONDS))):
        raise NotAllowed(f"In option 'url' of sink {NAME!r} connect_timeout must be a number from 1 to 99.")


def check_certificates(url: str, confinement: Confinement) -> None:
    """Raise NotAllowed when a URL names a file of certificates that may not be read."""
    path = psycopg.conninfo.conninfo_to_dict(url).get("sslrootcert")
    if path and path != "system":
        check_local_file(str(path), confinement.table_folder, "sink", "file 'sslrootcert'")


def mode(options: Mapping[str, str], query: Query) -> str:
    """Return ``upsert`` or ``append``; without the option, the first where columns tell rows apart."""
    default = UPSERT if options.get("key") or key_columns(query) else APPEND
    return choice(NAME, options, "mode", (APPEND, UPSERT)) if "mode" in options else default


def table_name(text: str) -> tuple[str, ...]:
    """Return ``(table,)`` or ``(schema, table)``."""
    return tuple(text.split("."))


def destination(options: Mapping[str, str]) -> str:
    """Return the database, the user and the reference to its password."""
    return "\n".join(options.get(name, "") for name in ("url", "username", "password"))


def connect(options: Mapping[str, str], deliverer: DelivererIdentity) -> Database:
    """Return the database."""
    password = None if "password" not in options else reveal(options["password"])
    secrets = () if password is None else (password,)
    try:
        return Database(psycopg.connect(autocommit=True, **_parameters(options, password, deliverer)), secrets)
    except psycopg.Error as problem:
        raise failure(problem, secrets=secrets) from None


def _parameters(options: Mapping[str, str], password: str | None, deliverer: DelivererIdentity) -> dict[str, Any]:
    """Return the parameters of a connection; none come from the environment or the home folder of this process."""
    timeouts = {
        "lock_timeout": LOCK_TIMEOUT,
        "statement_timeout": STATEMENT_TIMEOUT,
        "idle_in_transaction_session_timeout": STATEMENT_TIMEOUT,
    }
    user = {"user": options["username"]} if "username" in options else {}
    return {
        "connect_timeout": CONNECT_SECONDS,
        "application_name": f"braid {deliverer.name}",
        **psycopg.conninfo.conninfo_to_dict(options["url"]),
        **user,
        "password": password or "",
        "passfile": _NO_FILE,
        "options": " ".join(f"-c {name}={value}" for name, value in timeouts.items()),
        **_LIVENESS,
    }


class Database:
    """A connection; ``secrets`` never stand in an error."""

    def __init__(self, connection: psycopg.Connection, secrets: tuple[str, ...] = ()) -> None:
        self.connection = connection
        self._secrets = secrets

    def open(self, subject: Subject, options: Mapping[str, str]) -> PostgresSink:
        """Return the sink of a query; its table is made if there is none."""
        key: tuple[str, ...] = ()
        if mode(options, subject.query) == UPSERT:
            key = columns(NAME, options, "key", tuple(subject.schema.names)) or subject.keys
        try:
            return PostgresSink(self, table_name(options["table"]), key, subject)
        except psycopg.Error as problem:
            raise self.failure(problem) from None

    def close(self) -> None:
        """End the connection; a transaction that is open is undone."""
        self.connection.close()

    def failure(self, problem: psycopg.Error) -> SinkDown | SinkRefused:
        """Return what an error means."""
        return failure(problem, is_closed=self.connection.closed, secrets=self._secrets)


class PostgresSink:
    """The rows of one query in a table; ``key`` is empty where they are appended."""

    keeps_cursor = True

    def __init__(self, database: Database, table: tuple[str, ...], key: tuple[str, ...], subject: Subject) -> None:
        self._database = database
        self._connection = database.connection
        self._subject = subject
        self._key = (OWNER, *key) if key else ()
        self._table = sql.Identifier(*table)
        self._cursors = sql.Identifier(*table[:-1], CURSORS)
        self._stage = sql.Identifier("pg_temp", STAGE)
        self._cursor: str | None = None
        self._is_changelog = OP in subject.schema.names
        # a table of what holds now does not show how it came about
        hidden = (OP,) if key and self._is_changelog else ()
        self._columns = [OWNER, *(name for name in subject.schema.names if name not in hidden)]
        if key and self._connection.info.server_version < OLDEST_FOR_UPSERT * 10000:
            raise SinkRefused(f"Mode 'upsert' needs PostgreSQL {OLDEST_FOR_UPSERT} or newer; use 'append'.")
        self._make_tables(".".join(table))

    def resume(self) -> str | None:
        """Return the cursor that the last transaction left."""
        query = sql.SQL("SELECT cursor FROM {} WHERE delivery = %s").format(self._cursors)
        try:
            row = self._connection.execute(query, (self._subject.delivery_id,)).fetchone()
        except psycopg.Error as problem:
            raise self._database.failure(problem) from None
        self._cursor = None if row is None else row[0]
        return self._cursor

    def write(self, rows: SinkRows) -> None:
        """Add rows, or put them in the place of those with the same key, and move the cursor."""
        try:
            with self._connection.transaction():
                self._move_cursor(rows.cursor)
                if self._key:
                    self._upsert(rows.table)
                else:
                    self._copy(rows.table, self._table)
        except psycopg.Error as problem:
            raise self._database.failure(problem) from None
        self._cursor = rows.cursor

    def _make_tables(self, table: str) -> None:
        # two deliverers must not make the same table at the same time
        lock = int.from_bytes(hashlib.sha256(b"braid tables").digest()[:8], "big", signed=True)
        with self._connection.transaction():
            self._execute("SELECT pg_advisory_xact_lock({})", sql.Literal(lock))
            self._execute("CREATE TABLE IF NOT EXISTS {} (delivery text PRIMARY KEY, cursor text)", self._cursors)
            is_new = self._connection.execute("SELECT to_regclass(%s) IS NULL", (_quoted(table),)).fetchone()
            if is_new is not None and is_new[0]:
                self._execute("CREATE TABLE {} ({})", self._table, self._definitions(self._columns))
                if self._key:
                    self._execute("CREATE UNIQUE INDEX ON {} ({}) NULLS NOT DISTINCT", self._table, _names(self._key))

    def _definitions(self, names: list[str]) -> sql.Composed:
        """Return columns and their types, as CREATE TABLE takes them."""
        kinds = {field.name: field.type for field in self._subject.schema}
        types = {OWNER: "text", ORDER: "bigint"} | {name: type_of(kind) for name, kind in kinds.items()}
        return sql.SQL(", ").join(sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(types[n])) for n in names)

    def _move_cursor(self, cursor: str) -> None:
        delivery = self._subject.delivery_id
        if self._cursor is None:
            insert = sql.SQL("INSERT INTO {} VALUES (%s, %s) ON CONFLICT DO NOTHING").format(self._cursors)
            result = self._connection.execute(insert, (delivery, cursor))
        else:
            update = sql.SQL("UPDATE {} SET cursor = %s WHERE delivery = %s AND cursor = %s").format(self._cursors)
            result = self._connection.execute(update, (cursor, delivery, self._cursor))
        if result.rowcount != 1:
            raise SinkDown(f"The cursor of {delivery} must be where it was left; another deliverer has moved it.")

    def _copy(self, table: pa.Table, target: sql.Identifier) -> None:
        owner = pa.repeat(pa.scalar(self._subject.delivery_id, pa.string()), len(table))
        data = table.add_column(0, OWNER, owner)
        command = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv, HEADER true)").format(target, _names(data.column_names))
        with self._connection.cursor() as cursor, cursor.copy(command) as copy:
            copy.write(encode(_without_nul(data), "csv"))

    def _upsert(self, table: pa.Table) -> None:
        table = table.append_column(ORDER, pa.array(range(len(table)), pa.int64()))
        stage_columns = self._definitions([OWNER, *table.column_names])
        self._execute("CREATE TEMP TABLE {} ({}) ON COMMIT DROP", self._stage, stage_columns)
        self._copy(table, self._stage)
        key, column_names = _names(self._key), _names(self._columns)
        other_columns = [name for name in self._columns if name not in self._key]
        newest = sql.SQL("SELECT DISTINCT ON ({key}) * FROM {stage} ORDER BY {key}, {order} DESC").format(
            key=key, stage=self._stage, order=sql.Identifier(ORDER)
        )
        is_insert = sql.SQL("WHERE {} <> {}").format(sql.Identifier(OP), sql.Literal(RETRACT))
        update: sql.Composable = sql.SQL("DO NOTHING")
        if other_columns:
            pairs = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in other_columns]
            update = sql.SQL("DO UPDATE SET {}").format(sql.SQL(", ").join(pairs))
        if self._is_changelog:
            has_same_key = [
                sql.SQL("t.{0} IS NOT DISTINCT FROM n.{0}").format(sql.Identifier(name)) for name in self._key
            ]
            self._execute(
                "DELETE FROM {} t USING ({}) n WHERE n.{} = {} AND {}",
                self._table,
                newest,
                sql.Identifier(OP),
                sql.Literal(RETRACT),
                sql.SQL(" AND ").join(has_same_key),
            )
        self._execute(
            "INSERT INTO {} ({}) SELECT {} FROM ({}) n {} ON CONFLICT ({}) {}",
            self._table,
            column_names,
            column_names,
            newest,
            is_insert if self._is_changelog else sql.SQL(""),
            key,
            update,
        )

    def _execute(self, text: str, *parts: sql.Composable) -> None:
        self._connection.execute(sql.SQL(text).format(*parts))


def type_of(kind: pa.DataType) -> str:
    """Return the type of a column for values of an Arrow type."""
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamptz"
    if pa.types.is_nested(kind) or isinstance(kind, pa.JsonType):
        return "jsonb"
    names = {pa.bool_(): "boolean", pa.int32(): "integer", pa.int64(): "bigint", pa.float64(): "double precision"}
    return {**names, pa.date32(): "date"}.get(kind, "text")


def failure(
    problem: psycopg.Error, *, is_closed: bool = False, secrets: tuple[str, ...] = ()
) -> SinkDown | SinkRefused:
    """Return what an error means.

    A server that does not answer, or cannot now, is down; what objects to values is of rows, all else of this query.
    """
    text = hide(f"PostgreSQL: {str(problem).strip()}", secrets)
    state = problem.sqlstate
    if state is None:
        is_down = isinstance(problem, (psycopg.OperationalError, psycopg.InterfaceError))
        is_of_rows = isinstance(problem, psycopg.DataError)
    else:
        is_down = state[:2] in _DOWN_CLASSES or state in _DOWN_STATES
        is_of_rows = state[:2] in _ROWS_CLASSES or state in _ROWS_STATES
    if is_down or is_closed:
        return SinkDown(text)
    return RowsRefused(text) if is_of_rows else SinkRefused(text)


def _names(names: list[str] | tuple[str, ...]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _quoted(table: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))


def _without_nul(table: pa.Table) -> pa.Table:
    """Leave the character NUL out of texts: PostgreSQL has none."""
    columns = [
        pc.replace_substring(column, "\x00", "") if pa.types.is_string(column.type) else column
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, table.column_names)
