"""Flink's environment: made when it is not there, anew when its requirements change, and what is missing is told.

Java and the Python that makes it are small scripts here: nothing is installed.
"""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path

import pytest

from braid.bench_driver.peers.flink_environment import (
    REQUIREMENTS,
    STAMP,
    EnvironmentMissingError,
    ensure_environment,
    java_version,
    require_java,
    stamp_of,
)
from braid.bench_driver.systems.flink_system import JOBS, FlinkSystem
from braid.bench_driver.systems.system import SystemFailedError
from braid.bench_driver.workload import StreamSpec, Workload

# `-m venv FOLDER` copies itself there; `-m pip` tells on stderr what it is to install, and has an exit status
PYTHON = """#!/bin/sh
echo "$2" >> "{calls}"
case "$2" in
    venv) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    pip) echo "pip is told: $*" >&2; exit {status} ;;
esac
"""


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o700)
    return path


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """Name the file of what the making called, a line each."""
    return tmp_path / "calls"


@pytest.fixture
def python(tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    stand_in = script(tmp_path / "python", PYTHON.format(calls=calls, status=0))
    monkeypatch.setattr(sys, "executable", str(stand_in))
    return stand_in


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a Java 17 that JAVA_HOME names."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    return script(tmp_path / "jdk" / "bin" / "java", "#!/bin/sh\necho 'openjdk version \"17.0.9\" 2023-10-17' >&2\n")


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    path = tmp_path / "some-requirements.txt"
    path.write_text("some-package==1\n")
    return path


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ('openjdk version "17.0.9" 2023-10-17\nOpenJDK Runtime Environment', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "11.0.2"', 11),
        ("command not found", None),
    ],
)
def test_the_version_of_java_is_read(output: str, version: int | None) -> None:
    assert java_version(output) == version


def test_the_java_of_java_home_is_the_first_choice(java: Path) -> None:
    assert require_java() == str(java)


def test_a_java_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    where = re.escape(f"no java in {tmp_path}/bin (JAVA_HOME); install a JRE")
    with pytest.raises(EnvironmentMissingError, match=f"Flink needs Java 11 or later, and there is {where}"):
        require_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentMissingError, match="there is no java in PATH"):
        require_java()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#!/bin/sh\necho 'java version \"1.8.0_392\"' >&2\n", "Java 11 or later, got 'java version \"1.8.0_392\"'"),
        ("#!/bin/sh\necho 'no such option' >&2\n", "Java 11 or later, got 'no such option'"),
        ("#!/no/such/shell\n", "does not run: .*No such file"),
    ],
)
def test_a_java_that_flink_cannot_use_is_told(java: Path, text: str, words: str) -> None:
    script(java, text)
    with pytest.raises(EnvironmentMissingError, match=words):
        require_java()


@pytest.mark.usefixtures("java", "python")
def test_it_is_made_once_and_anew_when_its_requirements_change(tmp_path: Path, calls: Path, requirements: Path) -> None:
    folder, messages = tmp_path / "peers" / "flink", []
    for _ in range(2):
        assert ensure_environment(messages.append, folder, requirements) == folder / "bin" / "python"
        assert calls.read_text().split() == ["venv", "pip"]
    assert messages == [
        "making an environment for Flink",
        "installing Flink, some 800 MB",
        f"Flink's environment is in {folder}",
    ]
    assert (folder / STAMP).read_text().strip() == stamp_of(requirements)
    requirements.write_text("some-package==2\n")
    (folder / "left over").touch()
    ensure_environment(messages.append, folder, requirements)
    assert calls.read_text().split() == 2 * ["venv", "pip"]
    assert not (folder / "left over").exists()


@pytest.mark.usefixtures("java", "python")
def test_one_without_a_stamp_is_not_whole(tmp_path: Path, calls: Path, requirements: Path) -> None:
    folder = tmp_path / "flink"
    ensure_environment(lambda _: None, folder, requirements)
    (folder / STAMP).unlink()
    ensure_environment(lambda _: None, folder, requirements)
    assert calls.read_text().split() == 2 * ["venv", "pip"]


@pytest.mark.usefixtures("java")
def test_what_cannot_be_installed_is_told_and_leaves_nothing_behind(
    tmp_path: Path, python: Path, calls: Path, requirements: Path
) -> None:
    script(python, PYTHON.format(calls=calls, status=3))
    folder = tmp_path / "flink"
    words = r"(?s)pip must install some-requirements.txt, and .*exit status 3:.*pip is told: .*-r .*some-requirements"
    with pytest.raises(EnvironmentMissingError, match=words):
        ensure_environment(lambda _: None, folder, requirements)
    assert not folder.exists()
    script(python, "#!/bin/sh\necho 'No module named venv' >&2\nexit 1\n")
    with pytest.raises(EnvironmentMissingError, match=r"(?s)venv with pip must be there, and .*No module named venv"):
        ensure_environment(lambda _: None, folder, requirements)
    assert not folder.exists()


@pytest.mark.usefixtures("java", "python")
def test_who_wants_it_meanwhile_waits(tmp_path: Path, calls: Path, requirements: Path) -> None:
    threads = [
        threading.Thread(target=ensure_environment, args=(lambda _: None, tmp_path / "flink", requirements))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert calls.read_text().split() == ["venv", "pip"]


def test_a_system_without_an_environment_has_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    workload = Workload("test", "", "", (StreamSpec("a", "astream"),), "aggregation", {}, (1,), 1)
    with pytest.raises(SystemFailedError, match="Flink needs Java 11"):
        FlinkSystem(JOBS).start(workload, {})


def test_only_flink_is_pinned_and_with_all_its_parts() -> None:
    lines = [line for line in REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]
    pins = dict(line.split("==") for line in lines)
    assert pins.keys() == {"apache-flink", "apache-flink-libraries"}
    assert len(set(pins.values())) == 1
