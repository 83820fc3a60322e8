"""The file connector: every record of every file once, in the order of discovery, however ranges are cut."""

from __future__ import annotations

import gzip
import os
import random
from datetime import datetime, timedelta
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sources.connector import Chunk, Connector, Extent
from sources.connectors import open_connector, open_for_planner, validate_definition
from sources.errors import NotAllowed, NotReady
from sources.files import discovery
from sources.files import index as file_index
from sources.files.connector import DiscoveringFileConnector, FileConnector
from sources.files.discovery import Discovery
from sources.files.folder import Folder, FoundFile, opened
from sources.files.options import FileOptions
from sources.files.text import JsonFormat
from sources.schema import INT, TIMESTAMP, VARCHAR, Field, StreamDefinition, StreamSchema
from sources.storage import Storage
from tests.kit.waiting import wait_until

SCHEMA = StreamSchema((Field("k", INT), Field("s", VARCHAR), Field("t", TIMESTAMP)), "t", 0)
START = datetime(2026, 1, 1)
LONG_AGO = 1_700_000_000
DISCOVERED = 10.0


def line(k: int, s: str | None = "é") -> bytes:
    return orjson.dumps({"k": k, "s": s, "t": f"{START + timedelta(seconds=k)}"}) + b"\n"


def row(k: int, s: str = "é") -> bytes:
    return f"{k},{s},{START + timedelta(seconds=k)}\n".encode()


def parquet(path: Path, numbers: range, rows_in_group: int = 1000) -> None:
    times = pa.array([START + timedelta(seconds=k) for k in numbers], pa.timestamp("us"))
    table = pa.table({"t": times, "k": pa.array(numbers, pa.int32()), "s": ["é"] * len(numbers), "more": times})
    pq.write_table(table, path, row_group_size=rows_in_group)


