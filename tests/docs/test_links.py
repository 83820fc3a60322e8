"""Links between pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, TOP


def anchors(page: Path) -> set[str]:
    """Return the anchors that headings make."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    folder = PAGES_AT.get(page, page.parent)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (folder / path).resolve() if path else page
        assert found.exists(), f"{target} in {page.name}"
        assert not anchor or anchor in anchors(found), f"{target} in {page.name}"


# a template's links are those of the page that is made of it
PAGES_AT = {TOP / "docs" / "reference" / "sql.in.md": TOP / "docs"}
