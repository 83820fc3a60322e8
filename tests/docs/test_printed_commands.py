"""The commands of "Five minutes" and of the tutorial do, as printed, what the pages show below them."""

from __future__ import annotations

from pathlib import Path

import pytest

from braid.session.sql.parser import parse_statement
from tests.docs.commands import SECONDS, check, environment_of
from tests.docs.pages import TOP, fences, printed_commands
from tests.kit.fixtures import FreshService
from tests.kit.waiting import wait_until

README = (TOP / "README.md").read_text(encoding="utf-8")
FIVE_MINUTES = README[README.index("## Five minutes") : README.index("## Read on")]
TUTORIAL = (TOP / "docs" / "tutorial.md").read_text(encoding="utf-8")


@pytest.mark.service
def test_the_commands_print_what_the_pages_show(fresh_service: FreshService, tmp_path: Path) -> None:
    service = fresh_service(BRAID_SINK_FOLDER=str(tmp_path))
    environment = environment_of(service.url)
    for command in [*printed_commands(FIVE_MINUTES), *printed_commands(TUTORIAL)]:
        if command.text.startswith(("make setup", "source ")):
            continue  # it is done, and PATH has it
        if command.text == "braid serve":
            ready = [
                line.replace("8080", str(service.port)).replace("/home/me/braid-data", str(service.data_dir))
                for line in command.output
            ]
            wait_until(
                lambda ready=ready: set(ready) <= set(service.log.read_text().splitlines()),
                SECONDS,
                lambda ready=ready: f"the service says {ready}; it said {service.log_tail()}",
            )
            continue
        check(command, environment, tmp_path)


def test_the_commands_are_found() -> None:
    words = [command.text.split()[0] for command in [*printed_commands(FIVE_MINUTES), *printed_commands(TUTORIAL)]]
    assert words.count("braid") >= 12


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "docs/watermarks.md"])
def test_statements_parse(page: str) -> None:
    for language, block in fences((TOP / page).read_text(encoding="utf-8")):
        if language == "sql":
            parse_statement(block)
