"""The blocks of docs/python.md and the cells of docs/notebook.ipynb run as printed, against a real service."""

from __future__ import annotations

import ast
import json
from typing import Any

import matplotlib
import pytest

from tests.docs.pages import TOP, fences
from tests.kit.service import RunningService


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does, and return the value of its last line, None where that is no expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.mark.service
def test_the_blocks_of_the_page_run(
    service: RunningService, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BRAID_URL", service.url)
    names: dict[str, Any] = {}
    page = (TOP / "docs" / "python.md").read_text(encoding="utf-8")
    shown = [run_cell(block, names) for language, block in fences(page) if language == "python"]
    try:
        assert shown[0].to_dict("records") == [{"carrier": "AA", "delay": 33.5}, {"carrier": "AA", "delay": 12.0}]
        assert sorted(names["hourly"].select("carrier", "n").rows()) == [("AA", 1), ("AA", 1), ("B6", 1), ("UA", 2)]
        assert capsys.readouterr().out == "422 (1, 8)\n"
        assert names["carriers"] == ["AA", "AA"]
    finally:
        names["braid"].drop_stream("flights", cascade=True)
        names["braid"].close()


@pytest.mark.service
def test_the_cells_of_the_notebook_run(service: RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAID_URL", service.url)
    monkeypatch.setattr("braid.client.query._TABLE_SECONDS", 60.0)
    matplotlib.use("agg")
    names: dict[str, Any] = {}
    notebook = json.loads((TOP / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    shown = []
    for cell in cells:
        value = run_cell(cell, names)
        shown.append(value._repr_html_() if hasattr(value, "_repr_html_") else value)
    names["braid"].close()
    assert shown[1]["accepted"] == 5
    assert "<td>c</td><td>30</td>" in shown[2]
    assert "<td>99</td>" in shown[3]
    assert [bar.get_height() for bar in shown[4].patches] == [12, 30, 41, 99]
