"""The blocks of docs/python.md and the cells of docs/notebook.ipynb run as printed, against a real service.

The cells run in a kernel of Jupyter.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

from tests.docs.pages import TOP, fences
from tests.kit.service import RunningService
from tests.kit.waiting import wait_until

SECONDS = 180.0


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


class Kernel:
    """A kernel of Jupyter, and the outputs that a frontend would show: of each display the newest."""

    def __init__(self) -> None:
        self.outputs: dict[str, dict[str, str]] = {}
        self._manager, self._client = start_new_kernel(startup_timeout=SECONDS)

    def run(self, source: str) -> None:
        """Run a cell to its end."""
        request = self._client.execute(source)
        wait_until(lambda: self._is_idle_after(request), SECONDS, lambda: f"{source} ends; it showed {self.outputs}")

    def read(self) -> dict[str, dict[str, str]]:
        """Read what was shown since, and return all outputs."""
        for message in self._messages():
            self._take(message)
        return self.outputs

    def stop(self) -> None:
        """End the kernel."""
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)

    def _messages(self) -> Iterator[dict[str, Any]]:
        with suppress(Empty):
            while True:
                yield self._client.get_iopub_msg(timeout=0.1)

    def _is_idle_after(self, request: str) -> bool:
        is_idle = False
        for message in self._messages():
            self._take(message)
            ended = message["content"].get("execution_state") == "idle"
            is_idle |= ended and message["parent_header"].get("msg_id") == request
        return is_idle

    def _take(self, message: dict[str, Any]) -> None:
        content = message["content"]
        assert message["msg_type"] != "error", content
        if "data" in content:
            number = content.get("transient", {}).get("display_id") or str(len(self.outputs))
            self.outputs[number] = content["data"]


@pytest.fixture
def kernel(service: RunningService, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    monkeypatch.setenv("BRAID_URL", service.url)
    started = Kernel()
    yield started
    started.stop()


@pytest.mark.service
def test_the_cells_of_the_notebook_run(kernel: Kernel) -> None:
    notebook = json.loads((TOP / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell in cells[:-1]:
        kernel.run(cell)
    pushed, live, frame, _axes, plot = list(kernel.outputs)
    assert "'accepted': 5" in kernel.outputs[pushed]["text/plain"]
    assert "<td>99</td>" in kernel.outputs[frame]["text/html"]
    assert "image/png" in kernel.outputs[plot]
    wait_until(
        lambda: "<b>FINISHED</b>" in kernel.read()[live]["text/html"],
        SECONDS,
        lambda: f"the cell of the query follows it; it shows {kernel.outputs[live]}",
    )
    assert "<td>d</td><td>99</td>" in kernel.outputs[live]["text/html"]
    kernel.run(cells[-1])
