"""A real Prometheus and its tool for tests, out of Debian's package.

`tests/kit/install.sh` unpacks it into ~/.cache/braid where it may; where it cannot be had, tests are skipped and say
so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.kit.servers import INSTALL, Server
from tests.kit.service import free_port

FOLDER = Path(os.environ.get("BRAID_TEST_PROMETHEUS", Path.home() / ".cache" / "braid" / "prometheus"))


def program(name: str) -> str:
    """Return the path of a program of the package; skip the test when it is not there."""
    unpacked = FOLDER / "usr" / "bin" / name
    path = shutil.which(name) or (str(unpacked) if unpacked.exists() else None)
    if path is None:
        pytest.skip(f"Prometheus must be there to be tested with; {INSTALL}, out of Debian's package `prometheus`")
    return path


def promtool(*arguments: str, text: bytes = b"") -> subprocess.CompletedProcess[str]:
    """Run Prometheus' tool; what it says is in both outputs."""
    done = subprocess.run([program("promtool"), *arguments], input=text, capture_output=True, timeout=60, check=False)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


class Prometheus(Server):
    """Scrapes one service each second and evaluates rules as often; `job` is `braid`."""

    def __init__(self, target: str, rules: str) -> None:
        self._program = program("prometheus")
        super().__init__("prometheus")
        self.url = f"http://127.0.0.1:{free_port()}"
        (self.folder / "rules.yaml").write_text(rules, encoding="utf-8")
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [
                {"job_name": "braid", "static_configs": [{"targets": [target.removeprefix("http://")]}]}
            ],
        }
        (self.folder / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        self.start()

    def command(self) -> list[str]:
        """Return the command."""
        listen = self.url.removeprefix("http://")
        files = [f"--config.file={self.folder / 'prometheus.yaml'}", f"--storage.tsdb.path={self.folder / 'data'}"]
        return [self._program, *files, f"--web.listen-address={listen}"]

    def answers(self) -> bool:
        """Whether it takes requests."""
        try:
            return httpx.get(f"{self.url}/-/ready", timeout=5).is_success
        except httpx.TransportError:
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that an expression gives now; an AssertionError says what is wrong with it."""
        return list(self._get("query", query=expression)["result"])

    def alerts(self) -> dict[str, str]:
        """Return the state of the alerts that are pending or firing, by name."""
        return {alert["labels"]["alertname"]: alert["state"] for alert in self._get("alerts")["alerts"]}

    def rules(self) -> list[dict[str, Any]]:
        """Return the rules that are loaded."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str, **parameters: str) -> dict[str, Any]:
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=30)
        assert answer.is_success, answer.text
        data: dict[str, Any] = answer.json()["data"]
        return data
