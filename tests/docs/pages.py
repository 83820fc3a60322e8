"""The pages that a user reads, and the code on them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PAGES = sorted([*TOP.glob("*.md"), *TOP.glob("docs/**/*.md"), *TOP.glob("helm/**/*.md")])
_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class PrintedCommand:
    """A command of a page, and the lines that the page shows below it."""

    text: str
    output: tuple[str, ...]


def fences(text: str) -> Iterator[tuple[str, str]]:
    """Yield the language and the text of each fenced block."""
    yield from (match.groups() for match in _FENCE.finditer(text))


def code_of(text: str) -> Iterator[str]:
    """Yield what a page shows as code: the lines of fenced blocks, and what stands between backticks."""
    for _, block in fences(text):
        yield from block.splitlines()
    yield from (" ".join(match.split()) for match in _INLINE.findall(_FENCE.sub("", text)))


def printed_commands(text: str) -> Iterator[PrintedCommand]:
    """Yield the commands that follow ``$`` in fenced blocks without a language."""
    for language, block in fences(text):
        if language:
            continue
        lines = iter(block.splitlines())
        command, output = "", list[str]()
        for line in lines:
            if not line.startswith("$ "):
                output.append(line)
                continue
            if command:
                yield PrintedCommand(command, tuple(output))
            command, output = line[2:], []
            while _goes_on(command):
                command += "\n" + next(lines)
        if command:
            yield PrintedCommand(command, tuple(output))


def _goes_on(command: str) -> bool:
    if command.endswith("\\"):
        return True
    if (here := re.search(r"<< (\w+)\n", f"{command}\n")) is not None:
        return not command.endswith(f"\n{here[1]}")
    try:
        shlex.split(command, comments=True)
    except ValueError:  # a quote is open
        return True
    return False
