"""Settings of the service: flag, else environment ``BRAID_<NAME>``, else TOML file, else default."""

from __future__ import annotations

import ipaddress
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import orjson

from braid.engine.spark.masters import cores_of
from braid.engine.spark.spark_conf import check_spark_conf, flattened
from braid.router.delivery.progress import PARTS
from braid.session.sql.statement_limits import StatementLimits
from braid.sources.core.confinement import Confinement
from braid.sources.core.errors import NotAllowed
from braid.sources.core.locations import NOWHERE, check_no_secret
from braid.sources.core.outgoing import ANY, PUBLIC, Outgoing
from braid.sources.formats.limits import BODY, DecodingLimits

DEFAULT_CONFIG = "braid.toml"
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
"""Settings that nobody is told, the processes of the service included."""


@dataclass(frozen=True)
class Settings:
    """Everything that can be set; durations in seconds, sizes in bytes.

    ``port`` 0 takes a free one. ``retention_seconds`` is how long a RETIRED or FAILED query is still known,
    ``idempotency_seconds`` how long the outcome of an Idempotency-Key is. Result rows are kept for
    ``result_retention_seconds``, and at most ``result_retention_bytes`` of them. Of a window of a join each partition
    keeps ``join_row_limit`` rows. Of each stream ``push_backlog_bytes`` of pushed bodies may wait for the job, and the
    newest ``push_retention_bytes`` stay for queries that start in the past. While live tuples come, these queries may
    take the part ``replay_share`` of the time of live ones to catch up. The
    bodies of all requests under way have at most ``body_memory_bytes`` together, or ``max_body_bytes`` if that is more.
    A pushed body of ``max_body_bytes`` has at most ``max_body_rows`` rows, ``max_body_unpacked_bytes`` once it is
    unpacked, and ``max_body_malformed`` malformed rows (:class:`braid.sources.formats.limits.DecodingLimits`). The
    files of static tables and of streams must lie below ``table_folder``, where it is not empty; other paths than URIs
    are relative to it. The same holds for the files of sinks and ``sink_folder``; ``none`` allows no files. By HTTP,
    sinks and schema registries may call what ``outgoing_allow`` lists (:mod:`braid.sources.core.outgoing`). Where one
    of these three is empty, everything is allowed to a service that listens on loopback and asks for no keys, and no
    files and public addresses elsewhere. Whatever they say, no file may lie in or above ``data_dir``.
    The service runs ``deliverers`` processes that deliver to sinks; with 0 all of them are run by ``braid route``.
    ``spark_conf`` is added to Spark's configuration: a table in the file, a JSON object in the environment.
    ``query_groups`` says whether the optimizer arranges queries in groups: ``auto`` where that pays, ``off`` never;
    ``key_splits`` in the same way whether it splits frequent keys of joins among
    partitions, and ``join_orders`` (``auto``, ``off``) whether joins that come from now on have their inputs joined in
    the order that costs least, or as they are written: then more combinations may have to be formed, and windows with
    too many are left out. ``query_sharing`` (``auto``, ``off``) says whether queries that come from now on share
    operators with those that run; ``off`` is only for measuring what sharing saves. The optimizer looks every
    ``reoptimize_seconds``, and at all queries anew once the part ``reoptimize_share`` of them has come or gone since
    it last did.
    ``partitions`` is how many tasks work on state at once, fixed by the first start on a data folder; 0 takes as many
    as ``master`` has cores, or executors in ``spark_conf``. ``latency_target_seconds`` is the event-time latency that
    results should stay below, told to alert rules by ``/metrics``; 0 is none.

    A worker of the job may take ``worker_memory_bytes`` of memory of its own; 0 is half of what there is, shared by the
    cores. A job without a sign of life for ``stall_seconds`` is not ready, and what hangs of it is ended. A batch that
    takes longer than ``batch_limit_seconds`` is ended, and then run without the query or the input that holds it.

    ``flush_batches`` (``on``, ``off``) says whether all that a batch wrote is flushed to disk before the batch counts:
    else a power cut may leave a data folder that only a backup can replace.

    There are from ``executors_min`` to ``executors_max`` executors: :mod:`braid.optimizer.scaling` adds some while
    tuples take longer than ``scale_latency_seconds`` for ``scale_period_seconds``, and gives them back later. With
    ``executors_max`` 0 there are as many as Spark's configuration and the cluster say.

    ``access`` says whether requests need an API key: ``on``, ``off``, or ``auto``, which is on as soon as ``host`` can
    be reached from other machines; ``admin_key`` is the first key. With access on, no query is accepted that would have
    operators keep more than ``admission_cores`` cores busy; 0: nine tenths of the job's partitions.

    An answer with rows, queries or dead letters ends early once it has ``max_page_bytes``; what follows is read with
    its cursor. Of all answers ``max_answer_bytes`` may wait for clients to take them.

    Of requests with more than 2000 bytes of statements ``max_planning`` are planned at a time, ``max_planning_waiting``
    may wait for that, and all of it ends after ``planning_seconds``, or once the client is gone.

    How large a statement may be is said by the settings from ``max_statement_tokens`` to ``max_tuple_bytes``
    (:class:`braid.session.sql.statement_limits.StatementLimits`).

    Requests must name one of ``allowed_hosts`` (``*``: any), or, where that is empty, the address listened on.
    Pages of ``allowed_origins`` (``https://board.example.com``, ``*``: any) may call the service from a browser, others
    may not. A client must send a request, and take its answer, at a pace (:mod:`braid.api.http.connections`), after
    ``request_timeout_seconds`` of grace. The head of a request has at most ``max_header_bytes``, and at most
    ``max_connections`` requests run, or wait, at a time.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    data_dir: str = "braid-data"
    master: str = "local[*]"
    partitions: int = 0
    executors_min: int = 1
    executors_max: int = 0
    scale_latency_seconds: float = 5.0
    scale_period_seconds: float = 5.0
    changelog_batch_size: int = 100
    changelog_timeout_seconds: float = 0.1
    drain_timeout: float = 60.0
    retention_seconds: float = 86400.0
    idempotency_seconds: float = 86400.0
    slot_compaction_seconds: float = 60.0
    result_retention_seconds: float = 86400.0
    result_retention_bytes: int = 20 * 1024**3
    max_body_bytes: int = 64 * 1024 * 1024
    body_memory_bytes: int = 256 * 1024 * 1024
    max_body_rows: int = BODY.rows
    max_body_unpacked_bytes: int = BODY.unpacked_bytes
    max_body_malformed: int = BODY.malformed
    push_backlog_bytes: int = 2 * 1024**3
    push_retention_bytes: int = 1024**3
    replay_share: float = 0.2
    max_page_bytes: int = 16 * 1024**2
    max_answer_bytes: int = 256 * 1024**2
    max_planning: int = 2
    max_planning_waiting: int = 100
    planning_seconds: float = 30.0
    max_queries: int = 20000
    max_statement_tokens: int = StatementLimits.max_statement_tokens
    max_output_columns: int = StatementLimits.max_output_columns
    max_join_inputs: int = StatementLimits.max_join_inputs
    max_group_keys: int = StatementLimits.max_group_keys
    max_measures: int = StatementLimits.max_measures
    max_distinct_measures: int = StatementLimits.max_distinct_measures
    max_conditions: int = StatementLimits.max_conditions
    max_in_values: int = StatementLimits.max_in_values
    max_text_length: int = StatementLimits.max_text_length
    max_tuple_bytes: int = StatementLimits.max_tuple_bytes
    metrics_labelled_queries: int = 1000
    latency_target_seconds: float = 10.0
    batch_target_seconds: float = 1.0
    join_row_limit: int = 1_000_000
    worker_memory_bytes: int = 0
    stall_seconds: float = 15.0
    batch_limit_seconds: float = 60.0
    flush_batches: str = ON
    query_groups: str = AUTO
    key_splits: str = AUTO
    join_orders: str = AUTO
    query_sharing: str = AUTO
    reoptimize_seconds: float = 5.0
    reoptimize_share: float = 0.5
    table_folder: str = ""
    sink_folder: str = ""
    deliverers: int = 1
    access: str = "auto"
    admin_key: str = field(default="", repr=False)
    admission_cores: float = 0.0
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    outgoing_allow: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    request_timeout_seconds: float = 30.0
    max_header_bytes: int = 32 * 1024
    max_connections: int = 10_000
    log_level: str = "info"

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            value = getattr(self, name)
            if kind == _TABLE:
                check_spark_conf(value)
                continue
            if kind == _LIST:
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
        values = {name: getattr(self, name) for name in _KINDS if name not in SECRET}
        return {f"BRAID_{name.upper()}": _text_of(value) for name, value in values.items()}


def _text_of(value: Any) -> str:
    """Return what :func:`_read_text` reads as the value."""
    if isinstance(value, str):
        return value
    return ",".join(value) if isinstance(value, tuple) else orjson.dumps(value).decode()


_TABLE = "Mapping[str, str]"
_KINDS = {f.name: str(f.type) for f in fields(Settings)}
_LIST = "tuple[str, ...]"


def load_settings(flags: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
    """Merge the four sources of settings; NotAllowed for an unknown key or a value that does not fit.

    A flag that is None was not given. ``config`` (flag, or BRAID_CONFIG) names the TOML file, which must then exist;
    ``braid.toml`` in the working directory is read if present. Variables ``BRAID_…`` that name no setting are left
    alone: other programs use the prefix too (``BRAID_URL``).
    """
    environment = os.environ if environment is None else environment
    given_flags = {name: value for name, value in flags.items() if value is not None}
    config = given_flags.pop("config", None) or environment.get("BRAID_CONFIG") or None
    _check_known(given_flags, "a flag")
    values = _read_file(config)
    for name in _KINDS:
        text = environment.get(f"BRAID_{name.upper()}")
        if text is not None:
            values[name] = _read_text(name, text, f"The environment variable BRAID_{name.upper()}")
    for name, value in given_flags.items():
        values[name] = _read_text(name, value, f"The flag {name}") if isinstance(value, str) else value
    for name, value in values.items():
        if _KINDS[name] == _LIST and isinstance(value, list):
            values[name] = tuple(value)
    return Settings(**values)


def _read_file(config: Any) -> dict[str, Any]:
    path = Path(config or DEFAULT_CONFIG)
    if config is None and not path.exists():
        return {}
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotAllowed(f"The configuration file must be readable; got {str(path)!r}: {error.strerror}.") from error
    except ValueError as error:  # also what is not UTF-8
        raise NotAllowed(f"The configuration file {str(path)!r} must be TOML: {error}.") from error
    _check_known(values, f"the file {str(path)!r}")
    return {name: flattened(value) if _KINDS[name] == _TABLE else value for name, value in values.items()}


def _check_known(values: Mapping[str, Any], source: str) -> None:
    unknown = sorted(values.keys() - _KINDS.keys())
    if unknown:
        raise NotAllowed(
            f"{source[0].upper()}{source[1:]} must set only known settings;"
            f" got {', '.join(map(repr, unknown))}. Known are {', '.join(_KINDS)}."
        )


def _read_text(name: str, text: str, source: str) -> Any:
    """Return ``text`` as a value of the setting's type."""
    kind = _KINDS[name]
    if kind == "str":
        return text
    if kind == _TABLE:
        try:
            return flattened(orjson.loads(text))
        except orjson.JSONDecodeError as error:
            raise NotAllowed(f"{source} must be a JSON object: {error}.") from None
    if kind == _LIST:
        return tuple(item.strip() for item in text.split(",") if item.strip())
    try:
        return int(text) if kind == "int" else float(text)
    except ValueError:
        noun = "a whole number" if kind == "int" else "a number"
        raise NotAllowed(f"{source} must be {noun}; got {text!r}.") from None
