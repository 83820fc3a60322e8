"""Where statements may read and write: what follows from the settings, and what holds whatever a path looks like."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from pyarrow import fs

from braid.router.sinks import file, kafka, postgres
from braid.session.settings import Settings
from braid.sources.connectors.registry import validate_definition
from braid.sources.connectors.static_table import TableDefinition, TableReader
from braid.sources.core import locations
from braid.sources.core.confinement import OPEN, Confinement
from braid.sources.core.errors import NotAllowed
from braid.sources.core.locations import NOWHERE, check_local_file, locate
from braid.sources.core.outgoing import Outgoing
from braid.sources.core.schema import BIGINT, INT, TIMESTAMP, VARCHAR, Field, Schema, StreamSchema
from braid.sources.core.storage import Storage
from tests.router.sinks.subjects import SELECTION, subject

SCHEMA = StreamSchema((Field("k", BIGINT), Field("t", TIMESTAMP)), "t", 0)
PACKS = Schema((Field("gem_pack", INT), Field("name", VARCHAR)))
KAFKA = {"topic": "t", "properties.bootstrap.servers": "h:1"}


def packs(path: str) -> TableDefinition:
    return TableDefinition("t-1", "packs", PACKS, "csv", {"path": path})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_on_loopback_nothing_is_confined_unless_it_is_said(host: str) -> None:
    assert Settings(host=host).confinement == OPEN
    said = Settings(host=host, table_folder="t", sink_folder="none", outgoing_allow=("public",)).confinement
    assert said == Confinement("t", "none", Outgoing(("public",)))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "braid.example.com"])
def test_elsewhere_there_are_no_files_and_no_internal_addresses(host: str) -> None:
    assert Settings(host=host).confinement == Confinement(NOWHERE, NOWHERE, Outgoing(("public",)))
    said = Settings(host=host, table_folder="/", sink_folder="rows", outgoing_allow=("*",)).confinement
    assert said == Confinement("/", "rows", Outgoing(("*",)))


def test_processes_find_the_confinement_of_their_service(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    nothing = Confinement(NOWHERE, NOWHERE, Outgoing(()))
    assert Confinement.of(storage) == nothing, "it was never written, or is lost"
    for unreadable in (b"", b"{}", b"[]", b'{"table_folder": "", "sink_folder": "", "outgoing": 7}'):
        storage.put("confinement.json", unreadable)
        assert Confinement.of(storage) == nothing
    confined = Settings(host="0.0.0.0", sink_folder="rows").confinement
    confined.write(storage)
    assert Confinement.of(Storage(str(tmp_path))) == confined


def test_a_service_with_keys_is_confined_on_loopback_too() -> None:
    assert Settings(access="on").confinement == Confinement(NOWHERE, NOWHERE, Outgoing(("public",)))
    assert Settings(host="0.0.0.0", access="off").confinement == Confinement(NOWHERE, NOWHERE, Outgoing(("public",)))


@pytest.mark.parametrize("given", ["data", "data/results", "./x/../data/buckets", "link/x", ".", "", "{uri}/data/x"])
def test_nothing_may_lie_in_or_above_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("gem_pack,name\n1,a\n")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    path = given.format(uri=tmp_path.as_uri()) or str(tmp_path)
    confinement = Settings(data_dir="data").confinement
    with pytest.raises(NotAllowed, match="neither in nor above the data folder"):
        TableReader("", confinement.data_folder).read(packs(path))
    with pytest.raises(NotAllowed, match="neither in nor above the data folder"):
        validate_definition("s", SCHEMA, "file", "json", {"path": path}, confinement)
    with pytest.raises(NotAllowed, match="neither in nor above the data folder"):
        file.validate({"path": path}, SELECTION, confinement)
    with pytest.raises(NotAllowed, match="neither in nor above the data folder"):
        file.Folders("", confinement.data_folder).open(subject(), {"path": path})
    file.validate({"path": "data-of-others/rows"}, SELECTION, confinement)
    validate_definition("s", SCHEMA, "file", "json", {"path": "events"}, confinement)


def test_where_no_files_are_allowed_the_setting_is_named(tmp_path: Path) -> None:
    confined = Confinement(NOWHERE, NOWHERE)
    path = tmp_path / "packs.csv"
    path.write_text("gem_pack,name\n1,a\n")
    for given in (str(path), path.as_uri(), "packs.csv", "s3://bucket/packs.csv"):
        with pytest.raises(NotAllowed, match="can set table_folder to a folder"):
            TableReader(NOWHERE).read(packs(given))
        with pytest.raises(NotAllowed, match="can set table_folder to a folder"):
            validate_definition("s", SCHEMA, "file", "json", {"path": given}, confined)
        with pytest.raises(NotAllowed, match="can set sink_folder to a folder"):
            file.validate({"path": given}, SELECTION, confined)


def test_links_lead_nowhere_else(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "packs.csv").write_text("gem_pack,name\n1,a\n")
    (inside / "file.csv").symlink_to(outside / "packs.csv")
    (inside / "folder").symlink_to(outside)
    reader = TableReader(str(inside))
    for given in ("file.csv", "folder/packs.csv", "x/../../outside/packs.csv", (inside / "file.csv").as_uri()):
        with pytest.raises(NotAllowed, match="must lie below"):
            reader.read(packs(given))
    with pytest.raises(NotAllowed, match="must lie below"):
        file.validate({"path": "folder/rows"}, SELECTION, Confinement(sink_folder=str(inside)))


@pytest.mark.parametrize(
    "given",
    ["hdfs://evil{root}/x", "s3://bucket{root}/x", "mock://{root}/x", "gs://bucket/x", "file://host{root}/x",
     "S3://b/x", "abfs://c@a/x"],
)  # fmt: skip
def test_another_file_system_is_not_even_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    """A path there may look as if it lay below the folder, and to open it may be a call to anybody."""

    class Unopened(fs.FileSystem):  # type: ignore[misc]
        @staticmethod
        def from_uri(uri: str) -> None:
            raise AssertionError(uri)

    monkeypatch.setattr(locations.fs, "FileSystem", Unopened)
    with pytest.raises(NotAllowed, match="must lie below"):
        locate(given.format(root=tmp_path), str(tmp_path), "table", "file")


def test_a_folder_may_be_a_uri(tmp_path: Path) -> None:
    folder = tmp_path.as_uri()
    for given in ("x", (tmp_path / "x").as_uri()):
        assert locate(given, folder, "table", "file")[1] == str(tmp_path / "x")
    for given in ("../x", "mock://x", "file:///x", "s3://b/x"):
        with pytest.raises(NotAllowed, match="must lie below"):
            locate(given, folder, "table", "file")
    with pytest.raises(NotAllowed, match="must lie below"):
        check_local_file(str(tmp_path / "x"), f"hdfs://h{tmp_path}", "sink", "file")


@pytest.mark.parametrize(
    "given",
    ["s3://AKID:hunter2@bucket/x", "s3://hunter2@bucket/x", "abfs://c:hunter2@a/x", "abfs://c@a/x?sas_token=hunter2",
     "hdfs://u:hunter2@h/x", "s3://b/x?secret_key=hunter2"],
)  # fmt: skip
def test_a_secret_in_a_uri_is_refused_and_not_shown(given: str) -> None:
    for folder in ("", NOWHERE, "/tables"):
        with pytest.raises(NotAllowed, match="must hold no password and no key") as refused:
            locate(given, folder, "table", "file")
        assert "hunter2" not in refused.value.detail
    with pytest.raises(NotAllowed, match="setting data_dir must hold no password") as refused:
        Settings(data_dir=given)
    assert "hunter2" not in refused.value.detail


@pytest.mark.parametrize(
    ("said", "is_allowed"),
    [
        ({"properties.ssl.ca.location": "{root}/ca.pem"}, True),
        ({"properties.ssl.ca.location": "probe"}, True),
        ({"properties.ssl.ca.location": "/etc/passwd"}, False),
        ({"properties.ssl.key.location": "{root}/../key.pem"}, False),
        ({"properties.sasl.oauthbearer.token.endpoint.url": "https://id.example.com/t"}, True),
        ({"properties.sasl.oauthbearer.token.endpoint.url": "https://elsewhere.example.com/t"}, False),
        ({"properties.sasl.oauthbearer.token.endpoint.url": "http://169.254.169.254/t"}, False),
    ],
)
def test_what_kafka_clients_read_and_call_is_confined_too(
    tmp_path: Path, said: Mapping[str, str], is_allowed: bool
) -> None:
    options = {**KAFKA, **{name: value.format(root=tmp_path) for name, value in said.items()}}
    confined = Confinement(table_folder=str(tmp_path), outgoing=Outgoing(("public", "id.example.com")))
    kafka.validate(options, SELECTION, OPEN)
    validate_definition("s", SCHEMA, "kafka", "json", options)
    if is_allowed:
        kafka.validate(options, SELECTION, confined)
        validate_definition("s", SCHEMA, "kafka", "json", options, confined)
        return
    with pytest.raises(NotAllowed):
        kafka.validate(options, SELECTION, confined)
    with pytest.raises(NotAllowed):
        validate_definition("s", SCHEMA, "kafka", "json", options, confined)


def test_certificates_of_postgres_are_confined_too(tmp_path: Path) -> None:
    confined = Confinement(table_folder=str(tmp_path))
    for path, is_allowed in (("system", True), (str(tmp_path / "ca.pem"), True), ("/etc/passwd", False)):
        options = {"url": f"postgresql://h/d?sslmode=verify-full&sslrootcert={path}", "table": "t", "mode": "append"}
        postgres.validate(options, SELECTION, OPEN)
        if is_allowed:
            postgres.validate(options, SELECTION, confined)
        else:
            with pytest.raises(NotAllowed, match="must lie below"):
                postgres.validate(options, SELECTION, confined)
