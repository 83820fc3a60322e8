"""Imports point one way, and Spark stays in one folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
LAYERS = ("api", "session", "optimizer", "router", "engine", "operators", "sources")
SESSION = ("commands", "upkeep", "log", "state")
SPARK = "engine"
KINDS = (
    "braid.operators.selection",
    "braid.operators.aggregation",
    "braid.operators.sessions",
    "braid.operators.joins",
)
LOOPS = (
    "operators/stream_operators.py",
    "operators/partition.py",
    "operators/partition_operators.py",
    "engine/source_task.py",
    "engine/partition_task.py",
    "router/materialize.py",
    "router/result_reader.py",
)
"""Modules that go through all kinds of operators."""


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def modules(package: str) -> Iterator[Path]:
    found = sorted((TOP / package).rglob("*.py"))
    assert found, f"{package} has no modules"
    yield from found


def test_imports_point_one_way() -> None:
    wrong = [
        f"{path.relative_to(TOP)} imports {name}"
        for rank, package in enumerate(LAYERS)
        for path in modules(package)
        for name in imports_of(path)
        if name.startswith(tuple(f"braid.{above}" for above in LAYERS[:rank]))
    ]
    assert not wrong


def test_imports_between_folders_of_the_session_point_one_way() -> None:
    wrong = [
        f"{path.relative_to(TOP)} imports {name}"
        for rank, folder in enumerate(SESSION)
        for path in modules(f"session/{folder}")
        for name in imports_of(path)
        if name.startswith(tuple(f"braid.session.{above}" for above in ("shared_session", *SESSION[:rank])))
    ]
    assert not wrong


def test_spark_is_known_to_one_folder_only() -> None:
    using = {
        package
        for package in LAYERS
        for path in modules(package)
        if any(name.split(".")[0] == "pyspark" for name in imports_of(path))
    }
    assert using == {SPARK}


def test_loops_over_kinds_of_operators_name_no_kind() -> None:
    wrong = [f"{path} imports {name}" for path in LOOPS for name in imports_of(TOP / path) if name.startswith(KINDS)]
    assert not wrong


def test_the_driver_knows_the_service_from_outside_only() -> None:
    wrong = [
        f"{path.relative_to(TOP)} imports {name}"
        for path in modules("bench_driver")
        for name in imports_of(path)
        if name.startswith(tuple(f"braid.{layer}" for layer in LAYERS))
    ]
    assert not wrong


def test_the_client_imports_nothing_else_of_braid() -> None:
    wrong = [
        f"{path.relative_to(TOP)} imports {name}"
        for path in modules("client")
        for name in imports_of(path)
        if name.split(".")[0] == "braid" and not name.startswith("braid.client")
    ]
    assert not wrong


def test_packages_are_imported_as_parts_of_one() -> None:
    folders = {path.name for path in (TOP / "braid").iterdir() if path.is_symlink()}
    assert folders == {*LAYERS, "bench_driver", "client"}
    wrong = [
        f"{path.relative_to(TOP)} imports {name}"
        for folder in (*folders, "tests")
        for path in modules(folder)
        for name in imports_of(path)
        if name.split(".")[0] in folders
    ]
    assert not wrong
