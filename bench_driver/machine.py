"""Say on what was measured: figures without the machine and the versions mean nothing."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from bench_driver.service_process import PROJECT

PACKAGES = ("braid", "pyspark", "pyarrow", "numpy", "pandas", "fastapi", "uvicorn")


def machine() -> dict[str, Any]:
    """Return processor, cores, memory, system and the load before anything was measured."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "usable_cores": len(psutil.Process().cpu_affinity() or []) if hasattr(psutil.Process, "cpu_affinity") else None,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "load_before": [round(load, 2) for load in os.getloadavg()],
    }


def versions() -> dict[str, str | None]:
    """Return the versions of what takes part; None for what is not there."""
    found: dict[str, str | None] = {"python": platform.python_version(), "java": _java(), "commit": _commit()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def _processor() -> str:
    with_names = Path("/proc/cpuinfo")
    if with_names.exists():
        found = re.search(r"^model name\s*:\s*(.+)$", with_names.read_text(errors="replace"), re.MULTILINE)
        if found:
            return found[1].strip()
    return platform.processor() or platform.machine()


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    text = _output([java, "-version"]) if java else None
    found = re.search(r'version "([^"]+)"', text or "")
    return found[1] if found else None


def _commit() -> str | None:
    text = _output(["git", "-C", str(PROJECT), "describe", "--always", "--dirty"])
    return text.strip() if text else None


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout + done.stderr