class Files:
    """A folder and the stream that reads it; files are as old as they are told to be."""

    def __init__(self, folder: Path, storage: Storage) -> None:
        self.folder = folder
        self.storage = storage
        folder.mkdir()

    def put(self, name: str, content: bytes, age: int = 0) -> Path:
        """Write a file that was last changed ``age`` seconds after a moment long ago."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}")
        hidden.write_bytes(content)
        self.set_age(hidden, age)
        return hidden.rename(path)

    @staticmethod
    def set_age(path: Path, age: int) -> None:
        os.utime(path, (LONG_AGO + age, LONG_AGO + age))

    def definition(self, form: str = "json", created_us: int = 0, **options: str) -> StreamDefinition:
        given = {"path": str(self.folder), **options}
        validate_definition("readings", SCHEMA, "file", form, given)
        return StreamDefinition("s-1", "readings", SCHEMA, "file", form, given, created_us=created_us)

    def planner(self, form: str = "json", table_folder: str = "", **options: str) -> Connector:
        return open_for_planner(self.definition(form, **options), self.storage, table_folder)

    def reader(self, form: str = "json", **options: str) -> FileConnector:
        opened = open_connector(self.definition(form, **options), self.storage)
        assert isinstance(opened, FileConnector)
        return opened


@pytest.fixture
def files(tmp_path: Path, storage: Storage) -> Files:
    return Files(tmp_path / "events", storage)


def discovered(planner: Connector, end: int) -> None:
    """Return once records up to ``end`` were discovered."""
    wait_until(lambda: planner.available(0) == {"0": Extent(0, end)}, DISCOVERED, lambda: told(planner, end))


def told(planner: Connector, end: int) -> str:
    return f"records up to {end} are discovered, got {planner.available(0)}; {planner.problem}"


def problem(planner: Connector) -> str:
    """Return what the planner says is wrong, once it does; then nothing is available."""
    found = wait_until(lambda: (planner.available(0), planner.problem)[1], DISCOVERED, "something is wrong")
    assert planner.available(0) == {}
    return str(found)


def keys(chunks: list[Chunk]) -> list[int]:
    found: list[int] = pa.Table.from_batches([c.tuples for c in chunks], SCHEMA.arrow).column("k").to_pylist()
    return found


def read(reader: Connector, start: int, end: int) -> list[int]:
    return keys(list(reader.read("0", start, end)))


def put_json(files: Files, name: str, numbers: range, age: int) -> None:
    files.put(name, b"".join(map(line, numbers)), age)


def put_csv(files: Files, name: str, numbers: range, age: int) -> None:
    files.put(name, b"k,s,t\n" + b"".join(map(row, numbers)), age)


def put_parquet(files: Files, name: str, numbers: range, age: int) -> None:
    hidden = files.folder / f"_{name}"
    parquet(hidden, numbers, 7)
    files.set_age(hidden, age)
    hidden.rename(files.folder / name)


WRITERS = {"json": put_json, "csv": put_csv, "parquet": put_parquet}


@pytest.mark.parametrize("form", WRITERS)
def test_any_range_of_any_format_reads_the_same_in_the_order_of_time_then_name(form: str, files: Files) -> None:
    write = WRITERS[form]
    write(files, "b", range(200, 300), 1)
    write(files, "c", range(100), 0)
    write(files, "a", range(100, 200), 1)
    planner, reader = files.planner(form), files.reader(form)
    discovered(planner, 300)
    expected = [*range(100), *range(100, 200), *range(200, 300)]
    assert read(reader, 0, 300) == expected
    rng = random.Random(1)
    for _ in range(20):
        start = rng.randint(0, 300)
        end = rng.randint(start, 300)
        assert read(reader, start, end) == expected[start:end]
    write(files, "0", range(300, 305), 0)  # older than others, but discovered later
    discovered(planner, 305)
    assert read(reader, 298, 305) == [298, 299, *range(300, 305)]
    sizes = [sum(c.bytes for c in reader.read("0", a, b)) for a, b in ((0, 305), (0, 150), (150, 305))]
    assert sizes[0] == sizes[1] + sizes[2] > 0
    assert {c.received_us for c in reader.read("0", 0, 100)} == {c.received_us for c in reader.read("0", 50, 60)}


def test_what_was_discovered_outlives_a_restart_and_is_not_read_again(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_index, "MOST_FILES", 3)
    for number in range(8):
        files.put(f"{number}.json", line(number), number)
    planner = files.planner()
    discovered(planner, 8)
    files.put("late.json", line(8), 0)
    discovered(planner, 9)
    del planner
    for name in ("0.json", "7.json"):
        (files.folder / name).unlink()  # read files may go
    again = files.planner()
    discovered(again, 9)
    files.put("last.json", line(9))
    discovered(again, 10)
    assert read(files.reader(), 1, 7) == [1, 2, 3, 4, 5, 6]
    assert read(files.reader(), 8, 10) == [8, 9]
    assert len(files.storage.names("streams/s-1/files")) == 4  # records of three files each, and one begun


def test_a_reader_that_was_opened_before_sees_what_is_added_to_the_last_record(files: Files) -> None:
    reader, planner = files.reader(), files.planner()
    for number in range(4):
        files.put(f"{number}.json", line(number))
        discovered(planner, number + 1)
        assert read(reader, 0, number + 1) == list(range(number + 1))
        assert reader.available(0) == {"0": Extent(0, number + 1)}
    with pytest.raises(NotReady, match="index"):
        read(reader, 0, 5)


def test_only_one_process_lists_the_files(files: Files) -> None:
    files.put("a.json", line(0))
    planner = files.planner()
    discovered(planner, 1)
    other = files.planner()
    assert "One process at a time may list the files" in problem(other)
    del planner
    discovered(other, 1)


def test_nested_folders_are_read_and_hidden_and_unfinished_files_are_not(files: Files) -> None:
    files.put("2026/01/a.json", line(0), 0)
    files.put("2026/02/a.json", line(1), 1)
    for name in ("_temporary/0/part.json", ".git/x.json", "_SUCCESS", "b.json.tmp", "b.json._COPYING_", "2026/x.part"):
        files.put(name, line(99))
    files.put(".hidden.json", line(99))
    files.put("empty.json", b"")
    planner = files.planner()
    discovered(planner, 2)
    (files.folder / "_SUCCESS").rename(files.folder / "success.json")
    discovered(planner, 3)
    assert read(files.reader(), 0, 3) == [0, 1, 99]


def test_lines_that_do_not_fit_say_where_they_are(files: Files) -> None:
    lines = [line(0), b"{\n", b"\n", b" \r\n", b'{"k": "x", "t": "2026-01-01"}\r\n', b'{"k": 1, "s": "\xff"}\n', b"[1]"]
    path = files.put("a.json", b"\xef\xbb\xbf" + b"".join(lines))
    planner = files.planner()
    discovered(planner, 7)
    chunks = list(files.reader().read("0", 0, 7))
    assert keys(chunks) == [0]
    faults = [each for chunk in chunks for each in chunk.malformed]
    assert [fault.detail.split(" must")[0].split(":")[0] for fault in faults] == [
        f"{path}, line {number}" for number in (2, 5, 6, 7)
    ]
    assert [fault.raw for fault in faults] == ["{", '{"k": "x", "t": "2026-01-01"}', '{"k": 1, "s": "�"}', "[1]"]
    (alone,) = [fault for chunk in files.reader().read("0", 4, 5) for fault in chunk.malformed]
    assert alone == faults[1]


def test_rows_of_csv_that_do_not_fit_say_where_they_are(files: Files) -> None:
    body = b'\n"K" , T,more,S\r\n1,2026-01-01 00:00:00,,"a\n""b"""\n2,x,,\n\n3,2026-01-01 00:00:00,x\n4,,,\n"5'
    path = files.put("a.csv", body)
    discovered(files.planner("csv"), 6)
    (chunk,) = files.reader("csv").read("0", 0, 6)
    assert chunk.tuples.select(["k", "s"]).to_pylist() == [{"k": 1, "s": 'a\n"b"'}]
    assert [fault.detail for fault in chunk.malformed] == [
        f"{path}, row 2: column 't' must be a TIMESTAMP, got 'x' (expected RFC 3339, such as 2024-01-31T12:00:00.5Z)",
        f"{path}, row 4 must have 4 fields, got 3",
        f"{path}, row 5: column 't' is the event time and must not be NULL or missing",
        f"{path}, row 6 must close the quotes that it opens",
    ]
    assert [fault.raw for fault in chunk.malformed] == ["2,x,,", "3,2026-01-01 00:00:00,x", "4,,,", '"5']


