"""Look whether advisories are known for what requirements.lock pins: ``python -m tests.security.audit``.

Exit status 0: none are. 1: some are, and they are told. 3: that could not be found out.

An index without advisories answers as one that knows of none. So a release is asked for first of which some are known,
and what the index does not have counts as not audited, too. ``--if-reachable`` is for machines that reach no
advisories: it says so loudly, and exits with 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KNOWN_BAD = "jinja2==2.4.1\n"
SECONDS = 300
CLEAN, VULNERABLE, UNKNOWN = 0, 1, 3
LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"
RULE = "!" * 100


@dataclass(frozen=True)
class Audit:
    """``advisories`` and ``unknown`` are a line each; unknown is what was not audited, and why."""

    advisories: tuple[str, ...]
    unknown: tuple[str, ...]

    @classmethod
    def of(cls, report: dict[str, Any]) -> Audit:
        """Read the report of pip-audit."""
        found, unknown = [], []
        for each in report["dependencies"]:
            if "skip_reason" in each:
                unknown.append(f"{each['name']}: {each['skip_reason']}")
            for advisory in each.get("vulns", ()):
                mended = ", ".join(advisory["fix_versions"]) or "no release yet"
                found.append(f"{each['name']} {each['version']}: {advisory['id']}, mended in {mended}")
        return cls(tuple(found), tuple(unknown))


def run_pip_audit(requirements: str) -> Audit:
    """Return the audit of pinned requirements."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(requirements)
        file.flush()
        options = ("--requirement", file.name, "--no-deps", "--disable-pip", "--format", "json")
        command = [sys.executable, "-m", "pip_audit", *options, "--progress-spinner", "off"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
            return Audit.of(json.loads(done.stdout))
        except subprocess.TimeoutExpired:
            return Audit((), (f"pip-audit must answer within {SECONDS} s; it did not.",))
        except (ValueError, KeyError):
            last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            return Audit((), (f"pip-audit failed: {last[:300]}",))


def audit(requirements: str, run: Callable[[str], Audit] = run_pip_audit) -> Audit:
    """Return the audit of pinned requirements, unknown as a whole where not even known advisories are told."""
    probe = run(KNOWN_BAD)
    if not probe.advisories:
        why = f" ({'; '.join(probe.unknown)})" if probe.unknown else ""
        return Audit((), (f"The index tells no advisory of {KNOWN_BAD.strip()}, which has some{why}.",))
    return run(requirements)


def main(arguments: list[str], run: Callable[[str], Audit] = run_pip_audit) -> int:
    """Audit, tell, and return the exit status."""
    found = audit(LOCK.read_text(), run)
    for line in found.advisories:
        print(f"audit: {line}", file=sys.stderr)
    if found.advisories:
        return VULNERABLE
    if found.unknown:
        print(RULE, file=sys.stderr)
        print("audit: NOT AUDITED. Whether advisories exist for these packages is not known:", file=sys.stderr)
        for line in found.unknown:
            print(f"audit:   {line}", file=sys.stderr)
        print(RULE, file=sys.stderr)
        return CLEAN if "--if-reachable" in arguments else UNKNOWN
    print("audit: no advisory is known for what requirements.lock pins")
    return CLEAN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
