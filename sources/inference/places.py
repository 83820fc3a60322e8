"""Samples of what connectors read: a folder of files, and a Kafka topic.

What may be read is what a stream over it may read: the options are checked as those of CREATE STREAM.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from pyarrow import fs

from braid.sources.connectors.files.folder import KIND, OWNER, Folder, FoundFile, opened
from braid.sources.connectors.files.options import FileOptions
from braid.sources.connectors.files.options import read_options as read_file_options
from braid.sources.connectors.kafka.formats import DELIMITER, OPTIONS, registry_option, without_header
from braid.sources.connectors.kafka.options import (
    EARLIEST,
    PREFIX,
    SERVERS,
    KafkaOptions,
    check_confined,
)
from braid.sources.connectors.kafka.options import read_options as read_kafka_options
from braid.sources.core.confinement import Confinement
from braid.sources.core.errors import MalformedRequest, NotAllowed, NotReady
from braid.sources.core.locations import locate
from braid.sources.inference.sample import (
    CSV,
    FORMS,
    JSON,
    MAX_ROWS,
    PARQUET,
    SAMPLE_BYTES,
    Sample,
    form_of,
    sample_parquet,
    sample_texts,
)

FILE, KAFKA = CONNECTORS = ("file", "kafka")
MAX_FILES = 8
PATIENCE_SECONDS = 10.0
_HEAD_BYTES = 64


@dataclass(frozen=True)
class PlaceSample:
    """A sample with the ``options`` that a stream over its place has, the format's among them, and what to know."""

    sample: Sample
    connector: str
    options: Mapping[str, str]
    name: str
    comments: tuple[str, ...] = ()


def sample_place(connector: str, options: Mapping[str, str], confinement: Confinement) -> PlaceSample:
    """Return a sample of what a connector would read; ``options`` are those of WITH, ``format`` if it is known.

    NotAllowed for what may not be read or has nothing to look at, NotReady where it does not answer.
    """
    if connector not in CONNECTORS:
        raise NotAllowed(
            f"Connectors that can be looked at are {', '.join(map(repr, CONNECTORS))}; got {connector!r}."
            " Send a sample of its rows as the body instead, as CSV, JSON or Parquet."
        )
    form = options.get("format", "").lower()
    rest = {name: value for name, value in options.items() if name != "format"}
    try:
        return _sample_folder(form, rest, confinement) if connector == FILE else _sample_topic(form, rest, confinement)
    except MalformedRequest as problem:
        raise NotAllowed(problem.detail) from None


# files


def _sample_folder(form: str, options: Mapping[str, str], confinement: Confinement) -> PlaceSample:
    if form and form not in FORMS:
        raise NotAllowed(f"Option 'format' must be one of {', '.join(map(repr, FORMS))}; got {form!r}.")
    read_file_options(form or CSV, options)
    path = options.get("path", "")
    try:
        path, folder = _folder_of(path, confinement)
        files = folder.look()
    except OSError as problem:
        raise NotAllowed(
            f"The path {options['path']!r} must be a folder, or the one file in it, that is there and readable where"
            f" the service runs: {problem}."
        ) from None
    if not files:
        raise NotAllowed(f"The folder {path!r} must have a file to look at; it has none.")
    looked_at = files[:MAX_FILES]
    with ExitStack() as stack:
        try:
            sources = [stack.enter_context(_opened(folder, file)) for file in looked_at]
            forms = {form} if form else {form_of(source.read_at(_HEAD_BYTES, 0)) for source in sources}
            if len(forms) > 1:
                raise NotAllowed(
                    f"The files of a folder must have one format; those of {path!r} are {' and '.join(sorted(forms))}."
                    " Put them into folders of their own."
                )
            (form,) = forms
            sample = _sample_sources(form, sources, options)
        except OSError as problem:
            raise NotAllowed(f"The files of folder {path!r} must be readable: {problem}.") from None
    if sample.is_array:
        raise NotAllowed(
            f"Files of a folder must have a JSON object a line; {looked_at[0].path!r} is one array. Write it so (with"
            " jq: jq -c '.[]'), or push it as the body of POST /streams/{name}/events."
        )
    read = "its one file" if len(files) == 1 else f"its {len(files)} files"
    if options.get("bounded", "").lower() == "true":
        comment = f"The stream reads all of the folder, {read}, and then it ends."
    else:
        comment = f"The stream reads all of the folder: {read}, and those that come."
        comment += (
            " Add bounded = 'true' (--option bounded=true) if none come; else the last windows wait for later rows."
        )
    return PlaceSample(sample, FILE, {"format": form, **options, **sample.options, "path": path}, path, (comment,))


def _folder_of(path: str, confinement: Confinement) -> tuple[str, Folder]:
    """Return the folder of a path, which may be that of the only file in it."""
    data_folder = confinement.data_folder
    filesystem, real = locate(path, confinement.table_folder, OWNER, KIND, data_folder=data_folder)
    if filesystem.get_file_info(real).type != fs.FileType.File:
        return path, Folder(FileOptions(path, CSV), confinement.table_folder, data_folder)
    head, slash, _ = path.rstrip("/").rpartition("/")
    parent = head or slash or "."
    folder = Folder(FileOptions(parent, CSV), confinement.table_folder, data_folder)
    others = len(folder.look()) - 1
    if others > 0:
        raise NotAllowed(
            f"Connector 'file' reads whole folders, and {parent!r} has {others} file(s) besides {path!r}. Put it into a"
            " folder of its own, or send the file as the body (braid infer FILE) for a stream that it is pushed to."
        )
    return parent, folder