def test_csv_without_names_has_the_declared_columns_in_order(files: Files) -> None:
    files.put("a.csv", row(0).replace(b",", b"\t") + row(1).replace(b",", b"\t"))
    options = {"header": "false", "delimiter": "\t"}
    discovered(files.planner("csv", **options), 2)
    assert read(files.reader("csv", **options), 0, 2) == [0, 1]


def test_rows_of_parquet_that_do_not_fit_say_where_they_are(files: Files) -> None:
    path = files.folder / "a.parquet"
    pq.write_table(pa.table({"k": pa.array([1, 2**40, 3]), "s": ["a"] * 3, "t": [START, START, None]}), path)
    files.set_age(path, 0)
    discovered(files.planner("parquet"), 3)
    for ranges in ([(0, 3)], [(0, 1), (1, 2), (2, 3)]):
        chunks = [chunk for start, end in ranges for chunk in files.reader("parquet").read("0", start, end)]
        assert keys(chunks) == [1]
        places = [fault.detail.split(":")[0] for chunk in chunks for fault in chunk.malformed]
        assert places == [f"{path}, row 2", f"{path}, row 3"]


def test_a_file_that_cannot_be_one_of_the_stream_stops_it_until_it_is_gone(tmp_path: Path) -> None:
    wrong = {
        "parquet": (b"no Parquet", "must be parquet with the columns of the stream: It must be Parquet"),
        "csv": (b"k,s\n1,a\n", "Column 't' must be there once"),
        "json": (gzip.compress(line(0)), "It must be text, got gzip. Put it there unpacked"),
    }
    for form, (content, says) in wrong.items():
        each = Files(tmp_path / form, Storage(str(tmp_path / f"data-{form}")))
        bad = each.put("bad", content, 1)
        WRITERS[form](each, "good", range(2), 0)
        WRITERS[form](each, "later", range(2, 4), 2)
        planner = each.planner(form)
        told = problem(planner)
        assert str(bad) in told
        assert says in told
        assert "'readings'" in told
        bad.unlink()
        discovered(planner, 4)
        assert planner.problem is None
        assert read(each.reader(form), 0, 4) == [0, 1, 2, 3]


