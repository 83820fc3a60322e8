"""Where the files are that a statement names: a path of the service, or a pyarrow filesystem URI.

With a ``folder`` (a setting: ``table_folder``, ``sink_folder``) everything must lie below it, links followed, on its
file system; other paths than URIs are relative to it. Without one they are relative to the working directory of the
service. :data:`NOWHERE` allows no files.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
from pyarrow import fs

from braid.sources.core.errors import NotAllowed

NOWHERE = "none"
_SECRET_PARAMETER = re.compile(r"secret|password|passwd|token|key|sig|credential", re.IGNORECASE)
_KEY_AND_SECRET = ("s3", "gs", "gcs")
"""Schemes where what stands before ``@`` is a key, also without a password."""


def locate(
    location: str, folder: str, owner: str, kind: str, setting: str = "table_folder", data_folder: str = ""
) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI and the path there; local ones without links and relative parts.

    NotAllowed when it cannot be understood, holds a secret, lies outside ``folder``, or in or above ``data_folder``.
    ``owner`` ("table"), ``kind`` ("file") and ``setting``, which says the folder, are for messages.
    """
    check_no_secret(location, f"The path of a {owner}")
    _check_place(location, folder, owner, kind, setting)
    try:
        if "://" in location:
            filesystem, path = fs.FileSystem.from_uri(location)
        elif "://" in folder:
            filesystem, path = fs.FileSystem.from_uri(f"{folder.rstrip('/')}/{location}")
        else:
            filesystem, path = fs.LocalFileSystem(), str(Path(folder or ".").joinpath(location))
        if isinstance(filesystem, fs.LocalFileSystem):
            path = str(Path(path).resolve())
    except (OSError, ValueError, RuntimeError, pa.ArrowException) as problem:  # RuntimeError: links in a circle
        raise NotAllowed(f"The path of a {owner} must be a {kind} or a URI; got {location!r}: {problem}.") from None
    check_below(path, folder, owner, kind, setting)
    check_apart(filesystem, path, data_folder, owner, kind)
    return filesystem, path


def check_apart(filesystem: fs.FileSystem, path: str, data_folder: str, owner: str, kind: str) -> None:
    """Raise NotAllowed for a path without links that lies in or above the data folder of the service, if that is given.

    What is there is the service's own: its state, and rows of everybody.
    """
    if not data_folder:
        return
    own_filesystem, own_path = _resolved(data_folder)
    own, other = PurePosixPath(own_path), PurePosixPath(posixpath.normpath(path))
    is_related = own == other or own in other.parents or other in own.parents
    if filesystem.type_name == own_filesystem.type_name and is_related:
        raise NotAllowed(
            f"The {kind} of a {owner} must lie neither in nor above the data folder of the service (setting data_dir);"
            f" got {path!r}."
        )


def check_local_file(path: str, folder: str, owner: str, kind: str) -> None:
    """Raise NotAllowed unless a file of this machine, which a library opens by itself, lies below ``folder``."""
    if folder:
        locate(Path(path).absolute().as_uri(), folder, owner, kind)


def check_below(path: str, folder: str, owner: str, kind: str, setting: str = "table_folder") -> None:
    """Raise NotAllowed unless a path without links, on the folder's file system, lies below it, or that is empty."""
    if folder == NOWHERE:
        raise NotAllowed(
            f"The service lets no {owner} name a {kind} (setting {setting}). An administrator can set {setting} to a"
            " folder or a URI ('/' for all of this machine), and start the service again."
        )
    if folder and not _is_below(path, folder):
        raise NotAllowed(f"The {kind} of a {owner} must lie below {folder!r} (setting {setting}).")


def check_no_secret(uri: str, subject: str) -> None:
    """Raise NotAllowed for a URI with a password or a key in it, and do not show it."""
    if "://" not in uri:
        return
    try:
        parts = urlsplit(uri)
        names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    except ValueError:
        return
    is_key = parts.scheme in _KEY_AND_SECRET and parts.username not in (None, "anonymous")
    if parts.password or is_key or any(map(_SECRET_PARAMETER.search, names)):
        raise NotAllowed(
            f"{subject} must hold no password and no key, so that they are not kept; the environment of the service has"
            " them, as the library of that file system looks for them (AWS_ACCESS_KEY_ID, …)."
        )


def _check_place(location: str, folder: str, owner: str, kind: str, setting: str) -> None:
    """Raise NotAllowed for a URI of another place than the folder's: to open it might be a call already."""
    if folder == NOWHERE:
        check_below(location, folder, owner, kind, setting)
    if folder and "://" in location and _place(location) != _place(folder):
        raise NotAllowed(f"The {kind} of a {owner} must lie below {folder!r} (setting {setting}).")


def _place(text: str) -> tuple[str, ...]:
    if "://" not in text:
        return ("file", "", "")
    try:
        parts = urlsplit(text)
    except ValueError:
        return ()
    return parts.scheme, parts.netloc, parts.query


def _resolved(folder: str) -> tuple[fs.FileSystem, str]:
    filesystem, root = fs.LocalFileSystem(), folder
    if "://" in root:
        filesystem, root = fs.FileSystem.from_uri(root)
    if isinstance(filesystem, fs.LocalFileSystem):
        root = str(Path(root).resolve())
    return filesystem, root


def _is_below(path: str, folder: str) -> bool:
    _, root = _resolved(folder)
    return ".." not in Path(path).parts and Path(root) in Path(path).parents