@contextmanager
def _opened(folder: Folder, file: FoundFile) -> Iterator[Any]:
    with opened(folder.uri, file, folder.real_path(file.path)) as source:
        yield source


def _sample_sources(form: str, sources: list[Any], options: Mapping[str, str]) -> Sample:
    if form == PARQUET:
        return sample_parquet(sources)
    texts: list[bytes] = []
    left = SAMPLE_BYTES
    for source in sources:
        if left <= 0:
            break
        size = min(left, source.size())
        text = source.read_at(size, 0)
        # a part of a file ends with its last whole line
        texts.append(text if size == source.size() else text[: text.rfind(b"\n") + 1] or text)
        left -= size
    return sample_texts(form, texts, options)


# topics


def _sample_topic(form: str, options: Mapping[str, str], confinement: Confinement) -> PlaceSample:
    if form and form not in (JSON, CSV):
        raise NotAllowed(
            f"Messages in {form!r} cannot be looked at, only those in 'json' and 'csv'; the schema of those in Avro or"
            " Protobuf has the columns."
        )
    parsed = read_kafka_options(options, OPTIONS.get(form or CSV, ()))
    check_confined(parsed.properties, confinement)
    messages = read_topic(parsed)
    values = [value for _, value in messages if value]
    if not values:
        raise NotAllowed(f"The {parsed.where} must have a message to look at; it has none.")
    form = form or form_of(values[0][:_HEAD_BYTES])
    if form == JSON:
        if registry_option(JSON) in options:
            values = [without_header(value) for value in values]
        sample = sample_texts(JSON, [b"\n".join(value.replace(b"\n", b" ") for value in values)])
    else:
        given = {"header": "false", **({"delimiter": options[DELIMITER]} if DELIMITER in options else {})}
        sample = sample_texts(CSV, [b"\n".join(value.rstrip(b"\r\n") for value in values)], given)
    kept = {"scan.startup.mode": EARLIEST, **options}
    of_format = {DELIMITER: sample.options["delimiter"]} if "delimiter" in sample.options else {}
    return PlaceSample(sample, KAFKA, {**kept, "format": form, **of_format}, parsed.topic.replace(".", "_"))


def read_topic(options: KafkaOptions, patience_seconds: float = PATIENCE_SECONDS) -> list[tuple[int, bytes]]:
    """Return the oldest messages of a topic with their partitions, in order of their time, NotReady if none answers.

    There are at most as many as a sample has rows and bytes, from all partitions alike.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of how the package reads its own files
        import kafka
        from kafka.errors import KafkaError
    settings = client_settings(options)
    deadline = time.monotonic() + patience_seconds
    consumer = None
    try:
        consumer = kafka.KafkaConsumer(**settings)
        numbers = sorted(consumer.partitions_for_topic(options.topic) or ())
        if not numbers:
            raise NotAllowed(f"The brokers must have the topic {options.topic!r}; they do not.")
        partitions = [kafka.TopicPartition(options.topic, number) for number in numbers]
        consumer.assign(partitions)
        begins, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        return _read_partitions(consumer, begins, ends, deadline)
    except (KafkaError, OSError, ValueError, AssertionError) as problem:
        raise NotReady(f"The Kafka {options.where} must answer to be looked at, and does not: {problem}.") from None
    finally:
        if consumer is not None:
            consumer.close(autocommit=False, timeout_ms=1000)


def _read_partitions(
    consumer: Any, begins: Mapping[Any, int], ends: Mapping[Any, int], deadline: float
) -> list[tuple[int, bytes]]:
    of_each = max(MAX_ROWS // len(begins), 1)
    bytes_of_each = max(SAMPLE_BYTES // len(begins), 1)
    messages: list[tuple[int, int, int, bytes]] = []
    for partition, begin in begins.items():
        consumer.assign([partition])
        consumer.seek(partition, begin)
        size = count = 0
        while consumer.position(partition) < ends[partition] and count < of_each and size < bytes_of_each:
            if time.monotonic() > deadline:
                break
            for batch in consumer.poll(timeout_ms=500, max_records=500).values():
                for record in batch:
                    value = record.value or b""
                    messages.append((record.timestamp, partition.partition, record.offset, value))
                    size, count = size + len(value), count + 1
    messages.sort(key=lambda message: message[:3])
    return [(partition, value) for _, partition, _, value in messages]


_PASSED_ON = {
    "client.id": "client_id",
    "client.rack": "client_rack",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}
_OF_SPEED = ("fetch.", "max.partition.", "socket.", "broker.")


def client_settings(options: KafkaOptions) -> dict[str, Any]:
    """Return what the client that takes samples is set up with; NotAllowed for what it does not have.

    NotReady names a secret that is not there.
    """
    properties = options.client()
    settings: dict[str, Any] = {
        "bootstrap_servers": [server.strip().rpartition("://")[2] for server in properties[SERVERS].split(",")],
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
        "allow_auto_create_topics": False,
        "request_timeout_ms": round(PATIENCE_SECONDS * 1000),
        "bootstrap_timeout_ms": round(PATIENCE_SECONDS * 1000),
    }
    for name, value in properties.items():
        if name in _PASSED_ON:
            settings[_PASSED_ON[name]] = value
        elif name == "ssl.endpoint.identification.algorithm":
            settings["ssl_check_hostname"] = value.lower() != "none"
        elif name != SERVERS and not name.startswith(_OF_SPEED):
            raise NotAllowed(
                f"A topic cannot be looked at with option '{PREFIX}{name}'. Send some of its messages as the body"
                " instead, a JSON object a line."
            )
    if "security_protocol" in settings:
        settings["security_protocol"] = settings["security_protocol"].upper()
    return settings
