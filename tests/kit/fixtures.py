"""Pytest fixtures of the test kit; load with `pytest_plugins = ["tests.kit.fixtures"]`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit.client import Api
from tests.kit.service import PROGRAM, RunningService

if TYPE_CHECKING:
    from tests.kit.kafka import Broker
    from tests.kit.servers import ApacheKafka, ClickHouse, Postgres

FreshService = Callable[..., RunningService]

# fixtures that take long to start, each once for a file's tests
SERVERS = {"postgres", "clickhouse", "apache_kafka", "spark_session"}
# changelogs are cut quickly, so that a test does not wait for them
ENVIRONMENT = {"BRAID_CHANGELOG_TIMEOUT_SECONDS": "0.1"}

_started_by_test: list[RunningService] = []
_of_session: list[RunningService] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the tail of the log of every running service to a failed test's report."""
    report = yield
    if report.failed and item.get_closest_marker("service") is not None:
        for service in _started_by_test + _of_session:
            report.sections.append((f"service log {service.log}", service.log_tail()))
    return report


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several processes share the tests, give those that share a service to one of them."""
    for item in items:
        if item.get_closest_marker("service") is not None:
            shared = "service" in getattr(item, "fixturenames", ())
            item.add_marker(pytest.mark.xdist_group("service" if shared else item.nodeid.partition("::")[0]))
        elif not SERVERS.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """One service for the whole test session: tests use streams with unique names."""
    folder = tmp_path_factory.mktemp("service")
    running = RunningService(folder / "data", folder / "service.log", ENVIRONMENT)
    _of_session.append(running)
    try:
        running.start()
        yield running
        running.stop()
    finally:
        running.end_everything()
        _of_session.remove(running)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka broker for the whole test session: tests use topics of their own."""
    from tests.kit.kafka import Broker  # its packages are loaded where they are needed only

    running = Broker(tmp_path_factory.mktemp("kafka") / "broker.log")
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server for the whole test session."""
    from tests.kit.servers import Postgres

    running = Postgres()
    yield running
    running.remove()


@pytest.fixture(scope="session")
def clickhouse() -> Iterator[ClickHouse]:
    """A ClickHouse server for the whole test session."""
    from tests.kit.servers import ClickHouse

    running = ClickHouse()
    yield running
    running.remove()


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[ApacheKafka]:
    """An Apache Kafka broker for the whole test session."""
    from tests.kit.servers import ApacheKafka

    running = ApacheKafka()
    yield running
    running.remove()


@pytest.fixture
def api(service: RunningService) -> Iterator[Api]:
    """A REST client of the session's service; what it creates goes after the test."""
    with Api(service.url) as client:
        yield client
        client.drop_created()


@pytest.fixture
def fresh_service(tmp_path_factory: pytest.TempPathFactory) -> FreshService:
    """Start services of one's own, each on its own data directory or a given one, with extra environment."""

    def start(data_dir: Path | None = None, program: str = PROGRAM, **environment: str) -> RunningService:
        folder = tmp_path_factory.mktemp("fresh-service")
        data_dir = data_dir or folder / "data"
        running = RunningService(data_dir, folder / "service.log", {**ENVIRONMENT, **environment}, program)
        _started_by_test.append(running)
        return running.start()

    return start


@pytest.fixture(autouse=True)
def end_what_the_test_started() -> Iterator[None]:
    """End every service that a test started, whether it passed or failed."""
    yield
    while _started_by_test:
        _started_by_test.pop().end_everything()


@pytest.fixture(scope="module", params=["in cells", "some alone"])
def some_alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a module's tests with all aggregations in cells, and with those in even slots each alone."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "some alone":
            patch.setattr("tests.operators.pipeline.is_alone", lambda slot: slot % 2 == 0)
        yield