def test_a_name_that_cannot_be_told_stops_the_stream_until_it_is_another(files: Files) -> None:
    name = os.fsdecode(b"\xff.json")
    files.put(name, line(0))
    planner = files.planner()
    assert "must be printable Unicode" in problem(planner)
    (files.folder / name).rename(files.folder / "é.json")
    discovered(planner, 1)


def test_a_folder_that_is_not_there_is_waited_for(files: Files) -> None:
    files.folder.rmdir()
    planner = files.planner()
    assert "must be there and readable" in problem(planner)
    files.put("a.json", line(0))
    discovered(planner, 1)


def test_a_file_that_vanished_before_it_was_read_is_waited_for(files: Files) -> None:
    path = files.put("a.json", line(0))
    discovered(files.planner(), 1)
    away = path.rename(files.folder / ".a.json")
    reader = files.reader()
    with pytest.raises(NotReady, match=r"'readings'.*a\.json' must stay in its folder until it is read"):
        read(reader, 0, 1)
    away.rename(path)
    assert read(reader, 0, 1) == [0]


def test_a_file_that_was_changed_stops_the_stream_until_it_is_as_it_was(files: Files) -> None:
    path = files.put("a.json", line(0))
    planner = files.planner()
    discovered(planner, 1)
    path.write_bytes(line(0) + line(1))
    assert "must stay as it was when it was first seen" in problem(planner)
    with pytest.raises(NotReady, match="was changed since"):
        read(files.reader(), 0, 1)
    files.put("a.json", line(0))
    discovered(planner, 1)
    assert read(files.reader(), 0, 1) == [0]
    path.write_bytes(line(0) + line(1))
    problem(planner)
    path.unlink()  # as if it was read
    discovered(planner, 1)


def test_a_file_that_changes_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(line(0))
    state = path.stat()
    found = FoundFile(str(path), state.st_size, state.st_mtime_ns)
    with pytest.raises(NotReady, match="was changed since"), opened("", found, str(path)):
        path.write_bytes(line(0) + line(1))


def test_a_file_that_is_being_written_is_left_alone(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "LOOK_EVERY_SECONDS", 0)
    monkeypatch.setattr(discovery, "REST_PER_LOOK", 0)
    files.put("a.json", line(0))
    index = file_index.FileIndex(files.storage, "streams/s-1/files")
    looks = Discovery(index, FileOptions(str(files.folder), "json"), JsonFormat(SCHEMA), SCHEMA, "", None)
    assert looks.extents() == {"0": Extent(0, 1)}
    with (files.folder / "b.json").open("wb") as out:
        for number in range(1, 8):  # it is never the same when looked at
            out.write(line(number))
            out.flush()
            assert looks.extents() == {"0": Extent(0, 1)}
    assert looks.extents() == {"0": Extent(0, 8)}
    assert read(files.reader(), 0, 8) == list(range(8))


def test_files_must_lie_where_the_service_allows_it(files: Files, tmp_path: Path) -> None:
    outside = tmp_path / "secret.json"
    outside.write_bytes(line(0))
    table_folder = str(tmp_path)
    options = {"path": "events"}
    validate_definition("s", SCHEMA, "file", "json", options, table_folder)
    for path in ("../etc", "/etc", "file:///etc", "events/../../x", str(tmp_path.parent)):
        with pytest.raises(NotAllowed, match="must lie below"):
            validate_definition("s", SCHEMA, "file", "json", {"path": path}, table_folder)
    planner = files.planner(table_folder=table_folder, path="events")
    files.put("a.json", line(0))
    discovered(planner, 1)
    below = files.put("real.json", line(1), 1)
    (files.folder / "z.json").symlink_to(below)
    discovered(planner, 3)
    assert read(files.reader(), 0, 3) == [0, 1, 1]
    allowed = Files(tmp_path / "allowed", Storage(str(tmp_path / "other")))
    (allowed.folder / "x").mkdir()
    (allowed.folder / "x" / "link.json").symlink_to(outside)
    planner = allowed.planner(table_folder=str(allowed.folder), path="x")
    assert "link.json' of a stream must lie below" in problem(planner)


