"""Files of the storage: links share their bytes, and each is removed by itself."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from braid.sources.core.storage import Storage


@pytest.fixture(params=["links", "no links"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A folder on a file system with links, or on one without."""
    if request.param == "no links":

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError("Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
    return Storage(str(tmp_path))


def test_what_does_not_fit_on_the_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(str(tmp_path))
    storage.put("a/one", b"before")
    with monkeypatch.context() as full:

        def fail(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        full.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space left"):
            storage.put("a/one", b"after")
    assert os.listdir(tmp_path / "a") == ["one"]
    assert storage.get("a/one") == b"before"


def test_a_link_outlives_the_file(storage: Storage) -> None:
    storage.put("a/one", b"tuples")
    storage.link("a/one", "b/two")
    storage.delete("a/one")
    assert storage.get("b/two") == b"tuples"
    assert storage.names("a") == []
    assert storage.size("b") == storage.size_of("b/two") == 6


def test_links_share_their_bytes(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.put("a/one", b"tuples")
    storage.link("a/one", "b/two")
    storage.link("b/two", "b/three")
    assert [storage.size("a"), storage.size("b"), storage.size_of("b/two")] == [2, 4, 2]
    assert storage.size("") == 6
    storage.delete("b/two")
    assert [storage.size("a"), storage.size("b")] == [3, 3]


def test_whether_there_are_links_leaves_nothing(storage: Storage, request: pytest.FixtureRequest) -> None:
    storage.put("a/one", b"tuples")
    assert storage.has_links == ("links" in request.node.name and "no links" not in request.node.name)
    assert storage.local_root is not None
    assert sorted(os.listdir(storage.local_root)) == ["a"]


def test_a_file_that_is_not_there_cannot_be_linked(storage: Storage) -> None:
    with pytest.raises(FileNotFoundError):
        storage.link("a/one", "b/two")
    assert storage.names("b") == []


def test_a_file_of_another_file_system_is_copied() -> None:
    storage = Storage("mock:///data")
    assert storage.local_root is None
    storage.put("a/one", b"tuples")
    storage.link("a/one", "b/two")
    storage.delete("a/one")
    assert storage.get("b/two") == b"tuples"
    assert storage.size("b") == storage.size_of("b/two") == 6


def test_flushing_tells_when_it_cannot(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "data"))
    storage.put("a", b"1", durable=False)
    storage.flush()
    storage.delete_folder("")
    with pytest.raises(FileNotFoundError):
        storage.flush()
