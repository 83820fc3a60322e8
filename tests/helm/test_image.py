"""Check that the image, the chart and the project agree; building the image needs a container runtime."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "helm" / "Dockerfile").read_text(encoding="utf-8")
IGNORE = (ROOT / "helm" / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VALUES = yaml.safe_load((ROOT / "helm" / "braid" / "values.yaml").read_text(encoding="utf-8"))
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
    packages = {pattern.rstrip("*") for pattern in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]}
    needed = packages | {"pyproject.toml", "requirements.lock", PROJECT["project"]["readme"]}
    assert IGNORE[1] == "*", "everything is left out first"
    assert needed <= {line.removeprefix("!") for line in IGNORE if line.startswith("!")}


def test_lock_pins_every_dependency() -> None:
    def normal(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pinned = {normal(line.split("==")[0]) for line in lock if "==" in line}
    wanted = {normal(re.split(r"[^\w.-]", each, maxsplit=1)[0]) for each in PROJECT["project"]["dependencies"]}
    assert wanted <= pinned


def test_chart_deploys_this_version() -> None:
    assert CHART["appVersion"] == PROJECT["project"]["version"]
