"""The folder of a stream of files: what lies in it, and opening a file that is still what it was.

A file is known by its path, size and time of modification. Names that begin with '.' or '_', those that programs give
to files while they write them, and all in folders with such names are passed over. Links to folders are not followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

from braid.sources.connectors.files.options import FileOptions
from braid.sources.core.errors import NotReady
from braid.sources.core.locations import check_apart, check_below, locate

OWNER, KIND = "stream", "folder"
_HIDDEN = (".", "_")
_UNFINISHED = (".tmp", ".part", ".inprogress", "._copying_")


class FoundFile(NamedTuple):
    """A file as it lies there; ``mtime_ns`` is nanoseconds since 1970."""

    path: str
    size: int
    mtime_ns: int


def check_folder(options: FileOptions, table_folder: str, data_folder: str = "") -> None:
    """Raise NotAllowed when a stream may not read there; whether the folder is there is not asked."""
    locate(options.path, table_folder, OWNER, KIND, data_folder=data_folder)


class Folder:
    """Looks for files; :attr:`uri` is what opens its file system again, empty for the local one."""

    def __init__(self, options: FileOptions, table_folder: str, data_folder: str = "") -> None:
        self._filesystem, self._root = locate(options.path, table_folder, OWNER, KIND, data_folder=data_folder)
        self._table_folder = table_folder
        self._data_folder = data_folder
        path = options.path
        uri = path if "://" in path else f"{table_folder.rstrip('/')}/{path}" if "://" in table_folder else ""
        self._is_local = isinstance(self._filesystem, fs.LocalFileSystem)
        self.uri = "" if self._is_local else uri

    def look(self) -> list[FoundFile]:
        """Return the files that have bytes, the oldest first, those of one time by path; OSError when it cannot."""
        files = self._look_local() if self._is_local else self._look_elsewhere()
        return sorted((file for file in files if file.size > 0), key=lambda file: (file.mtime_ns, file.path))

    def real_path(self, path: str) -> str:
        """Return where the links of a found file end; NotAllowed when a stream may not read there."""
        if not self._is_local:
            return path
        real = str(Path(path).resolve())
        check_below(real, self._table_folder, OWNER, f"file {path!r}")
        check_apart(self._filesystem, real, self._data_folder, OWNER, f"file {path!r}")
        return real

    def _look_local(self) -> Iterator[FoundFile]:
        folders = [self._root]
        while folders:
            try:
                entries = list(os.scandir(folder := folders.pop()))
            except FileNotFoundError:
                if folder == self._root:
                    raise
                continue
            for entry in entries:
                if _is_passed_over(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                    continue
                try:
                    if entry.is_file():
                        state = entry.stat()
                        yield FoundFile(entry.path, state.st_size, state.st_mtime_ns)
                except FileNotFoundError:  # it went while we looked
                    continue

    def _look_elsewhere(self) -> Iterator[FoundFile]:
        infos = self._filesystem.get_file_info(fs.FileSelector(self._root, recursive=True))
        for info in infos:
            names = info.path.removeprefix(self._root).strip("/").split("/")
            if info.type == fs.FileType.File and not any(map(_is_passed_over, names)):
                yield FoundFile(info.path, info.size, info.mtime_ns or 0)


@contextmanager
def opened(uri: str, file: FoundFile, real_path: str) -> Iterator[pa.NativeFile]:
    """Open a file as it was found; NotReady when it is not that any more, now or when the context ends."""
    filesystem = fs.FileSystem.from_uri(uri)[0] if uri else fs.LocalFileSystem()
    _check_unchanged(filesystem, file, real_path)
    with filesystem.open_input_file(real_path) as source:
        yield source
    _check_unchanged(filesystem, file, real_path)


def changed(file: FoundFile, size: int) -> NotReady:
    """Return the error for a file that is not what it was when it was first seen."""
    return NotReady(
        f"File {file.path!r} must stay as it was when it was first seen, with {file.size} bytes; it was changed since,"
        f" and has {size}. Put it back as it was, or take it away if it was read already. Move files into the folder"
        " when they are complete, under names of their own"
    )


def _check_unchanged(filesystem: fs.FileSystem, file: FoundFile, real_path: str) -> None:
    info = filesystem.get_file_info(real_path)
    if info.type != fs.FileType.File:
        raise NotReady(
            f"File {file.path!r} must stay in its folder until it is read; it is not there. Put it back as it was, or"
            " drop the stream"
        )
    is_elsewhere = isinstance(filesystem, fs.LocalFileSystem) and str(Path(file.path).resolve()) != real_path
    if is_elsewhere or (info.size, info.mtime_ns or 0) != (file.size, file.mtime_ns):
        raise changed(file, info.size)


def _is_passed_over(name: str) -> bool:
    return name.startswith(_HIDDEN) or name.lower().endswith(_UNFINISHED)
