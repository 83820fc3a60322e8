"""Fixtures of the tests of sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from braid.sources.core.confinement import OPEN
from braid.sources.core.storage import Storage
from tests.kit.kafka import Topics
from tests.kit.servers import ApacheKafka
from tests.sources.file_folders import Files


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """A local data-dir, in which the service has said that nothing is confined."""
    storage = Storage(str(tmp_path / "data"))
    OPEN.write(storage)
    return storage


@pytest.fixture
def topics(apache_kafka: ApacheKafka) -> Topics:
    """Topics of an Apache Kafka."""
    return Topics(apache_kafka.servers)


@pytest.fixture
def files(tmp_path: Path, storage: Storage) -> Files:
    """A folder that a stream reads."""
    return Files(tmp_path / "events", storage)
