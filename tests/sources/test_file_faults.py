"""What keeps a stream of files from going on: it alone stands still, says why, and goes on when that is mended."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from braid.sources.connectors.connector import Extent
from braid.sources.connectors.files import discovery
from braid.sources.connectors.files import index as file_index
from braid.sources.connectors.files.discovery import Discovery
from braid.sources.connectors.files.folder import Folder, FoundFile, opened
from braid.sources.connectors.files.options import FileOptions
from braid.sources.connectors.files.text import JsonFormat
from braid.sources.connectors.registry import validate_definition
from braid.sources.core.confinement import Confinement
from braid.sources.core.errors import NotAllowed, NotReady
from braid.sources.core.storage import Storage
from tests.sources.file_folders import (
    SCHEMA,
    WRITERS,
    Files,
    discovered,
    line,
    problem,
    read,
)


def test_a_file_that_cannot_be_one_of_the_stream_stops_it_until_it_is_gone(tmp_path: Path) -> None:
    wrong = {
        "parquet": (b"no Parquet", "must be parquet with the columns of the stream: It must be Parquet"),
        "csv": (b"k,s\n1,a\n", "The first line lacks column 't'"),
        "json": (gzip.compress(line(0)), "It must be text, got gzip. Put it there unpacked"),
    }
    for form, (content, says) in wrong.items():
        files_of_format = Files(tmp_path / form, Storage(str(tmp_path / f"data-{form}")))
        bad = files_of_format.put("bad", content, 1)
        WRITERS[form](files_of_format, "good", range(2), 0)
        WRITERS[form](files_of_format, "later", range(2, 4), 2)
        planner = files_of_format.planner(form)
        message = problem(planner)
        assert str(bad) in message
        assert says in message
        assert "'readings'" in message
        bad.unlink()
        discovered(planner, 4)
        assert planner.problem is None
        assert read(files_of_format.reader(form), 0, 4) == [0, 1, 2, 3]


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
    file = FoundFile(str(path), state.st_size, state.st_mtime_ns)
    with pytest.raises(NotReady, match="was changed since"), opened("", file, str(path)):
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
    validate_definition("s", SCHEMA, "file", "json", options, Confinement(table_folder))
    for path in ("../etc", "/etc", "file:///etc", "events/../../x", str(tmp_path.parent)):
        with pytest.raises(NotAllowed, match="must lie below"):
            validate_definition("s", SCHEMA, "file", "json", {"path": path}, Confinement(table_folder))
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
    files_seen = folder.look()
    monkeypatch.setattr(folder, "_is_local", False)
    assert folder.look() == files_seen
    assert [Path(file.path).name for file in files_seen] == ["a.json", "b.json"]


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
