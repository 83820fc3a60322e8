"""The tests of the inner loop are those of what has changed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit.affected import affected, changed_files


def written(top: Path, **files: str) -> None:
    for name, text in files.items():
        path = top / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def git(top: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=tests", "-c", "user.email=tests@localhost"]
    subprocess.run(["git", *identity, *arguments], cwd=top, check=True, capture_output=True)


def test_tests_that_import_a_changed_module_are_affected_and_no_others(tmp_path: Path) -> None:
    written(
        tmp_path,
        tests__test_all="import rooms.one\n",
        tests__test_part="from rooms.one import thing\n",
        tests__test_module="from rooms import one\n",
        tests__test_other="from rooms import other\nfrom rooms.one_more import thing\n",
        tests__deep__test_itself="",
    )
    assert affected({"rooms/one.py", "README.md"}, tmp_path) == [
        "tests/test_all.py",
        "tests/test_module.py",
        "tests/test_part.py",
    ]
    assert affected({"tests/deep/test_itself.py"}, tmp_path) == ["tests/deep/test_itself.py"]
    assert affected({"README.md"}, tmp_path) == []


@pytest.mark.skipif(shutil.which("git") is None, reason="git must be there: `make check` asks it what has changed")
def test_what_is_new_has_changed_and_what_is_committed_has_not(tmp_path: Path) -> None:
    git(tmp_path, "init")
    written(tmp_path, kept="1\n", edited="1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "begin")
    written(tmp_path, edited="2\n", new="3\n")
    assert changed_files("HEAD", tmp_path) == {"edited.py", "new.py"}
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "go on")
    assert changed_files("HEAD", tmp_path) == set()
    assert changed_files("HEAD~1", tmp_path) == {"edited.py", "new.py"}
