"""Where everything that the service keeps lies: a folder, or a pyarrow filesystem URI.

Writes are atomic (a reader sees the old bytes, the new bytes or nothing) and, on a local disk,
durable when the call returns. Paths are relative to the root and use forward slashes.
"""

from __future__ import annotations

import ctypes
import errno
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from braid.sources.core.checksums import crc32, json_document, named_checksum, read_json_document
from braid.sources.core.errors import CorruptData


class Storage:
    """Files below one root."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        if "://" in uri:
            self._fs, self._root = fs.FileSystem.from_uri(uri)
        else:
            self._fs, self._root = fs.LocalFileSystem(), str(Path(uri).resolve())
        self.local_root = Path(self._root) if isinstance(self._fs, fs.LocalFileSystem) else None
        self._made_folders: set[str] = set()

    @property
    def location(self) -> str:
        """Where the root is: an absolute path without links, or a URI."""
        return self.uri if self.local_root is None else str(self.local_root)

    def __reduce__(self) -> tuple[type[Storage], tuple[str]]:
        return Storage, (self.uri,)

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _make_parent(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent not in self._made_folders:
            self._fs.create_dir(self._full(parent) if parent else self._root, recursive=True)
            self._made_folders.add(parent)

    def local_path(self, path: str) -> Path:
        """Return the local file of ``path``; ValueError when the root is not a local folder."""
        if self.local_root is None:
            raise ValueError(f"{self.uri!r} is not a local folder, so {path!r} has no local path.")
        return self.local_root / path

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Write ``data`` to ``path``, replacing what was there.

        ``durable=False`` leaves out the flush to disk, for files that a replay would write again, or that are flushed
        together (:meth:`flush`).
        """
        try:
            self._put(path, data, durable)
        except FileNotFoundError:  # somebody removed the folder since it was made
            self._made_folders.discard(path.rpartition("/")[0])
            self._put(path, data, durable)

    def _put(self, path: str, data: bytes, durable: bool) -> None:
        self._make_parent(path)
        if self.local_root is None:
            with self._fs.open_output_stream(self._full(path)) as out:
                out.write(data)
            return
        target = self.local_root / path
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            with temporary.open("wb") as out:
                out.write(data)
                if durable:
                    out.flush()
                    os.fsync(out.fileno())
            temporary.replace(target)
        except OSError:  # what a full disk took of the file must not fill it further
            temporary.unlink(missing_ok=True)
            raise
        if durable:
            sync_folder(target.parent)

    def put_json(self, path: str, value: Any, *, durable: bool = True) -> None:
        """Write a JSON object, with a checksum, in the same way."""
        self.put(path, json_document(value), durable=durable)

    @contextmanager
    def writing(self, name: Callable[[int], str]) -> Iterator[CheckedWriter]:
        """Write a file piece by piece; ``name`` gives its path, for its checksum.

        It is there once the context ends without an error, not flushed to disk; then the writer has its ``path``.
        """
        if self.local_root is None:
            sink = pa.BufferOutputStream()
            writer = CheckedWriter(sink)
            yield writer
            writer.path = name(writer.crc)
            self.put(writer.path, sink.getvalue().to_pybytes(), durable=False)
            return
        folder = (self.local_root / name(0)).parent
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{uuid.uuid4().hex}"
        try:
            with pa.OSFile(str(temporary), "wb") as out:
                writer = CheckedWriter(out)
                yield writer
            writer.path = name(writer.crc)
            temporary.replace(self.local_root / writer.path)
        finally:
            temporary.unlink(missing_ok=True)

    def get(self, path: str) -> bytes:
        """Return the bytes of ``path``; FileNotFoundError when there are none."""
        if self.local_root is not None:
            return (self.local_root / path).read_bytes()
        with self._fs.open_input_file(self._full(path)) as source:
            return source.read()

    def get_json(self, path: str) -> Any:
        """Return the JSON value in ``path``; FileNotFoundError when there is none, CorruptData when it is damaged."""
        try:
            return read_json_document(self.get(path))
        except ValueError as error:
            raise not_read_back(path, error, "JSON") from error

    def read(self, path: str) -> pa.Buffer:
        """Return the bytes of a file, checked if its name has their checksum.

        FileNotFoundError for no file, CorruptData for a damaged one.
        """
        try:
            with self.open(path) as source:
                data = source.read_buffer()
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, OSError) and error.errno not in (None, errno.EIO):
                raise
            raise not_read_back(path, error) from error
        crc = named_checksum(path)
        if crc is not None and crc32(data) != crc:
            raise not_read_back(path, "its checksum is another")
        return data

    def open(self, path: str) -> pa.NativeFile:
        """Open ``path`` for reading."""
        if self.local_root is not None:
            return pa.OSFile(self._full(path))
        return self._fs.open_input_file(self._full(path))

    def exists(self, path: str) -> bool:
        """Whether there is a file at ``path``."""
        if self.local_root is not None:
            return (self.local_root / path).exists()
        return self._fs.get_file_info(self._full(path)).type == fs.FileType.File

    def names(self, folder: str) -> list[str]:
        """Return the sorted names of the files in ``folder``; none when it does not exist."""
        if self.local_root is not None:
            try:
                entries = os.listdir(self.local_root / folder)
            except FileNotFoundError:
                return []
            return sorted(name for name in entries if not name.startswith("."))
        infos = self._fs.get_file_info(fs.FileSelector(self._full(folder), allow_not_found=True))
        return sorted(info.base_name for info in infos if info.type == fs.FileType.File)

    def delete(self, path: str) -> None:
        """Remove the file at ``path``; nothing happens when there is none."""
        if self.local_root is not None:
            (self.local_root / path).unlink(missing_ok=True)
        elif self.exists(path):
            self._fs.delete_file(self._full(path))

    def link(self, path: str, to: str) -> None:
        """Let the file at ``path``, which never changes, be at ``to``, too; without a copy where links are possible.

        Each is removed without the other.
        """
        self._make_parent(to)
        if self.local_root is None:
            self._fs.copy_file(self._full(path), self._full(to))
            return
        try:
            (self.local_root / to).hardlink_to(self.local_root / path)
        except FileNotFoundError:
            raise
        except OSError:  # a file system without links
            self.put(to, self.get(path), durable=False)

    def move(self, path: str, to: str) -> None:
        """Move a file, replacing what was there; on a local disk it is there durably when the call returns."""
        self._make_parent(to)
        if self.local_root is None:
            self._fs.move(self._full(path), self._full(to))
            return
        target = self.local_root / to
        target.parent.mkdir(parents=True, exist_ok=True)
        (self.local_root / path).replace(target)
        sync_folder(target.parent)

    def flush(self) -> None:
        """Flush to disk what any process of this machine wrote to the file system of the root; none but a local one.

        OSError where the disk does not take it.
        """
        if self.local_root is not None:
            flush_file_system(self.local_root)

    def delete_folder(self, path: str) -> None:
        """Remove the folder at ``path`` with all in it; nothing happens when there is none."""
        if self._fs.get_file_info(self._full(path)).type == fs.FileType.Directory:
            self._fs.delete_dir(self._full(path))
        self._made_folders.clear()

    @cached_property
    def has_links(self) -> bool:
        """Whether a link takes no space."""
        if self.local_root is None:
            return False
        probe = self.local_root / f".link-{uuid.uuid4().hex}"
        self._make_parent(probe.name)
        try:
            probe.touch()
            probe.with_suffix(".too").hardlink_to(probe)
        except OSError:
            return False
        finally:
            probe.unlink(missing_ok=True)
            probe.with_suffix(".too").unlink(missing_ok=True)
        return True

    def size_of(self, path: str) -> int:
        """Return the bytes of a file, of one with several links its share of them; FileNotFoundError for none."""
        if self.local_root is None:
            with self.open(path) as file:
                return int(file.size())
        status = (self.local_root / path).stat()
        return status.st_size // status.st_nlink

    def size(self, folder: str) -> int:
        """Return the bytes of all files below ``folder``, in the same way."""
        if self.local_root is not None:
            return sum(self._sizes(self.local_root / folder))
        infos = self._fs.get_file_info(fs.FileSelector(self._full(folder), recursive=True, allow_not_found=True))
        return sum(info.size for info in infos if info.type == fs.FileType.File)

    def sizes(self, folder: str) -> Iterator[tuple[str, int]]:
        """Yield names as :meth:`names` does, in any order, with the bytes of the files, as :meth:`size_of` does."""
        if self.local_root is None:
            infos = self._fs.get_file_info(fs.FileSelector(self._full(folder), allow_not_found=True))
            yield from ((info.base_name, info.size) for info in infos if info.type == fs.FileType.File)
            return
        with suppress(FileNotFoundError), os.scandir(self.local_root / folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if not entry.name.startswith("."):
                        status = entry.stat()
                        yield entry.name, status.st_size // status.st_nlink

    def _sizes(self, folder: Path) -> Iterator[int]:
        """Yield the bytes of all files below a local folder; one that goes meanwhile is left out."""
        for parent, _, names in os.walk(folder):
            for name in names:
                with suppress(FileNotFoundError):
                    status = os.stat(os.path.join(parent, name))
                    yield status.st_size // status.st_nlink


class CheckedWriter:
    """A file that is being written, for pyarrow to write to; ``crc`` is the checksum of what it has so far."""

    closed = False

    def __init__(self, out: pa.NativeFile) -> None:
        self._out = out
        self.crc = 0
        self.path = ""

    def write(self, data: Any) -> None:
        """Append a buffer."""
        self.crc = crc32(data, self.crc)
        self._out.write(data)

    def flush(self) -> None:
        """Do nothing: the file is whole at its end only."""


def not_read_back(path: str, error: Exception | str, content: str = "what was written") -> CorruptData:
    """Return the error for a file that does not hold ``content`` it must."""
    return CorruptData(
        f"The file {path} must hold {content} to go on; it does not: {error}. Restore the data directory from a backup."
    )


def sync_folder(folder: Path) -> None:
    """Flush the entries of a local folder, so that a new or renamed file outlives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_LIBC = ctypes.CDLL(None, use_errno=True)


def flush_file_system(folder: Path) -> None:
    """Flush all that was written to the file system of a local folder; OSError where the disk does not take it."""
    if not hasattr(_LIBC, "syncfs"):  # Linux has it
        os.sync()
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        if _LIBC.syncfs(handle):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(handle)
