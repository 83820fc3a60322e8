"""What a CREATE STREAM says about a Kafka topic: options named as in Flink SQL, and secrets by reference.

``properties.…`` are passed on to the client, as far as they are about the connection: none that runs a command or loads
a library. Secrets are references (:mod:`braid.sources.core.secret`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from braid.sources.core.confinement import Confinement
from braid.sources.core.errors import NotAllowed
from braid.sources.core.locations import check_local_file
from braid.sources.core.names import did_you_mean
from braid.sources.core.secret import check_secrets, is_reference, reveal
from braid.sources.core.watermark_options import COMMON_OPTIONS

EARLIEST, LATEST, TIMESTAMP, SPECIFIC = "earliest-offset", "latest-offset", "timestamp", "specific-offsets"
MODES = (EARLIEST, LATEST, TIMESTAMP, SPECIFIC)
OFFSETS = "scan.startup.specific-offsets"
ON_GAP = "on_gap"
FAIL, SKIP = "fail", "skip"
SERVERS = "bootstrap.servers"
PREFIX = "properties."
SECRETS = (
    "sasl.oauthbearer.client.secret",
    "sasl.password",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.password",
)
PROPERTIES = (
    SERVERS,
    "broker.address.family",
    "client.id",
    "client.rack",
    "enable.ssl.certificate.verification",
    "fetch.max.bytes",
    "fetch.min.bytes",
    "fetch.wait.max.ms",
    "max.partition.fetch.bytes",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.username",
    "security.protocol",
    "socket.keepalive.enable",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
    "ssl.keystore.location",
    *SECRETS,
)
BOUNDED, BOUNDED_MS, BOUNDED_OFFSETS = (
    "scan.bounded.mode",
    "scan.bounded.timestamp-millis",
    "scan.bounded.specific-offsets",
)
UNBOUNDED = "unbounded"
BOUNDED_MODES = (UNBOUNDED, LATEST, TIMESTAMP, SPECIFIC)
_OPTIONS = (
    "topic",
    "scan.startup.mode",
    "scan.startup.timestamp-millis",
    OFFSETS,
    BOUNDED,
    BOUNDED_MS,
    BOUNDED_OFFSETS,
    ON_GAP,
)
_ANY_CA = "probe"  # of ssl.ca.location: where the system has them
TOPIC_RULE = "up to 249 letters, digits, '.', '_' and '-'"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SERVER = re.compile(
    r"(?:(?:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?(?:[^\s:/\[\]]+|\[[0-9A-Fa-f:.%]+\])(?::(\d{1,5}))?"
)
_PLACE = re.compile(r"\s*partition:(\d{1,9}),offset:(\d{1,18})\s*", re.ASCII)


@dataclass(frozen=True)
class KafkaOptions:
    """Where a stream comes from, and where it begins; ``timestamp_ms`` is since 1970.

    That, and ``offsets`` by partition, are for the modes of their names only. ``on_gap`` says what happens where
    messages are gone that were not read. ``bounded`` says where the stream ends in the same way as ``mode`` where it
    begins, with ``bounded_ms`` and ``bounded_offsets``.
    """

    topic: str
    properties: Mapping[str, str]
    mode: str
    timestamp_ms: int | None = None
    offsets: Mapping[int, int] = field(default_factory=dict)
    on_gap: str = FAIL
    bounded: str = UNBOUNDED
    bounded_ms: int | None = None
    bounded_offsets: Mapping[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.topic:
            raise NotAllowed("Connector 'kafka' needs a topic. Add topic = 'NAME' to WITH.")
        if not is_topic(self.topic):
            raise NotAllowed(f"Option 'topic' must be {TOPIC_RULE}; got {self.topic[:300]!r}.")
        if not self.properties.get(SERVERS):
            raise NotAllowed(
                f"Connector 'kafka' needs its brokers. Add '{PREFIX}{SERVERS}' = 'HOST:PORT,HOST:PORT' to WITH."
            )
        check_properties(self.properties)
        if self.mode not in MODES:
            raise NotAllowed(
                f"Option 'scan.startup.mode' must be one of {', '.join(map(repr, MODES))}; got {self.mode!r}."
            )
        if (self.mode == TIMESTAMP) != (self.timestamp_ms is not None):
            raise NotAllowed(
                f"'scan.startup.mode' = {TIMESTAMP!r} needs option 'scan.startup.timestamp-millis', and that goes with"
                " no other mode."
            )
        if (self.mode == SPECIFIC) != bool(self.offsets):
            raise NotAllowed(
                f"'scan.startup.mode' = {SPECIFIC!r} needs option {OFFSETS!r}, and that goes with no other mode."
            )
        if self.bounded not in BOUNDED_MODES:
            raise NotAllowed(f"Option {BOUNDED!r} must be one of {', '.join(BOUNDED_MODES)}; got {self.bounded!r}.")
        if (self.bounded == TIMESTAMP) != (self.bounded_ms is not None):
            raise NotAllowed(f"{BOUNDED!r} = {TIMESTAMP!r} needs option {BOUNDED_MS!r}, which goes with no other mode.")
        if (self.bounded == SPECIFIC) != bool(self.bounded_offsets):
            raise NotAllowed(
                f"{BOUNDED!r} = {SPECIFIC!r} needs option {BOUNDED_OFFSETS!r}, which goes with no other mode."
            )
        if self.on_gap not in (FAIL, SKIP):
            raise NotAllowed(f"Option {ON_GAP!r} must be {FAIL!r} or {SKIP!r}; got {self.on_gap!r}.")

    @property
    def skips_gaps(self) -> bool:
        """Whether the stream goes on after messages that are gone."""
        return self.on_gap == SKIP

    @property
    def where(self) -> str:
        """The topic and its brokers, in words."""
        return f"topic {self.topic!r} at {self.properties[SERVERS]}"

    def client(self) -> dict[str, str]:
        """Return the client's properties with what secrets refer to; NotReady names one that is not there."""
        return reveal_properties(self.properties)


