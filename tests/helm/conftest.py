"""Give the chart's tests a helm, or say clearly that there is none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from helm_binary import ROOT, Helm, is_helm3


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    """Find helm where helm/install-helm.sh looks for it and puts it."""
    on_path = shutil.which("helm")
    candidates = [Path(on_path)] if on_path else []
    for binary in [*candidates, ROOT / ".tools" / "bin" / "helm"]:
        if is_helm3(binary):
            return Helm(binary, tmp_path)
    if os.environ.get("BRAID_SKIP_HELM") == "1":
        pytest.skip("THE CHART IS NOT TESTED: there is no helm v3, and BRAID_SKIP_HELM=1 says to go on without")
    pytest.fail(
        "the chart's tests need helm v3 on PATH or at .tools/bin/helm, and there is none: run helm/install-helm.sh, "
        "or set BRAID_SKIP_HELM=1 to leave the chart untested"
    )
