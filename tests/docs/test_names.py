"""What pages name exists: commands and their options, targets of make, modules, files of code, and variables."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import click
import pytest

from braid.api.cli.main import cli
from braid.session.settings import Settings
from tests.docs.pages import PAGES, TOP, code_of, fences

SETTINGS_PAGE = TOP / "docs" / "settings.md"
CODE = ("api", "client", "session", "optimizer", "router", "engine", "operators", "sources", "bench_driver")
# what changed is told in the words of its time
TODAY = [page for page in PAGES if page.name != "CHANGELOG.md" and "decisions" not in page.parts]
parametrize = pytest.mark.parametrize("page", TODAY, ids=lambda page: str(page.relative_to(TOP)))


@cache
def tracked() -> list[str]:
    """Return the files of the repository."""
    listed = subprocess.run(["git", "ls-files"], cwd=TOP, capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


@cache
def texts_of_code() -> str:
    """Return everything that may read a variable: packages, tests, Makefile, scripts and charts."""
    files = [TOP / name for name in tracked() if not name.endswith((".md", ".png", ".svg"))]
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files if path.is_file())


def unknown_part(snippet: str) -> str | None:
    """Return the first word of a ``braid`` command line that there is not, None where all are known."""
    found = re.match(r"(?:\$ |\.venv/bin/|[A-Z_]+=\S+ |exec )*braid (.*)", snippet)
    if found is None:
        return None
    words = re.sub(r'"[^"]*"|\'[^\']*\'', "TEXT", re.sub(r"--url \S+ ", "", found[1])).split()
    command: click.Command = cli
    while isinstance(command, click.Group) and words and re.match(r"[a-z]", words[0]):
        if words[0] not in command.commands and command.name != "bench":
            return words[0]
        command = command.commands.get(words.pop(0)) or command.commands["run"]
    if isinstance(command, click.Group) and command.name == "bench":  # whose options are those of a run
        command = command.commands["run"]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    given = [word.partition("=")[0] for word in words if re.fullmatch(r"--[a-z].*", word)]
    return next((option for option in given if option not in {*known, "--help", "--version"}), None)


@parametrize
def test_commands_of_braid_exist(page: Path) -> None:
    wrong = [(code, part) for code in code_of(page.read_text(encoding="utf-8")) if (part := unknown_part(code))]
    assert not wrong


def test_commands_that_do_not_exist_are_found() -> None:
    assert unknown_part("$ braid serve --port 1") is None
    assert unknown_part("$ braid serve --prot 1") == "--prot"
    assert unknown_part("$ BRAID_URL=x braid qurey TEXT") == "qurey"


@parametrize
def test_targets_of_make_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {
        found[1]
        for code in code_of(page.read_text(encoding="utf-8"))
        if (found := re.match(r"(?:\$ )?make ([a-z][a-z-]*)", code))
    }
    assert named <= targets


@parametrize
def test_modules_and_files_of_code_exist(page: Path) -> None:
    files = [f"/{name}" for name in tracked()]
    for code in code_of(page.read_text(encoding="utf-8")):
        for module in re.findall(r"python -m ((?:braid|tests|docs)[\w.]*)", code):
            path = module.removeprefix("braid.").replace(".", "/")
            assert f"/{path}.py" in files or f"/{path}/__main__.py" in files, module
        if re.fullmatch(r"[\w/]+\.(py|sh)", code) and "NAME" not in code:
            assert any(name.endswith(f"/{code}") for name in files), code


@parametrize
def test_variables_exist(page: Path) -> None:
    settings = {f"BRAID_{name.upper()}" for name in Settings.__dataclass_fields__}
    for name in re.findall(r"\bBRAID_[A-Z_]*[A-Z]\b", page.read_text(encoding="utf-8")):
        assert name in settings or name.startswith("BRAID_SECRET_") or name in texts_of_code() or name == "BRAID_NAME"


def test_variables_that_the_service_reads_are_described() -> None:
    described = SETTINGS_PAGE.read_text(encoding="utf-8")
    for folder in CODE:
        for module in (TOP / folder).rglob("*.py"):
            for name in re.findall(r'"(BRAID_[A-Z_]*[A-Z])"', module.read_text(encoding="utf-8")):
                assert f"`{name}`" in described or f"`{name.removeprefix('BRAID_').lower()}`" in described, module


def test_pages_have_no_shell_block_that_is_not_checked() -> None:
    """A block of commands is one without a language, so that the tests above see its lines."""
    assert not [page for page in TODAY for language, _ in fences(page.read_text("utf-8")) if language in ("sh", "bash")]
