"""What keeps the service from starting is said in one sentence; what is started is stopped."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from braid.api.preconditions import CannotStart, check_format, check_home, check_java, check_python, lock_data_dir
from braid.api.serve import _trim, open_port, open_storage, serve
from braid.session.settings import Settings
from braid.sources.core.storage import Storage


def fake_java(folder: Path, says: str, status: int = 0) -> dict[str, str]:
    """Make a Java home whose java says something; return the environment that names it."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {status}\n")
    java.chmod(0o755)
    return {"JAVA_HOME": str(folder)}


@pytest.mark.parametrize(
    "says", ['openjdk version "17.0.15" 2025-04-15', 'java version "21"', 'openjdk version "25-ea"']
)
def test_a_new_java_will_do(tmp_path: Path, says: str) -> None:
    check_java(fake_java(tmp_path, says))


@pytest.mark.parametrize(
    ("says", "status", "detail"),
    [
        ('openjdk version "11.0.2" 2019-01-15', 0, "is Java 11; install"),
        ('java version "1.8.0_392"', 0, "is Java 8; install"),
        ("what?", 0, "does not tell its version"),
        ('java version "17"', 1, "does not tell its version"),
    ],
)
def test_another_java_will_not(tmp_path: Path, says: str, status: int, detail: str) -> None:
    with pytest.raises(CannotStart, match=detail) as caught:
        check_java(fake_java(tmp_path, says, status))
    assert "Java 17 or newer" in str(caught.value)


def test_java_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="no java in PATH"):
        check_java({"PATH": str(tmp_path)})
    with pytest.raises(CannotStart, match="does not run"):
        check_java({"JAVA_HOME": str(tmp_path)})


def test_python_must_not_be_old(monkeypatch: pytest.MonkeyPatch) -> None:
    check_python()
    monkeypatch.setattr(sys, "version_info", (3, 10, 14))
    with pytest.raises(CannotStart, match=r"Python 3\.11 or newer"):
        check_python()


@pytest.mark.parametrize(
    ("limit", "status", "message"),
    [
        (300, 1, "but the hard limit is 300; start it after `ulimit -n 10512`."),
        (2000, 0, "but the hard limit is 2000; connections beyond are refused. Start after `ulimit -n 10512`."),
        (20_000, 0, ""),
    ],
)
def test_too_few_file_descriptors_are_named(limit: int, status: int, message: str) -> None:
    code = "import resource, sys; from braid.api import preconditions\n"
    code += f"resource.setrlimit(resource.RLIMIT_NOFILE, (100, {limit}))\n"
    code += "try: preconditions.check_descriptors(10_000)\n"
    code += "except preconditions.CannotStart as error: sys.exit(str(error))\n"
    code += f"assert resource.getrlimit(resource.RLIMIT_NOFILE) == ({limit}, {limit})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=Path(__file__).parents[2], text=True)
    assert (ended.returncode, message in ended.stderr) == (status, True), ended.stderr
    assert message or not ended.stderr


