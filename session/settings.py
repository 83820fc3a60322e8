"""Settings of the service: names, types, defaults and checks; :mod:`braid.session.settings_sources` reads them."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import orjson

from braid.engine.spark.masters import cores_of
from braid.engine.spark.spark_conf import check_spark_conf
from braid.router.delivery.progress import PARTS
from braid.session.sql.statement_limits import StatementLimits
from braid.sources.core.confinement import Confinement
from braid.sources.core.errors import NotAllowed
from braid.sources.core.locations import NOWHERE, check_no_secret
from braid.sources.core.outgoing import ANY, PUBLIC, Outgoing
from braid.sources.formats.limits import BODY, DecodingLimits

LOG_LEVELS = ("debug", "info", "warning", "error")
AUTO, ON, OFF = ACCESS = ("auto", "on", "off")
_CHOICES = {
    "query_groups": (AUTO, OFF),
    "key_splits": (AUTO, OFF),
    "join_orders": (AUTO, OFF),
    "query_sharing": (AUTO, OFF),
    "flush_batches": (ON, OFF),
}
_MAY_BE_ZERO = (
    "port",
    "admission_cores",
    "changelog_timeout_seconds",
    "slot_compaction_seconds",
    "metrics_labelled_queries",
    "latency_target_seconds",
    "deliverers",
    "partitions",
    "push_retention_bytes",
    "executors_max",
    "worker_memory_bytes",
)

_MAY_BE_EMPTY = ("table_folder", "sink_folder", "admin_key")
DYNAMIC_ALLOCATION = "spark.dynamicAllocation.enabled"
SECRET = ("admin_key",)
"""Settings that no other process is given, those of the service included."""


@dataclass(frozen=True)
class Settings:
    """Everything that can be set; durations in seconds, sizes in bytes.

    ``docs/settings.md`` is made of what stands below the fields (``make settings``); a comment begins a section of it.
    No file of a table, stream or sink may lie in or above ``data_dir``, whatever the folders say.
    """

    # Listening
    host: str = "127.0.0.1"
    """Address that the service listens on. On other addresses than loopback it requires API keys, unless ``access``
    says otherwise."""
    port: int = 8080
    """Port that it listens on; 0 takes a free one."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that requests may call the service by, ``*`` for any. Empty: the address that it listens on."""
    allowed_origins: tuple[str, ...] = ()
    """Origins whose pages may call the service from a browser, such as ``https://board.example.com``; ``*`` for any."""
    request_timeout_seconds: float = 30.0
    """Time in which the head of a request must come. A body must come, and an answer be taken, at 4096 bytes a second
    after it."""
    max_header_bytes: int = 32 * 1024
    """Bytes of the request line and the headers of a request."""
    max_connections: int = 10_000
    """Requests that run or wait at a time."""

    # Data
    data_dir: str = "braid-data"
    """Folder, or filesystem URI, that holds all state. One service uses it at a time."""
    table_folder: str = ""
    """Folder that the files of static tables and of streams must lie below; other paths than URIs are relative to it.
    ``none`` allows no files. Empty: any folder on loopback without keys, else none."""
    sink_folder: str = ""
    """The same for the files that sinks write."""
    outgoing_allow: tuple[str, ...] = ()
    """Servers that sinks and schema registries may call by HTTP: ``*``, ``public``, addresses, networks and names.
    Empty: any on loopback without keys, else public addresses."""
    flush_batches: str = ON
    """``on`` flushes all files of a batch to disk before the batch counts. With ``off``, a power cut may leave a data
    folder that only a backup can replace."""

    # Access
    access: str = "auto"
    """Whether requests need an API key: ``on``, ``off``, or ``auto``, which is ``on`` once other machines can reach
    ``host``."""
    admin_key: str = field(default="", repr=False)
    """The first API key, with all rights; 16 characters or more. It is kept nowhere and shown nowhere."""
    admission_cores: float = 0.0
    """Cores that the operators of all queries may keep busy; with access control, new queries beyond are refused. 0:
    nine tenths of the partitions."""

    # Spark
    master: str = "local[*]"
    """Spark master."""
    partitions: int = 0
    """Number of partitions of the state, fixed by the first start on a data folder. 0: one for each core of ``master``,
    or of the executors in ``spark_conf``."""
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    """Additions to Spark's configuration: a table in the file, a JSON object in the environment. Names that results
    rest on are refused."""
    worker_memory_bytes: int = 0
    """Memory of its own that each worker process of the job may take. 0: half of the machine's, shared by the cores."""
    executors_min: int = 1
    """Executors that the scaler keeps at least."""
    executors_max: int = 0
    """Executors that the scaler starts at most. 0: no scaler, and as many as Spark's configuration and the cluster
    say."""
    scale_latency_seconds: float = 5.0
    """Event-time latency beyond which the scaler adds executors."""
    scale_period_seconds: float = 5.0
    """How long that latency must last."""

    # Batches
    batch_target_seconds: float = 1.0
    """Duration of a batch that the planner aims at."""
    batch_limit_seconds: float = 60.0
    """Duration after which a batch is ended, and then run without the query or the input that holds it. Time in which
    other programs have the processor does not count.
    """
    stall_seconds: float = 15.0
    """Time without a sign of life after which the job is not ready; processes that hang are ended."""
    latency_target_seconds: float = 10.0
    """Event-time latency that results should stay below; alert rules compare with it. 0: none."""

    # Queries
    max_queries: int = 20000
    """Queries that may run at a time, and that one request may create."""
    changelog_batch_size: int = 100
    """Requests that make a changelog due at once."""
    changelog_timeout_seconds: float = 0.1
    """Time after its first request at which a changelog is due."""
    replay_share: float = 0.2
    """Part of the time for new rows that queries which start in the past may take to catch up."""
    drain_timeout: float = 60.0
    """Seconds that a deleted query may go on for its last windows."""
    retention_seconds: float = 86400.0
    """Time that a RETIRED or FAILED query stays known."""
    idempotency_seconds: float = 86400.0
    """Time that the outcome of an Idempotency-Key stays known."""
    slot_compaction_seconds: float = 60.0
    """Time that slots at the end must be free before query-sets shrink."""
    join_row_limit: int = 1_000_000
    """Rows of a window of a join that each partition keeps."""

    # Results and sinks
    result_retention_seconds: float = 86400.0
    """Time that result rows are kept."""
    result_retention_bytes: int = 20 * 1024**3
    """Bytes of result rows that are kept."""
    deliverers: int = 1
    """Deliverer processes that the service runs. 0: all are run by ``braid deliver``."""
    max_page_bytes: int = 16 * 1024**2
    """Bytes after which an answer with rows, queries or dead letters ends; its cursor goes on."""
    max_answer_bytes: int = 256 * 1024**2
    """Bytes of all answers together that may wait for clients to take them."""

    # Pushes
    max_body_bytes: int = 64 * 1024 * 1024
    """Bytes of the body of a request."""
    body_memory_bytes: int = 256 * 1024 * 1024
    """Bytes of the bodies of all requests under way together; ``max_body_bytes`` if that is more."""
    max_body_rows: int = BODY.rows
    """Rows of a pushed body."""
    max_body_unpacked_bytes: int = BODY.unpacked_bytes
    """Bytes that a pushed body may unpack to."""
    max_body_malformed: int = BODY.malformed
    """Malformed rows of a pushed body; with more, nothing of it is kept."""
    push_backlog_bytes: int = 2 * 1024**3
    """Bytes of pushed rows of a stream that may wait for the job."""
    push_retention_bytes: int = 1024**3
    """Bytes of pushed rows of a stream that stay for queries that start in the past."""

    # Statements
    max_planning: int = 2
    """Requests with more than 2000 bytes of statements that are planned at a time."""
    max_planning_waiting: int = 100
    """Such requests that may wait to be planned."""
    planning_seconds: float = 30.0
    """Time that such a request may wait and be planned."""
    max_statement_tokens: int = StatementLimits.max_statement_tokens
    """Words, numbers, texts and symbols of a statement."""
    max_output_columns: int = StatementLimits.max_output_columns
    """Entries of the select list."""
    max_join_inputs: int = StatementLimits.max_join_inputs
    """Inputs of a join."""
    max_group_keys: int = StatementLimits.max_group_keys
    """Entries of GROUP BY, or columns that a join compares."""
    max_measures: int = StatementLimits.max_measures
    """Partial aggregates of a query; AVG takes two, STDDEV up to three."""
    max_distinct_measures: int = StatementLimits.max_distinct_measures
    """Different COUNT(DISTINCT …) of a query."""
    max_conditions: int = StatementLimits.max_conditions
    """Comparisons in all clauses of a query."""
    max_in_values: int = StatementLimits.max_in_values
    """Values of one IN."""
    max_text_length: int = StatementLimits.max_text_length
    """Characters of one text."""
    max_tuple_bytes: int = StatementLimits.max_tuple_bytes
    """Bytes that keys, aggregates and conditions of a query take for one row while a source task adds it up."""

    # Optimizer
    query_groups: str = AUTO
    """Whether the optimizer arranges queries in groups: ``auto`` where that pays, ``off`` never."""
    key_splits: str = AUTO
    """Whether it splits frequent keys of joins among partitions: ``auto``, ``off``."""
    join_orders: str = AUTO
    """Whether joins that are created from now on join their inputs in the cheapest order (``auto``) or as written
    (``off``)."""
    query_sharing: str = AUTO
    """Whether queries that are created from now on share operators with those that run: ``auto``; ``off`` is for
    measuring what sharing saves."""
    reoptimize_seconds: float = 5.0
    """Time from one look of the optimizer to the next."""
    reoptimize_share: float = 0.5
    """Part of the queries that must have come or gone before the optimizer plans all of them anew; above 0, at most
    1."""

    # Logs and metrics
    metrics_labelled_queries: int = 1000
    """Queries that have metrics of their own; the others share ``query_id="other"``."""
    log_level: str = "info"
    """``debug``, ``info``, ``warning`` or ``error``."""

    def __post_init__(self) -> None:
        for name, kind in KINDS.items():
            value = getattr(self, name)
            if kind == TABLE:
                check_spark_conf(value)
                continue
            if kind == LIST:
                if not isinstance(value, tuple) or not all(isinstance(item, str) and item for item in value):
                    raise NotAllowed(f"The setting {name} must be a list of texts that are not empty; got {value!r}.")
                continue
            if kind == "str":
                if not isinstance(value, str) or not (value.strip() or name in _MAY_BE_EMPTY):
                    raise NotAllowed(f"The setting {name} must be a text that is not empty; got {value!r}.")
                continue
            bound = "0 or more" if name in _MAY_BE_ZERO else "above 0"
            is_whole = kind == "int"
            if (
                isinstance(value, bool)
                or not isinstance(value, int if is_whole else (int, float))
                or not math.isfinite(value)
                or value < 0
                or (value == 0 and name not in _MAY_BE_ZERO)
            ):
                unit = "" if name.endswith(("_cores", "_share")) else " of seconds"
                noun = "a whole number" if is_whole else f"a number{unit}"
                raise NotAllowed(f"The setting {name} must be {noun} {bound}; got {value!r}.")
        if self.deliverers > PARTS:
            raise NotAllowed(f"The setting deliverers must be at most {PARTS}; got {self.deliverers!r}.")
        if self.reoptimize_share > 1:
            raise NotAllowed(f"The setting reoptimize_share must be at most 1; got {self.reoptimize_share!r}.")
        if self.executors_max:
            self._check_scaling()
        if self.port > 65535:
            raise NotAllowed(f"The setting port must be at most 65535; got {self.port!r}.")
        for name in ("data_dir", "table_folder", "sink_folder"):
            check_no_secret(getattr(self, name), f"The setting {name}")
        if cores_of(self.master) == 0:
            raise NotAllowed(f"The setting master must have a core at least; got {self.master!r}.")
        self.confinement  # noqa: B018 - checks it
        if self.access not in ACCESS:
            raise NotAllowed(f"The setting access must be one of {', '.join(ACCESS)}; got {self.access!r}.")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise NotAllowed(
                    f"The setting {name} must be one of {', '.join(choices)}; got {getattr(self, name)!r}."
                )
        if self.log_level not in LOG_LEVELS:
            raise NotAllowed(f"The setting log_level must be one of {', '.join(LOG_LEVELS)}; got {self.log_level!r}.")

    def _check_scaling(self) -> None:
        if self.executors_min > self.executors_max:
            raise NotAllowed(
                f"The setting executors_min must be at most executors_max, {self.executors_max};"
                f" got {self.executors_min!r}."
            )
        if self.spark_conf.get(DYNAMIC_ALLOCATION, "false").lower() == "true":
            raise NotAllowed(
                f"The setting spark_conf must leave out {DYNAMIC_ALLOCATION!r} where executors_max is given:"
                " only one can decide how many executors there are."
            )

    @property
    def is_loopback(self) -> bool:
        """Whether the service listens on this machine's own addresses only."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def needs_keys(self) -> bool:
        """Whether requests need an API key: where it is not said, as soon as others than this machine can send any."""
        return self.access == ON or (self.access == AUTO and not self.is_loopback)

    @property
    def statement_limits(self) -> StatementLimits:
        """How large a statement may be."""
        return StatementLimits(**{limit.name: getattr(self, limit.name) for limit in fields(StatementLimits)})

    @property
    def body_limits(self) -> DecodingLimits:
        """What a pushed body may bring."""
        return replace(
            BODY,
            rows=self.max_body_rows,
            unpacked_bytes=self.max_body_unpacked_bytes,
            malformed=self.max_body_malformed,
        )

    @property
    def confinement(self) -> Confinement:
        """What statements may make the service read, write and call."""
        is_open = self.is_loopback and not self.needs_keys
        default_folder, default_outgoing = ("", (ANY,)) if is_open else (NOWHERE, (PUBLIC,))
        return Confinement(
            self.table_folder or default_folder,
            self.sink_folder or default_folder,
            Outgoing(self.outgoing_allow or default_outgoing),
            self.data_dir if "://" in self.data_dir else str(Path(self.data_dir).resolve()),
        )

    def to_environment(self) -> dict[str, str]:
        """Return the variables that give another process the same settings, less those of :data:`SECRET`."""
        values = {name: getattr(self, name) for name in KINDS if name not in SECRET}
        return {f"BRAID_{name.upper()}": _text_of(value) for name, value in values.items()}


def _text_of(value: Any) -> str:
    """Return the text that :mod:`braid.session.settings_sources` reads as the value."""
    if isinstance(value, str):
        return value
    return ",".join(value) if isinstance(value, tuple) else orjson.dumps(value).decode()


TABLE = "Mapping[str, str]"
KINDS = {f.name: str(f.type) for f in fields(Settings)}
LIST = "tuple[str, ...]"
