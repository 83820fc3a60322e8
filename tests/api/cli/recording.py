"""Record `braid shell` in a terminal, of a service that runs: ``make recording``."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fcntl import ioctl
from html import escape
from itertools import groupby
from pathlib import Path
from struct import pack
from termios import TIOCSCTTY, TIOCSWINSZ

import pyte

from braid.client import Client
from tests.kit.service import REPOSITORY, RunningService
from tests.kit.waiting import wait_until
from tests.page.picture import STREAM

COLUMNS, LINES = 108, 24
SECONDS = 60.0
KEYS_A_FRAME, TYPING_SECONDS = 4, 0.14
RECORDING = REPOSITORY / "docs" / "shell.svg"
PROMPT = "braid> "
CTRL_C = "\x03"

_LINE, _CHARACTER, _MARGIN = 19, 8.43, 14
_COLORS = {"red": "#ff7b72", "green": "#7ee787", "brown": "#e3b341", "blue": "#79c0ff", "cyan": "#76e3ea"}
_STYLE = "font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre; fill: #e6edf3"

Frame = list[list[tuple[str, str]]]
"""Lines of a screen, each of pieces of text with their style."""


@dataclass
class Terminal:
    """A shell in a terminal, and the frames of its recording, each with the seconds that it is shown."""

    process: subprocess.Popen[bytes]
    descriptor: int
    screen: pyte.Screen = field(default_factory=lambda: pyte.Screen(COLUMNS, LINES))
    frames: list[tuple[float, Frame]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stream = pyte.ByteStream(self.screen)

    def type(self, text: str) -> None:
        """Type a text, and show it as it is typed."""
        for first in range(0, len(text), KEYS_A_FRAME):
            os.write(self.descriptor, text[first : first + KEYS_A_FRAME].encode())
            self._read(0.1)
            self.show(TYPING_SECONDS)

    def press(self, key: str) -> None:
        """Press a key."""
        os.write(self.descriptor, key.encode())

    def wait_for(self, text: str, times: int = 1, show: bool = False) -> None:
        """Wait until a text is that often on the screen; with `show` each change on the way is a frame."""

        def is_there() -> bool:
            if self._read(0.1) and show:
                self.show(0.8)
            return "\n".join(self.screen.display).count(text) >= times

        wait_until(is_there, SECONDS, lambda: f"{text!r} comes; the screen has\n" + "\n".join(self.screen.display))

    def show(self, seconds: float) -> None:
        """Show the screen as it is for some seconds."""
        cursor = self.screen.cursor
        frame: Frame = []
        for number in range(LINES):
            line = self.screen.buffer[number]
            cells = [(line[at].data, _style(line[at])) for at in range(COLUMNS)]
            if number == cursor.y and not cursor.hidden and cursor.x < COLUMNS:
                cells[cursor.x] = (cells[cursor.x][0].replace(" ", "█"), cells[cursor.x][1])
            pieces = groupby(cells, key=lambda cell: cell[1])
            frame.append([("".join(text for text, _ in piece), style) for style, piece in pieces])
        self.frames.append((seconds, frame))

    def _read(self, seconds: float) -> bool:
        came = False
        while select.select([self.descriptor], [], [], seconds)[0]:
            try:
                data = os.read(self.descriptor, 1 << 16)
            except OSError:  # the shell has ended
                return came
            self._stream.feed(data)
            came = True
        return came


def _style(cell: pyte.screens.Char) -> str:
    color = f"fill: {_COLORS[cell.fg]}; " if cell.fg in _COLORS else ""
    return color + ("font-weight: bold" if cell.bold else "")


@contextmanager
def shell(url: str, folder: Path) -> Iterator[Terminal]:
    """Start `braid shell` in a terminal."""
    master, slave = pty.openpty()
    ioctl(slave, TIOCSWINSZ, pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {**os.environ, "BRAID_URL": url, "TERM": "xterm-256color", "XDG_STATE_HOME": str(folder)}
    environment["PROMPT_TOOLKIT_NO_CPR"] = "1"  # this terminal does not tell where its cursor is
    process = subprocess.Popen(
        [sys.executable, "-m", "braid.api.cli.start", "shell"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
        start_new_session=True,
        preexec_fn=lambda: ioctl(0, TIOCSCTTY, 0),  # so that Ctrl-C is an interrupt
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def animated(frames: list[tuple[float, Frame]]) -> str:
    """Return an SVG that shows frames one after the other, again and again."""
    total = sum(seconds for seconds, _ in frames)
    width, height = round(COLUMNS * _CHARACTER + 2 * _MARGIN), LINES * _LINE + 2 * _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="braid shell">',
        f"<style>text {{ {_STYLE} }} g {{ visibility: hidden; animation: {total:.2f}s step-end infinite }}",
    ]
    at = 0.0
    for number, (seconds, _) in enumerate(frames):
        first, last = 100 * at / total, 100 * (at + seconds) / total
        hidden = "0% { visibility: hidden } " if number else ""
        parts.append(
            f"@keyframes f{number} {{ {hidden}{first:.3f}% {{ visibility: visible }} {last:.3f}%, 100%"
            f" {{ visibility: {'visible' if number == len(frames) - 1 else 'hidden'} }} }}"
        )
        at += seconds
    parts.append(f'</style><rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>')
    for number, (_, frame) in enumerate(frames):
        parts.append(f'<g style="animation-name: f{number}">')
        for line, pieces in enumerate(frame):
            spans = "".join(
                f'<tspan style="{style}">{escape(text)}</tspan>' if style else escape(text) for text, style in pieces
            ).rstrip()
            if spans:
                parts.append(f'<text x="{_MARGIN}" y="{_MARGIN + (line + 1) * _LINE - 5}">{spans}</text>')
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def record(terminal: Terminal) -> None:
    """Type what a first session types."""
    terminal.wait_for(PROMPT)
    terminal.show(1.0)
    terminal.type("SHOW STREAMS;")
    terminal.press("\r")
    terminal.wait_for(PROMPT, 2)
    terminal.show(1.5)
    terminal.type("SELECT user_id, prise FROM purchases WHERE price > 99;")
    terminal.press("\r")
    terminal.wait_for("Did you mean")
    terminal.wait_for(PROMPT, 3)
    terminal.show(3.0)
    terminal.type("SELECT gem_pack, COUNT(*) AS n, ROUND(SUM(price)) AS revenue FROM purchases [RANGE 2 SECONDS]")
    terminal.press("\r")
    terminal.type("WHERE gem_pack > 6 GROUP BY gem_pack;")
    terminal.press("\r")
    terminal.wait_for("Z         9", 3, show=True)  # three windows, each with a row of the last pack
    terminal.show(2.0)
    terminal.press(CTRL_C)
    terminal.wait_for("retired query", show=True)
    terminal.show(3.0)


def main() -> None:
    """Run a service with a stream, and record a session."""
    with tempfile.TemporaryDirectory() as folder:
        service = RunningService(Path(folder) / "data", Path(folder) / "service.log")
        try:
            service.start()
            with Client(service.url) as braid:
                braid.create_stream(STREAM)
            with shell(service.url, Path(folder)) as terminal:
                record(terminal)
                RECORDING.write_text(animated(terminal.frames), encoding="utf-8")
            service.stop()
        finally:
            service.end_everything()


if __name__ == "__main__":
    main()
