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

from braid import __version__
from braid.bench_driver.child import PROJECT

PACKAGES = ("pyspark", "pyarrow", "numpy", "pandas", "fastapi", "uvicorn")


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
    by_name: dict[str, str | None] = {
        "python": platform.python_version(),
        "java": _java(),
        "braid": __version__,
        "commit": _commit(),
    }
    for package in PACKAGES:
        try:
            by_name[package] = version(package)
        except PackageNotFoundError:
            by_name[package] = None
    return by_name


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        match = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(errors="replace"), re.MULTILINE)
        if match:
            return match[1].strip()
    return platform.processor() or platform.machine()


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    text = _output([java, "-version"]) if java else None
    match = re.search(r'version "([^"]+)"', text or "")
    return match[1] if match else None


def _commit() -> str | None:
    text = _output(["git", "-C", str(PROJECT), "describe", "--always", "--dirty"])
    return text.strip() if text else None


def _output(command: list[str]) -> str | None:
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout + process.stderr
