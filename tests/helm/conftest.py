"""Give the chart's tests a helm, or say clearly that there is none."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from helm_binary import Helm, is_helm3


@pytest.fixture(scope="session")
def helm_binary() -> Path:
    """Find helm beside this Python, where its package puts it, or on PATH."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    binary = shutil.which("helm", path=folders)
    if binary is not None and is_helm3(Path(binary)):
        return Path(binary)
    if os.environ.get("BRAID_SKIP_HELM") == "1":
        pytest.skip("THE CHART IS NOT TESTED: there is no helm v3, and BRAID_SKIP_HELM=1 says to go on without")
    pytest.fail(
        "the chart's tests need helm v3 on PATH, and there is none (`make setup` brings one for Linux on x86-64): "
        "install it, or set BRAID_SKIP_HELM=1 to leave the chart untested"
    )


@pytest.fixture
def helm(helm_binary: Path, tmp_path: Path) -> Helm:
    """Return helm with a directory of the test's own."""
    return Helm(helm_binary, tmp_path)
