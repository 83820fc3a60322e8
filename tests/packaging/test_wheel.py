"""What `pip install` of the project puts into an environment: one package, which gets along with others."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.kit.service import RunningService, free_port
from tests.kit.waiting import wait_until

TOP = Path(__file__).resolve().parents[2]
NEIGHBOURS = ("api", "client", "session", "sources", "engine", "operators", "optimizer", "router", "bench_driver")

MAX_INSTALLED_BYTES = 10_000_000
PROGRAM = """
from braid.client import Client

with Client(timeout=60) as braid:
    braid.create_stream(
        "CREATE STREAM departures (delay DOUBLE, time TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH (connector = 'push')"
    )
    braid.push("departures", [{"delay": 33.5, "time": "2026-01-01T00:00:00Z"}, {"time": "2026-01-01T00:00:01Z"}])
    braid.end_stream("departures")
    with braid.query("SELECT delay FROM departures WHERE delay > 10", start="earliest") as query:
        print([row["delay"] for row in query])
        try:
            query.to_arrow()
        except ImportError as error:
            print(error)
    braid.drop_stream("departures", cascade=True)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of what is committed or changed: a build leaves files in its folder."""
    source = tmp_path_factory.mktemp("source")
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=TOP,
        capture_output=True,
        check=True,
    ).stdout
    copy = subprocess.run(["tar", "-c", "--null", "-T", "-"], cwd=TOP, input=names, capture_output=True, check=True)
    subprocess.run(["tar", "-x"], cwd=source, input=copy.stdout, check=True)
    return source


def built(project: Path, folder: Path) -> Path:
    pip_wheel = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", str(folder), str(project)]
    subprocess.run(pip_wheel, check=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def client_wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(source / "client", tmp_path_factory.mktemp("client-wheel"))


def files_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_a_wheel_has_one_package_at_the_top(wheel: Path) -> None:
    names = files_in(wheel)
    assert {name.split("/")[0] for name in names} == {"braid"}
    assert {
        "braid/py.typed",
        "braid/api/page/static/index.html",
        "braid/bench_driver/workloads/one-key.toml",
    } <= names
    assert not any("__pycache__" in name or "/tests/" in name for name in names)


@pytest.mark.long
def test_the_wheel_of_the_client_has_the_same_client_and_nothing_else(wheel: Path, client_wheel: Path) -> None:
    names = files_in(client_wheel)
    assert names == {name for name in files_in(wheel) if name.startswith("braid/client/")} | {
        "braid/__init__.py",
        "braid/py.typed",
    }
    assert client_wheel.name.split("-")[1] == wheel.name.split("-")[1]  # the version


@pytest.mark.service
@pytest.mark.long
def test_an_installed_client_needs_no_spark_to_push_and_query(
    client_wheel: Path, service: RunningService, tmp_path: Path
) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "-c", str(TOP / "requirements.lock")]
    subprocess.run([*pip, str(client_wheel)], check=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    assert not [*site.glob("pyspark*"), *site.glob("pyarrow*")]
    assert sum(path.stat().st_size for path in site.rglob("*") if path.suffix != ".pyc") < MAX_INSTALLED_BYTES
    environment = {"BRAID_URL": service.url, "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [str(python), "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.splitlines() == [
        "[33.5]",
        "a result as Arrow needs pyarrow: pip install pyarrow",
    ], done.stderr


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Path:
    """Return a folder where the wheel is installed beside packages that have the names of Braid's folders."""
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), str(wheel)], check=True
    )
    for name in NEIGHBOURS:
        (site / name).mkdir()
        (site / name / "__init__.py").write_text(f"raise ImportError('{name} is a package of somebody else')\n")
    return site


@pytest.fixture
def url(installed: Path, tmp_path: Path) -> Iterator[str]:
    """Run the service that is installed, somewhere else than in the checkout."""
    port = free_port()
    program = [sys.executable, str(installed / "bin" / "braid"), "serve", "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": str(installed), "NUMBA_CACHE_DIR": str(TOP / ".tools" / "wheel-kernels")}
    with subprocess.Popen([*program, "--data-dir", str(tmp_path / "data")], cwd=tmp_path, env=environment) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.service
@pytest.mark.long
def test_an_installed_service_runs_a_query_beside_packages_of_the_same_names(url: str) -> None:
    def ready() -> bool:
        try:
            return httpx.get(f"{url}/readyz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def rows() -> list[dict[str, object]]:
        return httpx.get(f"{url}/queries/q-1/results").json()["rows"]

    wait_until(ready, 300, "the installed service is ready")
    with httpx.Client(base_url=url, timeout=60) as client:
        declared = (
            "CREATE STREAM taps (device VARCHAR, time TIMESTAMP LATENESS INTERVAL '0' SECOND)"
            " WITH (connector = 'push', format = 'json')"
        )
        client.post("/sql", json={"sql": declared}).raise_for_status()
        asked = "SELECT device, COUNT(*) AS n FROM taps [RANGE 10 SECONDS] GROUP BY device"
        client.post("/queries?wait=60", json={"sql": asked}).raise_for_status()
        taps = [{"device": "a", "time": f"2026-01-01T12:00:{second}Z"} for second in ("01", "02", "30")]
        client.post("/streams/taps/events", json=taps).raise_for_status()
    assert [(row["device"], row["n"]) for row in wait_until(rows, 60, "the query has rows")] == [("a", 2)]
