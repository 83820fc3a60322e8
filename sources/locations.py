"""Where the files are that a statement names: a path of the service, or a pyarrow filesystem URI.

With a ``folder`` (a setting: ``table_folder``, ``sink_folder``) everything must lie below it, and other paths than URIs
are relative to it; without, they are relative to the working directory of the service.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from sources.errors import NotAllowed


def locate(given: str, folder: str, owner: str, kind: str, setting: str = "table_folder") -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI and the path there; local ones without links and relative parts.

    NotAllowed when it cannot be understood or lies outside ``folder``. ``owner`` ("table"), ``kind`` ("file") and
    ``setting``, which says the folder, are for messages.
    """
    try:
        if "://" in given:
            filesystem, path = fs.FileSystem.from_uri(given)
        elif "://" in folder:
            filesystem, path = fs.FileSystem.from_uri(f"{folder.rstrip('/')}/{given}")
        else:
            filesystem, path = fs.LocalFileSystem(), str(Path(folder or ".").joinpath(given))
        if isinstance(filesystem, fs.LocalFileSystem):
            path = str(Path(path).resolve())
    except (OSError, ValueError, RuntimeError, pa.ArrowException) as problem:  # RuntimeError: links in a circle
        raise NotAllowed(f"The path of a {owner} must be a {kind} or a URI; got {given!r}: {problem}.") from None
    check_below(path, folder, owner, kind, setting)
    return filesystem, path


def check_below(path: str, folder: str, owner: str, kind: str, setting: str = "table_folder") -> None:
    """Raise NotAllowed unless a path without links lies below ``folder``, or that is empty."""
    if folder and not _is_below(path, folder):
        raise NotAllowed(f"The {kind} of a {owner} must lie below {folder!r} (setting {setting}).")


def _is_below(path: str, folder: str) -> bool:
    filesystem, root = fs.LocalFileSystem(), folder
    if "://" in root:
        filesystem, root = fs.FileSystem.from_uri(root)
    if isinstance(filesystem, fs.LocalFileSystem):
        root = str(Path(root).resolve())
    return ".." not in Path(path).parts and Path(root) in Path(path).parents
