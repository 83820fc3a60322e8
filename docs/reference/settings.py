"""Write docs/settings.md from what ``session/settings.py`` says of each setting: ``make settings``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from braid.session import settings
from braid.session.settings import Settings

PAGE = Path(__file__).resolve().parents[1] / "settings.md"
HEAD = """\
# Settings

For whoever runs a service. Every setting is a line of `braid.toml`, or a variable `BRAID_NAME`; `--host`, `--port`,
`--data-dir` and `--master` are flags of `braid serve`, too. A flag wins over the environment, the environment over the
file, the file over the default.

```toml
# braid.toml in the working directory, or the file that --config or BRAID_CONFIG names
port = 9000
result_retention_seconds = 3600
outgoing_allow = ["public", "10.20.0.0/16"]        # as a variable: BRAID_OUTGOING_ALLOW=public,10.20.0.0/16

[spark_conf]                                        # as a variable: a JSON object
"spark.driver.memory" = "4g"
```

Durations are in seconds, sizes in bytes. A service does not start with an unknown name or a value that does not fit.
[Security](security.md#limits) says what the limits protect against. `make settings` writes this page from the code.
"""
TAIL = """
## Other variables

| variable | meaning |
| --- | --- |
| `BRAID_CONFIG` | The file with settings; `braid.toml` in the working directory if it is not given. |
| `BRAID_SECRET_NAME` | The secret that statements refer to as `secret:NAME` ([security](security.md#secrets)). |
| `BRAID_URL` | The service that the command line calls; `http://127.0.0.1:8080` if it is not given. |
| `BRAID_API_KEY` | The API key that the command line sends ([access](access.md)). |
"""


@dataclass(frozen=True)
class Entry:
    """A setting: its name, its default as the page shows it, and its meaning."""

    name: str
    default: str
    meaning: str


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    for section, entries in sections():
        rows = "".join(f"| `{entry.name}` | {entry.default} | {entry.meaning} |\n" for entry in entries)
        parts.append(f"\n## {section}\n\n| setting | default | meaning |\n| --- | --- | --- |\n{rows}")
    return "".join([*parts, TAIL])


def sections() -> Iterator[tuple[str, list[Entry]]]:
    """Yield the sections of the class in order; ValueError for a setting without a text below it."""
    source = Path(settings.__file__).read_text(encoding="utf-8")
    lines = source.splitlines()
    tree = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == "Settings")
    defaults = _defaults()
    title, entries = "", list[Entry]()
    for node, below in zip(tree.body, tree.body[1:], strict=False):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        comment = re.fullmatch(r" {4}# (\w.*)", lines[node.lineno - 2])
        if comment is not None:
            if entries:
                yield title, entries
            title, entries = comment[1], []
        match below:
            case ast.Expr(value=ast.Constant(value=str(text))):
                meaning = " ".join(text.split()).replace("``", "`")
            case _:
                raise ValueError(f"the setting {node.target.id} must have a text below it")
        entries.append(Entry(node.target.id, _shown(node.target.id, defaults[node.target.id]), meaning))
    yield title, entries


def _defaults() -> Mapping[str, Any]:
    return {
        each.name: each.default_factory() if each.default_factory is not MISSING else each.default
        for each in fields(Settings)
    }


def _shown(name: str, value: Any) -> str:
    if not value and not isinstance(value, (int, float)):
        return "empty"
    if name.endswith("_bytes") and value:
        for unit, size in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
            if value % size == 0:
                return f"{value // size} {unit}"
    if name.endswith("_seconds") or name == "drain_timeout":
        return f"{value / 3600:g} h" if value and value % 3600 == 0 else f"{value:g} s"
    if isinstance(value, (int, float)):
        return f"{value:,}".replace(",", " ") if value >= 10_000 else f"{value:g}"
    return f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
