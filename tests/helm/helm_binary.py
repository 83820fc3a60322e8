"""Run a real helm on the chart."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "braid"

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Helm:
    """A helm binary, and a directory for the values it is given."""

    binary: Path
    scratch: Path

    def run(self, *args: str, values: Manifest | None = None) -> subprocess.CompletedProcess[str]:
        """Run helm on the chart with `values`; never reaches for a cluster."""
        file = self.scratch / "values.yaml"
        file.write_text(yaml.safe_dump(values or {}), encoding="utf-8")
        return subprocess.run(
            [self.binary, *args, "--values", file], capture_output=True, text=True, timeout=60, check=False
        )

    def template(self, values: Manifest | None = None) -> list[Manifest]:
        """Render the chart as release `demo` in namespace `streams`."""
        done = self.run("template", "demo", str(CHART), "--namespace", "streams", values=values)
        assert done.returncode == 0, done.stderr
        return manifests_of(done.stdout)

    def notes(self, values: Manifest | None = None) -> str:
        """Render what helm tells after an installation; nothing else lets it show without a cluster."""
        chart = self.scratch / "braid"
        shutil.copytree(CHART, chart, dirs_exist_ok=True)
        text = (CHART / "templates" / "NOTES.txt").read_text(encoding="utf-8")
        (chart / "templates" / "_notes.tpl").write_text(
            f'{{{{ define "notes" }}}}{text}{{{{ end }}}}', encoding="utf-8"
        )
        (chart / "templates" / "notes.yaml").write_text('text: {{ include "notes" . | toJson }}', encoding="utf-8")
        args = ("template", "demo", str(chart), "--namespace", "streams", "--show-only", "templates/notes.yaml")
        done = self.run(*args, values=values)
        assert done.returncode == 0, done.stderr
        return str(yaml.safe_load(done.stdout)["text"])


def manifests_of(text: str) -> list[Manifest]:
    """Return the objects that helm rendered; libyaml reads them ten times as fast as Python, where it is there."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [each for each in yaml.load_all(text, loader) if each]


def is_helm3(binary: Path) -> bool:
    """Tell whether `binary` runs and is a helm v3."""
    if not binary.is_file():
        return False
    done = subprocess.run([binary, "version", "--short"], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode == 0 and done.stdout.startswith("v3.")
