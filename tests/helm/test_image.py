"""Check that the image, the chart and the project agree; building the image needs a container runtime."""

from __future__ import annotations

import fnmatch
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from braid import __version__

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "helm" / "Dockerfile").read_text(encoding="utf-8")
IGNORE = (ROOT / "helm" / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VALUES = yaml.safe_load((ROOT / "helm" / "braid" / "values.yaml").read_text(encoding="utf-8"))
EXECUTOR = (ROOT / "helm" / "braid" / "templates" / "_executor.tpl").read_text(encoding="utf-8")
CHART = yaml.safe_load((ROOT / "helm" / "braid" / "Chart.yaml").read_text(encoding="utf-8"))


def test_base_image_is_pinned() -> None:
    assert re.search(r"^ARG PYTHON_IMAGE=python:3\.11\.\d+-slim-bookworm$", DOCKERFILE, re.MULTILINE)
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"${PYTHON_IMAGE}"}


def test_user_is_the_one_of_the_chart() -> None:
    security = VALUES["podSecurityContext"]
    assert re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE) == [
        f"{security['runAsUser']}:{security['runAsGroup']}"
    ]
    assert security["fsGroup"] == security["runAsGroup"]


def test_build_sees_all_that_the_wheel_is_made_of() -> None:
    packages = {path.name for path in (ROOT / "braid").iterdir() if path.is_symlink()}
    needed = packages | {"braid", "pyproject.toml", "requirements.lock", PROJECT["project"]["readme"]}
    assert IGNORE[1] == "*", "everything is left out first"
    assert needed <= {line.removeprefix("!") for line in IGNORE if line.startswith("!")}


def test_build_sees_all_that_is_copied() -> None:
    allowed = [line.removeprefix("!") for line in IGNORE if line.startswith("!")]
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        *sources, _ = [word for word in line.split() if not word.startswith("--")]
        for source in sources:
            assert (ROOT / source).exists(), source
            assert source == "." or source in allowed, source
    assert all((ROOT / each).exists() for each in allowed if each != "LICENSE")
    assert not fnmatch.filter(allowed, "*tests*")


def needed(name: str, extra: str = "", seen: set[tuple[str, ...]] | None = None) -> Iterator[str]:
    """Yield the names of all packages that a package needs, with what one of its extras adds."""
    seen = set() if seen is None else seen
    for text in importlib.metadata.requires(name) or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            other = canonicalize_name(requirement.name)
            if (other, *sorted(requirement.extras)) not in seen:
                seen.add((other, *sorted(requirement.extras)))
                yield other
                for each in ("", *requirement.extras):
                    yield from needed(other, each, seen)


def test_image_has_what_the_lock_pins_and_no_development_tools() -> None:
    lock = [Requirement(line) for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()]
    pinned = {canonicalize_name(requirement.name) for requirement in lock}
    assert all(re.fullmatch(r"==[\w.!]+", str(requirement.specifier)) for requirement in lock)
    installed = set(needed(PROJECT["project"]["name"]))
    assert len(installed) > len(PROJECT["project"]["dependencies"])
    assert installed <= pinned
    tools = {
        canonicalize_name(Requirement(each).name)
        for extra in PROJECT["project"]["optional-dependencies"].values()
        for each in extra
    }
    assert not installed & (tools - {PROJECT["project"]["name"]})
    assert {"pytest", "ruff", "mypy", "locust"} <= tools
    for line in re.findall(r"pip[^\n]* install ([^\n]*)", DOCKERFILE):
        assert line.startswith("--constraint requirements.lock ")


def test_last_stage_has_no_build_tools() -> None:
    last = DOCKERFILE.split("\nFROM ")[-1]
    (packages,) = re.findall(r"apt-get install --yes --no-install-recommends ([^\\]*) ", last)
    assert packages.split() == ["openjdk-17-jre-headless", "tini", "curl"]
    assert re.findall(r"pip (\w+)", last) == ["uninstall"]
    assert "--without-pip" in DOCKERFILE.split("\nFROM ")[1]


def test_what_the_chart_starts_is_in_the_image() -> None:
    last = DOCKERFILE.split("\nFROM ")[-1]
    for script in ("start", "spark-executor"):
        assert re.search(rf"^COPY --chmod=755 helm/{script}.sh /usr/local/bin/{script}$", last, re.MULTILINE)
    assert "command: [start, spark-executor]" in EXECUTOR
    assert 'ENTRYPOINT ["start", "braid"]' in last


def test_linter_finds_nothing() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("THE DOCKERFILE IS NOT LINTED: there is no hadolint for this machine beside its Python")
    done = subprocess.run(
        [hadolint, ROOT / "helm" / "Dockerfile"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_chart_deploys_this_version() -> None:
    assert CHART["appVersion"] == __version__
