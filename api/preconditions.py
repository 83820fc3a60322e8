"""What must hold before the service starts: Python, Java, descriptors, a data directory of its own at its place."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import orjson

from braid.sources.core.storage import Storage

LOCK_FILE = "service.lock"
HOME_FILE = "home.json"
# the number rises with each change after which a version cannot read what the one before wrote
FORMAT_FILE, FORMAT = "format.json", 4
_WRITTEN_FIRST = ("requests", "changelogs")
OLDEST_JAVA = 17
OLDEST_PYTHON = (3, 11)
JAVA_SECONDS = 20
# for files, and for as many connections as it takes to be looked at
SPARE_DESCRIPTORS, MIN_DESCRIPTORS = 512, 1024

log = logging.getLogger("braid.serve")


class CannotStart(Exception):
    """The service cannot start; the message is one sentence for the user."""


def check_python() -> None:
    """Raise CannotStart when Python is too old."""
    if sys.version_info < OLDEST_PYTHON:
        raise CannotStart(
            f"Braid needs Python {'.'.join(map(str, OLDEST_PYTHON))} or newer; this is {sys.version.split()[0]}."
        )


def descriptors() -> int:
    """Raise the limit of file descriptors of this process as far as the system lets it, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def check_descriptors(requests: int) -> None:
    """Raise CannotStart when there are too few file descriptors to run; warn where there are too few for requests."""
    limit, needed = descriptors(), SPARE_DESCRIPTORS + requests
    if limit < MIN_DESCRIPTORS:
        raise CannotStart(
            f"Braid needs {MIN_DESCRIPTORS} file descriptors at least, and {needed} for {requests} requests at a"
            f" time (setting max_connections), but the hard limit is {limit}; start it after `ulimit -n {needed}`."
        )
    if limit < needed:
        log.warning(
            f"{needed} file descriptors are needed for {requests} requests at a time (setting max_connections), but the"
            f" hard limit is {limit}; connections beyond are refused. Start after `ulimit -n {needed}`."
        )


def check_java(environment: Mapping[str, str] = os.environ) -> None:
    """Raise CannotStart when the Java that Spark would start is missing or too old."""
    home = environment.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    requirement = f"Braid needs Java {OLDEST_JAVA} or newer"
    if java is None:
        raise CannotStart(f"{requirement}, but there is no java in PATH; install one or set JAVA_HOME.")
    try:
        process = subprocess.run([java, "-version"], capture_output=True, timeout=JAVA_SECONDS, check=False, text=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotStart(f"{requirement}, but {java!r} does not run: {error}; check JAVA_HOME.") from error
    version = re.search(r'version "(?:1\.)?(\d+)', process.stderr + process.stdout)
    if process.returncode != 0 or version is None:
        raise CannotStart(f"{requirement}, but {java!r} does not tell its version; check JAVA_HOME.")
    if int(version[1]) < OLDEST_JAVA:
        raise CannotStart(f"{requirement}, but {java!r} is Java {version[1]}; install a newer one or set JAVA_HOME.")


@contextlib.contextmanager
def lock_data_dir(storage: Storage) -> Iterator[None]:
    """Hold the data directory for this process; CannotStart when another one does.

    The lock goes with the process, however it ends. A directory that is not local is not locked.
    """
    if storage.local_root is None:
        yield
        return
    try:
        file = storage.local_path(LOCK_FILE).open("a+")
    except OSError as error:
        raise CannotStart(f"The data directory {storage.uri!r} must be writable: {error.strerror}.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise CannotStart(
                f"Another Braid service (process {file.read().strip() or 'unknown'}) runs on {storage.uri!r};"
                " stop it or choose another --data-dir."
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def check_format(storage: Storage) -> None:
    """Raise CannotStart when a version of Braid wrote the data directory whose files this one cannot read."""
    if storage.exists(FORMAT_FILE):
        found = storage.get_json(FORMAT_FILE)["format"]
    elif any(storage.names(folder) for folder in _WRITTEN_FIRST):
        found = 1
    else:
        storage.put_json(FORMAT_FILE, {"format": FORMAT})
        return
    if found != FORMAT:
        raise CannotStart(
            f"The data directory {storage.uri!r} must have format {FORMAT}, and has format {found}: another version of"
            " Braid wrote it. Start this version on an empty directory, or that version on this one."
        )


def check_home(storage: Storage) -> None:
    """Raise CannotStart when the data directory was made at another path, which Spark's checkpoint names."""
    if storage.local_root is None:
        return
    root = storage.local_root.resolve()
    if not storage.exists(HOME_FILE):
        storage.put(HOME_FILE, orjson.dumps({"path": str(root)}))
        return
    home = Path(storage.get_json(HOME_FILE)["path"])
    if home != root and not (home.exists() and home.samefile(root)):
        raise CannotStart(
            f"The data directory {str(root)!r} was made as {str(home)!r}, and Spark's checkpoint in it names that path."
            " Put it there again, or mount it there."
        )
