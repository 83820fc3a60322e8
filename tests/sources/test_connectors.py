"""Which connectors there are, and what a stream may be declared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from braid.sources.connectors.generator import DATASETS, GeneratorConnector
from braid.sources.connectors.push import PushConnector
from braid.sources.connectors.registry import CONNECTORS, open_connector, validate_definition
from braid.sources.core.confinement import OPEN, Confinement
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import StreamDefinition, StreamSchema
from braid.sources.core.storage import Storage

SCHEMA = StreamSchema(DATASETS["ads"], "time", 0)
NEEDED = {
    "kafka": {"topic": "ads", "properties.bootstrap.servers": "127.0.0.1:1"},
    "flight": {"location": "grpc://127.0.0.1:1"},
    "file": {"path": "ads"},
}
OF_FORMAT = {("kafka", form): {f"{form}.schema-registry.url": "http://127.0.0.1:1"} for form in ("avro", "protobuf")}
PARTITIONED = ("kafka", "flight")  # by the server, and there is none


def test_every_connector_opens_what_it_validates(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    OPEN.write(storage)
    for connector, kind in CONNECTORS.items():
        for stream_format in ("", *kind.formats):
            options = {**NEEDED.get(connector, {}), **OF_FORMAT.get((connector, stream_format), {})}
            validate_definition("ads", SCHEMA, connector, stream_format, options)
            validate_definition("ads", SCHEMA, connector, stream_format, options, Confinement(str(tmp_path)))
            definition = StreamDefinition("s1", "ads", SCHEMA, connector, stream_format, options, created_us=10**15)
            nothing = {} if connector in PARTITIONED else {"0": (0, 0)}
            assert open_connector(definition, storage).available(10**15 - 1) == nothing
    push = StreamDefinition("s1", "ads", SCHEMA, "push", "json")
    assert isinstance(open_connector(push, storage), PushConnector)
    assert isinstance(
        open_connector(StreamDefinition("s1", "ads", SCHEMA, "generator", ""), storage), GeneratorConnector
    )


@pytest.mark.parametrize(
    ("connector", "stream_format", "options", "message"),
    [
        (
            "carrier pigeon",
            "",
            {},
            "must be one of 'push', 'generator', 'kafka', 'flight', 'file'; got 'carrier pigeon'",
        ),
        ("push", "xml", {}, "Connector 'push' takes format 'json' or 'arrow' or 'csv'; got format 'xml'"),
        ("push", "json", {"topic": "x"}, "Connector 'push' has no option 'topic'"),
        ("generator", "json", {}, "Connector 'generator' takes no format; got format 'json'"),
        ("generator", "", {"topic": "x"}, "Connector 'generator' has no option 'topic'. It has"),
    ],
)
def test_what_does_not_exist_is_told_with_what_does(
    connector: str, stream_format: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(NotAllowed, match=message):
        validate_definition("ads", SCHEMA, connector, stream_format, options)


def test_a_file_is_no_folder_of_a_stream(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.touch()
    with pytest.raises(NotAllowed, match=rf"rows.csv' is a file. Write path = '{tmp_path}'"):
        validate_definition("ads", SCHEMA, "file", "csv", {"path": str(file)})


def test_pushing_needs_a_local_folder() -> None:
    definition = StreamDefinition("s1", "ads", SCHEMA, "push", "json")
    with pytest.raises(NotAllowed, match="local folder"):
        open_connector(definition, Storage("mock://bucket"))