def check_properties(properties: Mapping[str, str]) -> None:
    """Check what is passed on to the client; NotAllowed for what may not be set, and for a secret that is there."""
    for name in properties:
        if name not in PROPERTIES:
            raise NotAllowed(
                f"Option '{PREFIX}{name}' is not supported. Supported are"
                f" {', '.join(PREFIX + known for known in PROPERTIES)}."
            )
        if name.endswith(".url") and "@" in properties[name]:
            raise NotAllowed(f"Option '{PREFIX}{name}' must have no user and password, so that they are not kept.")
    servers = properties.get(SERVERS, "")
    for server in [] if is_reference(servers) else filter(None, servers.split(",")):
        match = _SERVER.fullmatch(server.strip())
        if match is None or not 0 < int(match[1] or 1) < 1 << 16:
            raise NotAllowed(
                f"Option '{PREFIX}{SERVERS}' must be 'HOST:PORT', or several with commas between them; got"
                f" {server[:300]!r}."
            )
    check_secrets(properties, SECRETS, PREFIX)


def is_topic(name: str) -> bool:
    """Whether a topic may be called so."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def check_confined(properties: Mapping[str, str], confinement: Confinement) -> None:
    """Raise NotAllowed for a property that has the client read a file or call a URL it may not.

    Brokers are not confined: which of them there are, brokers say themselves.
    """
    for name, value in properties.items():
        if name.endswith(".location") and value != _ANY_CA:
            check_local_file(value, confinement.table_folder, "stream or sink", f"file {name!r}")
        elif name.endswith(".url"):
            confinement.outgoing.check_unwatched(value, f"Option '{PREFIX}{name}'")


def reveal_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties with what secrets refer to; NotReady names one that is not there."""
    return {name: reveal(value, lines=name.endswith(".pem")) for name, value in properties.items()}


def read_options(options: Mapping[str, str], of_format: Sequence[str] = ()) -> KafkaOptions:
    """Read what stands in WITH, but for the options of the format; NotAllowed says what is supported instead."""
    for option in options:
        if option not in (*_OPTIONS, *of_format) and not option.startswith(PREFIX):
            known = ", ".join(map(repr, (*_OPTIONS, *of_format, f"{PREFIX}{SERVERS}", f"{PREFIX}…")))
            meant = did_you_mean(option, (*_OPTIONS, *of_format, f"{PREFIX}{SERVERS}", *COMMON_OPTIONS))
            raise NotAllowed(f"Connector 'kafka' has no option {option!r}. It has {known}.{meant}")
    return KafkaOptions(
        options.get("topic", ""),
        {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)},
        options.get("scan.startup.mode", LATEST),
        _milliseconds(options, "scan.startup.timestamp-millis"),
        read_offsets(options[OFFSETS]) if OFFSETS in options else {},
        options.get(ON_GAP, FAIL).lower(),
        options.get(BOUNDED, UNBOUNDED),
        _milliseconds(options, BOUNDED_MS),
        read_offsets(options[BOUNDED_OFFSETS], BOUNDED_OFFSETS) if BOUNDED_OFFSETS in options else {},
    )


def _milliseconds(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is not None and not (text.isascii() and text.isdigit() and len(text) < 18):
        raise NotAllowed(f"Option {name!r} must be milliseconds since 1970; got {text!r}.")
    return None if text is None else int(text)


def read_offsets(text: str, option: str = OFFSETS) -> dict[int, int]:
    """Return the offset of each partition from ``partition:0,offset:42;partition:1,offset:300``."""
    offsets: dict[int, int] = {}
    for part in text.removesuffix(";").split(";"):
        match = _PLACE.fullmatch(part)
        if match is None or int(match[1]) in offsets:
            raise NotAllowed(
                f"Option {option!r} must be like 'partition:0,offset:42;partition:1,offset:300', each partition once;"
                f" got {text[:200]!r}."
            )
        offsets[int(match[1])] = int(match[2])
    return offsets