def test_a_data_directory_has_one_service(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    with (
        lock_data_dir(storage),
        pytest.raises(CannotStart, match=f"process {os.getpid()}"),
        lock_data_dir(storage),
    ):
        pass
    with lock_data_dir(storage):
        pass


def test_the_lock_goes_with_its_process(tmp_path: Path) -> None:
    code = "import sys, signal; from braid.api.preconditions import *; from braid.sources.core.storage import Storage\n"
    code += "with lock_data_dir(Storage(sys.argv[1])): print('held', flush=True); signal.pause()"
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(CannotStart, match=f"process {holder.pid}"), lock_data_dir(Storage(str(tmp_path))):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
    with lock_data_dir(Storage(str(tmp_path))):
        pass


def test_accepted_connections_do_not_wait_for_acknowledgements() -> None:
    with open_port("127.0.0.1", 0) as listener:
        # asyncio turns Nagle's algorithm off for these only
        assert listener.proto == socket.IPPROTO_TCP
        with pytest.raises(CannotStart, match="must be free to listen on"):
            open_port(*listener.getsockname())


def test_a_data_directory_must_be_writable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for data_dir in (str(tmp_path / "file"), str(tmp_path / "file" / "below"), "nowhere://x"):
        with pytest.raises(CannotStart, match="The data directory"):
            open_storage(data_dir)


def test_what_a_full_disk_keeps_from_being_trimmed_keeps_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    stopped = threading.Event()

    def refused(name: str) -> Callable[..., None]:
        def trim(*_: object) -> None:
            tried.append(name)
            if len(set(tried)) == 3:
                stopped.set()
            raise OSError(28, "No space left on device")

        return trim

    service = SimpleNamespace(
        storage=Storage(str(tmp_path)),
        settings=Settings(),
        session=SimpleNamespace(streams=SimpleNamespace(ids=set), needed_seq=0, snapshot_epoch=0),
        pushes=SimpleNamespace(trim=refused("pushes")),
        retention=SimpleNamespace(trim=refused("results")),
    )
    monkeypatch.setattr("braid.api.serve.TRIM_SECONDS", 0.01)
    monkeypatch.setattr("braid.api.serve.trim_plan_log", refused("plans"))
    trimming = threading.Thread(target=_trim, args=(service, stopped), daemon=True)
    trimming.start()
    trimming.join(10)
    stopped.set()
    assert tried[:3] == ["results", "pushes", "plans"]


def refusal(flags: dict[str, Any], capsys: pytest.CaptureFixture[str], status: int = 1) -> str:
    """Return the one line that serve() says before it gives up."""
    assert serve(flags) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_serve_refuses_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags: dict[str, Any] = {"data_dir": str(tmp_path / "data"), "port": 0}
    assert "must be at most 65535" in refusal({**flags, "port": 70000}, capsys, status=2)
    assert "must be readable" in refusal({**flags, "config": str(tmp_path / "none.toml")}, capsys, status=2)
    with open_port("127.0.0.1", 0) as listener:
        assert "must be free" in refusal({**flags, "port": listener.getsockname()[1]}, capsys)
    with lock_data_dir(open_storage(flags["data_dir"])):
        assert "Another Braid service" in refusal(flags, capsys)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "needs Java 17" in refusal(flags, capsys)


def test_serve_refuses_a_full_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(*_: object, **_named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Storage, "put", put)
    said = refusal({"data_dir": str(tmp_path), "port": 0}, capsys)
    assert f"{str(tmp_path)!r} must have room: No space left on device; free some" in said


def test_serve_refuses_a_damaged_data_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_format(Storage(str(tmp_path)))
    (tmp_path / "changelogs").mkdir()
    (tmp_path / "changelogs" / "000000000007.json").write_text("{}")
    said = refusal({"data_dir": str(tmp_path), "port": 0}, capsys)
    assert "The file changelogs/000000000001.json must hold what was written" in said
    assert "it is missing" in said


@pytest.mark.parametrize("formats", [(), (1,), (5,)])
def test_a_data_directory_of_another_format_is_refused_and_left_as_it_is(
    formats: tuple[int, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "requests").mkdir()
    (tmp_path / "requests" / "000000000001.jsonl").write_text("")
    for number in formats:
        Storage(str(tmp_path)).put_json("format.json", {"format": number})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    said = refusal({"data_dir": str(tmp_path), "port": 0}, capsys)
    assert f"must have format 4, and has format {formats[0] if formats else 1}" in said
    assert "Start this version on an empty directory" in said
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "service.lock"}
    assert after == before


def test_a_data_directory_stays_where_it_was_made(tmp_path: Path) -> None:
    original, elsewhere, link = (tmp_path / name for name in ("made", "elsewhere", "link"))
    original.mkdir()
    check_home(Storage(str(original)))
    check_home(Storage(str(original)))
    link.symlink_to(original)
    check_home(Storage(str(link)))
    link.unlink()
    original.rename(elsewhere)
    with pytest.raises(CannotStart, match=f"was made as '{original}'"):
        check_home(Storage(str(elsewhere)))
    original.symlink_to(elsewhere)  # what mounting it there does
    check_home(Storage(str(elsewhere)))
    original.unlink()
    elsewhere.rename(original)
    check_home(Storage(str(original)))
