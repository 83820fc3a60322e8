"""Which tests to run for what has changed: those that import a changed module, and changed tests themselves.

`python -m tests.kit.affected [REVISION]` prints them, one a line, for what differs from a revision, HEAD by default;
nothing where nothing is affected.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]


def changed_files(revision: str, top: Path = TOP) -> set[str]:
    """Return the paths of files that differ from a revision, new ones among them."""
    commands = (["diff", "--name-only", revision], ["ls-files", "--others", "--exclude-standard"])
    return {
        name
        for command in commands
        for name in subprocess.run(
            ["git", *command], cwd=top, capture_output=True, text=True, check=True
        ).stdout.splitlines()
    }


def imported(path: Path) -> Iterator[str]:
    """Yield the modules that a file may import, by their dotted names."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def affected(changed: Iterable[str], top: Path = TOP) -> list[str]:
    """Return the tests, by path, that are changed, or import a changed module or helper of tests."""
    changed = set(changed)
    names = {name.removesuffix(".py").replace("/", ".") for name in changed if name.endswith(".py")}
    modules = names | {f"braid.{name}" for name in names}
    found = []
    for path in sorted((top / "tests").rglob("test_*.py")):
        name = str(path.relative_to(top))
        if name in changed or not modules.isdisjoint(imported(path)):
            found.append(name)
    return found


if __name__ == "__main__":
    print("\n".join(affected(changed_files(sys.argv[1] if len(sys.argv) > 1 else "HEAD"))))