def test_folders_elsewhere_are_looked_through_by_the_same_rules(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("2026/b.json", "a.json", "_temporary/x.json", "2026/.x.json", "x.json.tmp", "empty"):
        files.put(name, b"" if name == "empty" else line(0), len(name))
    folder = Folder(FileOptions(str(files.folder), "json"), "")
    here = folder.look()
    monkeypatch.setattr(folder, "_is_local", False)
    assert folder.look() == here
    assert [Path(each.path).name for each in here] == ["a.json", "b.json"]


def test_a_link_that_is_turned_elsewhere_is_not_followed(files: Files, tmp_path: Path) -> None:
    path = files.put("a.json", line(0))
    discovered(files.planner(), 1)
    state = path.stat()
    outside = tmp_path / "outside"
    outside.write_bytes(line(7))
    os.utime(outside, ns=(state.st_mtime_ns, state.st_mtime_ns))
    path.unlink()
    path.symlink_to(outside)
    with pytest.raises(NotReady, match="was changed"):
        read(files.reader(), 0, 1)


def test_a_folder_can_be_a_uri(files: Files) -> None:
    files.put("sub/a.json", line(0))
    options = {"path": files.folder.as_uri()}
    discovered(files.planner(**options), 1)
    assert read(files.reader(**options), 0, 1) == [0]


@pytest.mark.parametrize("form", WRITERS)
def test_a_replay_gives_records_as_time_passes(form: str, files: Files) -> None:
    WRITERS[form](files, "a", range(1000), 0)
    WRITERS[form](files, "b", range(1000, 1010), 1)
    created_us = 10**15
    definition = files.definition(form, created_us, replay_speed="10")
    planners = [DiscoveringFileConnector(definition, files.storage, "")]

    def end(seconds: float) -> int:
        found = planners[0].available(created_us + int(seconds * 1e6))
        return found["0"].end if found else -1

    wait_until(lambda: end(1e6) == 1010, DISCOVERED, lambda: f"all is known, got {end(1e6)}")
    assert end(-1) == 0
    assert [end(seconds) for seconds in (0, 0.1, 1, 50, 99.95, 100, 101)] == [1, 2, 11, 501, 1000, 1001, 1010]
    planners.clear()
    again = DiscoveringFileConnector(definition, files.storage, "")
    wait_until(lambda: again.available(created_us + 10**6) == {"0": Extent(0, 11)}, DISCOVERED, "it is known again")


def test_a_replay_of_files_with_malformed_lines_and_late_times_gives_them_all(files: Files) -> None:
    files.put("a.json", b"no JSON\n")
    files.put("b.json", line(5) + b"no JSON\n\n" + line(1) + line(7), 1)
    files.put("c.json", line(2), 2)
    planner = DiscoveringFileConnector(files.definition(replay_speed="1.0"), files.storage, "")
    wait_until(lambda: planner.available(10**12) == {"0": Extent(0, 7)}, DISCOVERED, "all is known")
    ends = [planner.available(int(seconds * 1e6))["0"].end for seconds in (0, 1, 2, 3)]
    assert ends == sorted(ends)
    assert ends[0] >= 1
    assert ends[-1] == 7


@pytest.mark.parametrize(
    ("form", "options", "says"),
    [
        ("json", {"path": ""}, "must know its folder; add path = 'FOLDER'"),
        ("json", {"header": "true"}, "with format 'json' has the options 'path', 'replay_speed'; got 'header'"),
        ("csv", {"header": "maybe"}, "'header' must be 'true' or 'false'; got 'maybe'"),
        ("csv", {"delimiter": ";;"}, "one ASCII character"),
        ("xml", {}, "takes format 'json' or 'csv' or 'parquet'; got format 'xml'"),
        ("json", {"replay_speed": "0"}, "'replay_speed' must be a number above 0; got 0"),
        ("json", {"replay_speed": "fast"}, "'replay_speed' must be a number above 0; got 'fast'"),
        ("json", {"replay_speed": "nan"}, "'replay_speed' must be a number above 0"),
        ("json", {"path": "nowhere://x/y"}, "must be a folder or a URI; got 'nowhere://x/y'"),
    ],
)
def test_wrong_options_say_what_exists(form: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(NotAllowed) as refused:
        validate_definition("s", SCHEMA, "file", form, {"path": "events", **options})
    assert says in refused.value.detail
