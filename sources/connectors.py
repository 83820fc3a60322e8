"""The connectors that a stream can be declared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sources.connector import Connector
from sources.errors import NotAllowed
from sources.flight import FlightConnector
from sources.flight import validate_options as validate_flight
from sources.generator import GeneratorConnector, validate_options
from sources.kafka import KafkaConnector
from sources.kafka import validate_options as validate_kafka
from sources.push import PushConnector
from sources.schema import StreamDefinition, StreamSchema
from sources.storage import Storage


@dataclass(frozen=True)
class ConnectorKind:
    """How to check and open streams of one connector; ``formats`` is empty when it takes none."""

    formats: tuple[str, ...]
    validate: Callable[[str, StreamSchema, Mapping[str, str]], object]
    open: Callable[[StreamDefinition, Storage], Connector]


def _validate_push(name: str, schema: StreamSchema, options: Mapping[str, str]) -> None:  # noqa: ARG001
    if options:
        raise NotAllowed(f"Connector 'push' has no options; got {', '.join(map(repr, options))}.")


CONNECTORS: dict[str, ConnectorKind] = {
    # the format is for show: each request's content type says what it holds
    "push": ConnectorKind(
        ("json", "arrow"), _validate_push, lambda definition, storage: PushConnector(storage, definition)
    ),
    "generator": ConnectorKind((), validate_options, lambda definition, _: GeneratorConnector(definition)),
    "kafka": ConnectorKind(("json",), validate_kafka, KafkaConnector),
    "flight": ConnectorKind((), validate_flight, lambda definition, _: FlightConnector(definition)),
}


def validate_definition(
    name: str,
    schema: StreamSchema,
    connector: str,
    format: str,
    options: Mapping[str, str],
) -> None:
    """Check the parts of a CREATE STREAM; NotAllowed tells what exists instead.

    ``format`` may be empty; ``options`` is what stands in WITH besides connector and format.
    """
    kind = _kind(connector)
    if format and format not in kind.formats:
        exists = f"takes format {' or '.join(map(repr, kind.formats))}" if kind.formats else "takes no format"
        raise NotAllowed(f"Connector {connector!r} {exists}; got format {format!r}.", stream=name)
    try:
        kind.validate(name, schema, options)
    except NotAllowed as problem:
        problem.stream = name
        raise


def open_connector(definition: StreamDefinition, storage: Storage) -> Connector:
    """Return the reading end of a stream; NotAllowed when its definition or the storage does not allow one."""
    return _kind(definition.connector).open(definition, storage)


def _kind(connector: str) -> ConnectorKind:
    kind = CONNECTORS.get(connector)
    if kind is None:
        raise NotAllowed(f"The connector must be one of {', '.join(map(repr, CONNECTORS))}; got {connector!r}.")
    return kind
