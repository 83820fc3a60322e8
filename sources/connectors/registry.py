"""The connectors that a stream can be declared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from braid.sources.connectors.connector import Connector
from braid.sources.connectors.files.connector import DiscoveringFileConnector, FileConnector
from braid.sources.connectors.files.connector import validate_options as validate_files
from braid.sources.connectors.files.options import FORMATS as FILE_FORMATS
from braid.sources.connectors.flight import FlightConnector
from braid.sources.connectors.flight import validate_options as validate_flight
from braid.sources.connectors.generator import GeneratorConnector, validate_options
from braid.sources.connectors.kafka.connector import KafkaConnector
from braid.sources.connectors.kafka.connector import validate_options as validate_kafka
from braid.sources.connectors.kafka.formats import FORMATS as KAFKA_FORMATS
from braid.sources.connectors.kafka.options import EARLIEST as KAFKA_EARLIEST
from braid.sources.connectors.one_row import CONNECTOR as ONE_ROW
from braid.sources.connectors.one_row import OneRowConnector
from braid.sources.connectors.push import PushConnector, check_local
from braid.sources.core.confinement import OPEN, Confinement
from braid.sources.core.errors import NotAllowed
from braid.sources.core.names import did_you_mean
from braid.sources.core.schema import StreamDefinition, StreamSchema
from braid.sources.core.storage import Storage
from braid.sources.core.watermark_options import COMMON_OPTIONS
from braid.sources.formats.columns import check_paths


@dataclass(frozen=True)
class Declaration:
    """What a CREATE STREAM says; ``format`` may be empty, ``options`` is what else stands in WITH.

    ``storage`` is the data directory that the stream is for, None where only the statement is looked at.
    """

    name: str
    schema: StreamSchema
    format: str
    options: Mapping[str, str]
    confinement: Confinement
    storage: Storage | None


@dataclass(frozen=True)
class ConnectorKind:
    """How to check and open streams of one connector; ``formats`` is empty when it takes none.

    ``open_for_planner`` is for connectors of which the planner has another end.
    ``has_metadata`` says whether columns can be METADATA, ``begins_at_the_earliest`` whether a stream begins with the
    oldest that there is, ``reads_input`` whether its tuples are written by others, ``keeps_arrival`` whether a tuple
    that is read again has the same time of arrival.
    """

    formats: tuple[str, ...]
    validate: Callable[[Declaration], object]
    open: Callable[[StreamDefinition, Storage], Connector]
    open_for_planner: Callable[[StreamDefinition, Storage], Connector] | None = None
    has_metadata: bool = False
    begins_at_the_earliest: Callable[[StreamDefinition], bool] = lambda _: False
    reads_input: bool = True
    keeps_arrival: bool = False


def _validate_push(declared: Declaration) -> None:
    if declared.options:
        hints = (did_you_mean(option, ("format", *COMMON_OPTIONS)) for option in declared.options)
        meant = next(filter(None, hints), " Leave it out.")
        raise NotAllowed(f"Connector 'push' has no option {', '.join(map(repr, declared.options))}.{meant}")
    if declared.storage is not None:
        check_local(declared.storage, declared.name)


CONNECTORS: dict[str, ConnectorKind] = {
    # the format is for show: each request's content type says what it holds
    "push": ConnectorKind(
        ("json", "arrow", "csv"),
        _validate_push,
        lambda definition, storage: PushConnector(storage, definition),
        keeps_arrival=True,
    ),
    "generator": ConnectorKind(
        (),
        lambda declared: validate_options(declared.name, declared.schema, declared.options),
        lambda definition, _: GeneratorConnector(definition),
        reads_input=False,
    ),
    "kafka": ConnectorKind(
        KAFKA_FORMATS,
        lambda declared: validate_kafka(declared.schema, declared.format, declared.options, declared.confinement),
        KafkaConnector,
        has_metadata=True,
        begins_at_the_earliest=lambda definition: definition.options.get("scan.startup.mode") == KAFKA_EARLIEST,
    ),
    "flight": ConnectorKind(
        (),
        lambda declared: validate_flight(declared.name, declared.schema, declared.options),
        lambda definition, _: FlightConnector(definition),
    ),
    "file": ConnectorKind(
        FILE_FORMATS,
        lambda declared: validate_files(declared.schema, declared.format, declared.options, declared.confinement),
        FileConnector,
        DiscoveringFileConnector,
        begins_at_the_earliest=lambda _: True,
        keeps_arrival=True,
    ),
}
# what no CREATE STREAM can name
_HIDDEN = {
    ONE_ROW: ConnectorKind((), lambda _: None, lambda *_: OneRowConnector(), begins_at_the_earliest=lambda _: True)
}


def validate_definition(
    name: str,
    schema: StreamSchema,
    connector: str,
    format: str,
    options: Mapping[str, str],
    confinement: Confinement = OPEN,
    storage: Storage | None = None,
) -> None:
    """Check the parts of a CREATE STREAM, see :class:`Declaration`; NotAllowed says what is supported instead."""
    kind = _kind(connector)
    if format and format not in kind.formats:
        accepted = f"takes format {' or '.join(map(repr, kind.formats))}" if kind.formats else "takes no format"
        raise NotAllowed(f"Connector {connector!r} {accepted}; got format {format!r}.", stream=name)
    if schema.metadata and not kind.has_metadata:
        raise NotAllowed(f"Connector {connector!r} has no METADATA for column {schema.metadata[0][0]!r}.", stream=name)
    try:
        _check_columns(schema, connector, kind)
        check_paths(schema, format)
        kind.validate(Declaration(name, schema, format, options, confinement, storage))
    except NotAllowed as problem:
        problem.stream = name
        raise


def _check_columns(schema: StreamSchema, connector: str, kind: ConnectorKind) -> None:
    """Raise NotAllowed for columns whose values cannot come from where they are declared to."""
    for field in schema.fields:
        if not kind.reads_input and (field.source or field.arrival or field.computed is not None):
            raise NotAllowed(f"Connector {connector!r} makes all columns; write {field.name} {field.type} alone.")
        if field.arrival and not kind.keeps_arrival:
            hint = f" Write {field.name} TIMESTAMP METADATA FROM 'timestamp'." if kind.has_metadata else ""
            raise NotAllowed(
                f"Connector {connector!r} does not keep when a row came, so column {field.name!r} cannot be the time"
                f" of ARRIVAL.{hint}"
            )


def open_connector(definition: StreamDefinition, storage: Storage) -> Connector:
    """Return the reading end of a stream; NotAllowed when its definition or the storage does not allow one.

    What it may read and call is what the confinement in the storage says.
    """
    return _kind(definition.connector).open(definition, storage)


def open_for_planner(definition: StreamDefinition, storage: Storage) -> Connector:
    """Return the planner's end of a stream, which knows what there is to read; one process at a time may have it."""
    kind = _kind(definition.connector)
    if kind.open_for_planner is not None:
        return kind.open_for_planner(definition, storage)
    return kind.open(definition, storage)


def begins_at_the_earliest(definition: StreamDefinition) -> bool:
    """Whether a stream begins with the oldest that its connector has."""
    return _kind(definition.connector).begins_at_the_earliest(definition)


def _kind(connector: str) -> ConnectorKind:
    kind = CONNECTORS.get(connector) or _HIDDEN.get(connector)
    if kind is None:
        raise NotAllowed(f"The connector must be one of {', '.join(map(repr, CONNECTORS))}; got {connector!r}.")
    return kind
