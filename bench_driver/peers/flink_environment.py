"""The Python environment that Apache Flink has for itself: what it needs is older than what the project needs.

It lies in `.peers/flink` of the checkout and is made on demand. A stamp of the requirements says that it is whole;
without one, or with another, it is made anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import braid
from braid.bench_driver.systems.system import SystemFailedError

PROJECT = Path(braid.__file__).parents[1]
FOLDER = PROJECT / ".peers" / "flink"
REQUIREMENTS = Path(__file__).with_name("flink-requirements.txt")
STAMP = "requirements.sha256"
MIN_JAVA = 11
JAVA_SECONDS = 30.0
TAIL_LINES = 10

Tell = Callable[[str], None]


class EnvironmentMissingError(SystemFailedError):
    """Flink's environment cannot be made or used here; the text says what is missing."""


def ensure_environment(tell: Tell, folder: Path = FOLDER, requirements: Path = REQUIREMENTS) -> Path:
    """Return the Python of Flink's environment, which is made if it is not there or its requirements have changed.

    `tell` gets what is being done, when it takes long. A second process that wants it meanwhile waits.

    Raises:
        EnvironmentMissingError: Java, venv or pip is missing, or the packages cannot be installed.
    """
    require_java()
    python = folder / "bin" / "python"
    if _is_whole(folder, requirements):
        return python
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(f"{folder.name}.lock")):
        if not _is_whole(folder, requirements):
            _make(folder, requirements, tell)
    return python


def require_java() -> str:
    """Return the path of a Java that Flink runs with, the one of JAVA_HOME first.

    Raises:
        EnvironmentMissingError: there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        searched = f"{home}/bin (JAVA_HOME)" if home else "PATH"
        raise EnvironmentMissingError(
            f"Flink needs Java {MIN_JAVA} or later, and there is no java in {searched}; install a JRE, 17 is best"
        )
    try:
        process = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentMissingError(
            f"Flink needs Java {MIN_JAVA} or later, and {java} does not run: {error}"
        ) from None
    version = java_version(process.stderr + process.stdout)
    if version is None or version < MIN_JAVA:
        raise EnvironmentMissingError(
            f"Flink needs Java {MIN_JAVA} or later, got {process.stderr.strip()!r} from {java}"
        )
    return java


def java_version(output: str) -> int | None:
    """Return the feature version in what `java -version` says, 8 for "1.8"; None when there is none in it."""
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else None


def stamp_of(requirements: Path) -> str:
    """Return what marks an environment as made from these requirements with this Python."""
    text = f"{sys.version_info.major}.{sys.version_info.minor}\n{requirements.read_text(encoding='utf-8')}"
    return hashlib.sha256(text.encode()).hexdigest()


def _is_whole(folder: Path, requirements: Path) -> bool:
    stamp = folder / STAMP
    return (
        (folder / "bin" / "python").exists()
        and stamp.exists()
        and stamp.read_text(encoding="utf-8").strip() == stamp_of(requirements)
    )


def _make(folder: Path, requirements: Path, tell: Tell) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    tell("making an environment for Flink")
    _run([sys.executable, "-m", "venv", str(folder)], folder, "Python's venv with pip must be there")
    tell("installing Flink, some 800 MB")
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "-r", str(requirements)], folder, f"pip must install {requirements.name}")
    (folder / STAMP).write_text(stamp_of(requirements) + "\n", encoding="utf-8")
    tell(f"Flink's environment is in {folder}")


def _run(command: list[str], folder: Path, requirement: str) -> None:
    """Run a step of the making; a failed one leaves no folder behind."""
    try:
        process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise EnvironmentMissingError(f"Flink: {requirement}, and {command[0]} does not run: {error}") from None
    if process.returncode != 0:
        shutil.rmtree(folder, ignore_errors=True)
        tail = "\n".join((process.stdout + process.stderr).strip().splitlines()[-TAIL_LINES:])
        raise EnvironmentMissingError(
            f"Flink: {requirement}, and {' '.join(command)} ended with exit status {process.returncode}:\n{tail}"
        )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
