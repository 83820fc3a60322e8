"""Run the service: one process that answers REST and keeps the session, one child that runs the Spark job.

Order of start: settings → lock on the data directory → Java → port → session → readers → job → REST. What was
started is stopped in reverse after SIGTERM or Ctrl-C. Whatever does not stop within nine seconds is killed: all that
was accepted is on disk. Whatever keeps it from starting is said in one sentence, and the exit status is 1, or 2 where
settings are wrong.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

import braid
from braid.api import interpreter, logs
from braid.api.app import create_app
from braid.api.http.connections import Connection
from braid.api.preconditions import (
    SPARE_DESCRIPTORS,
    CannotStart,
    check_descriptors,
    check_format,
    check_home,
    check_java,
    check_python,
    descriptors,
    lock_data_dir,
)
from braid.api.service import Service
from braid.engine.spark.masters import is_one_machine
from braid.session.log.plan_snapshot import trim_plan_log
from braid.session.settings import SECRET, Settings
from braid.session.settings_sources import load_settings
from braid.session.shared_session import SharedSession
from braid.session.upkeep.job_supervisor import JobSupervisor
from braid.session.upkeep.supervisor import Supervisor
from braid.session.upkeep.watchdog import Watchdog
from braid.sources.core.errors import ServiceError
from braid.sources.core.storage import Storage

GRACEFUL_SECONDS = 2
JOB_STOP_SECONDS = 5.0
DELIVERER_STOP_SECONDS = 4.0
END_SECONDS = 9.0
KEEP_ALIVE_SECONDS = 75
BACKLOG = 2048
TRIM_SECONDS = 15.0
READY_POLL_SECONDS = 0.05
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
NOT_STARTED = 1
WRONG_SETTINGS = 2

log = logging.getLogger("braid.serve")


def serve(flags: Mapping[str, Any]) -> int:
    """Run the service until a signal stops it; return the exit status."""
    try:
        settings = load_settings(flags)
    except ServiceError as error:
        return _say(error, WRONG_SETTINGS)
    try:
        for name in SECRET:  # what is started from here need not know them
            os.environ.pop(f"BRAID_{name.upper()}", None)
        logs.configure(settings.log_level)
        check_python()
        check_descriptors(settings.max_connections)
        with contextlib.ExitStack() as stack:
            storage = open_storage(settings.data_dir)
            stack.enter_context(lock_data_dir(storage))
            check_format(storage)
            check_home(storage)
            check_java()
            listener = stack.enter_context(open_port(settings.host, settings.port))
            service, supervisors = stack.enter_context(running(settings, storage, listener))
            answer(service, listener, partial(_end_in_time, supervisors))
        return 0
    except (ServiceError, CannotStart) as error:
        return _say(error, NOT_STARTED)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        reason = f"The data directory {settings.data_dir!r} must have room: {error.strerror}"
        return _say(f"{reason}; free some and start again.", NOT_STARTED)


def _say(problem: object, status: int) -> int:
    print(f"braid: {problem}", file=sys.stderr)
    return status


def open_storage(data_dir: str) -> Storage:
    """Open the data directory, made if it is new; CannotStart when that is not possible."""
    try:
        storage = Storage(data_dir)
        if storage.local_root is not None:
            storage.local_root.parent.mkdir(parents=True, exist_ok=True)
            storage.local_root.mkdir(mode=0o700, exist_ok=True)  # what streams hold is not for everybody
        return storage
    except (OSError, ValueError, ImportError) as error:  # pyarrow's errors are ValueErrors and OSErrors
        raise CannotStart(
            f"The data directory {data_dir!r} must be a folder or a filesystem URI that can be written: {error}."
        ) from error


def open_port(host: str, port: int) -> socket.socket:
    """Listen on ``host:port``; CannotStart when somebody else does."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # with the protocol named, asyncio sets TCP_NODELAY on what is accepted; without it an answer takes 40 ms
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise CannotStart(
            f"Port {port} on {host} must be free to listen on, but: {error.strerror or error}."
            " Stop what uses it or choose another with --port."
        ) from error
    return listener


@contextlib.contextmanager
def running(
    settings: Settings, storage: Storage, listener: socket.socket
) -> Iterator[tuple[Service, list[Supervisor]]]:
    """Start everything, and give the service and the supervisors of its children; stop it all at the end."""
    settings.confinement.write(storage)
    supervisor, deliverers = supervise(settings, storage), supervise_deliverers(settings, storage)
    limits = settings.stall_seconds, settings.batch_limit_seconds
    watchdog = Watchdog(supervisor, storage, *limits, works_here=is_one_machine(settings.master))
    service = Service.assemble(
        SharedSession(storage, settings), storage, settings, lambda: _why_not_ready(supervisor), watchdog.counts
    )
    stopped = threading.Event()
    url, data_dir = _url(settings.host, listener.getsockname()[1]), _data_dir(settings, storage)
    with contextlib.ExitStack() as stack:
        stack.callback(service.close)
        stack.callback(_stop_all, deliverers, DELIVERER_STOP_SECONDS)
        service.session.deliveries.on_wanted = lambda: _start_all(deliverers)
        service.start()
        stack.callback(supervisor.stop, JOB_STOP_SECONDS)
        supervisor.start()
        stack.callback(stopped.set)
        threading.Thread(target=_trim, args=(service, stopped), name="retention", daemon=True).start()
        threading.Thread(target=watchdog.follow, args=(stopped,), name="watchdog", daemon=True).start()
        threading.Thread(target=_announce, args=(supervisor, url, data_dir, stopped), name="ready", daemon=True).start()
        interpreter.tune()
        log.info(
            "listening; queries run once the job is ready",
            extra={"fields": {"url": url, "data_dir": settings.data_dir}},
        )
        yield service, [supervisor, *deliverers]
        log.info("the service is stopping")


def supervise(settings: Settings, storage: Storage) -> JobSupervisor:
    """Return the supervisor of the Spark job."""
    command = [sys.executable, "-m", "braid.engine.job_main", "--data-dir", _data_dir(settings, storage)]
    command += ["--master", settings.master, "--partitions", str(settings.partitions)]
    command += ["--batch-target-seconds", str(settings.batch_target_seconds)]
    command += ["--replay-share", str(settings.replay_share)]
    command += ["--worker-memory-bytes", str(settings.worker_memory_bytes)]
    command += ["--batch-limit-seconds", str(settings.batch_limit_seconds)]
    command += ["--join-row-limit", str(settings.join_row_limit), "--flush-batches", settings.flush_batches]
    return JobSupervisor(command, storage, _logs(storage) / "job.log", environment=_environment(settings))


def supervise_deliverers(settings: Settings, storage: Storage) -> list[Supervisor]:
    """Return the supervisors of the deliverers, which are started once a query has a sink."""
    supervisors, logs_folder = [], _logs(storage)
    for number in range(1, settings.deliverers + 1):
        command = [sys.executable, "-m", "braid.api.cli.main", "deliver", "--data-dir", _data_dir(settings, storage)]
        command += ["--shard", f"{number}/{settings.deliverers}", "--supervised"]
        log_file = logs_folder / f"deliverer-{number}.log"
        supervisors.append(Supervisor("deliverer", command, log_file, environment=_environment(settings)))
    return supervisors


def _end_in_time(supervisors: list[Supervisor]) -> None:
    """End the service and its children some seconds from now, whatever still goes on."""

    def end() -> None:
        time.sleep(END_SECONDS)
        log.warning(
            "killing the processes of the service that have not stopped", extra={"fields": {"seconds": END_SECONDS}}
        )
        for supervisor in supervisors:
            supervisor.kill()
        os._exit(0)

    threading.Thread(target=end, name="end", daemon=True).start()


def _stop_all(supervisors: list[Supervisor], deadline: float) -> None:
    threads = [threading.Thread(target=supervisor.stop, args=(deadline,)) for supervisor in supervisors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _start_all(supervisors: list[Supervisor]) -> None:
    for supervisor in supervisors:
        supervisor.start()


def _data_dir(settings: Settings, storage: Storage) -> str:
    return settings.data_dir if storage.local_root is None else str(storage.local_root)


def _logs(storage: Storage) -> Path:
    return (storage.local_root or Path(tempfile.mkdtemp(prefix="braid-"))) / "logs"


def _environment(settings: Settings) -> dict[str, str]:
    project = str(Path(braid.__file__).parents[1])
    environment = settings.to_environment()
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [project, os.environ.get("PYTHONPATH")]))
    return environment


class _Server(uvicorn.Server):
    """Uvicorn that ends without raising the signal again, and lets waiting readers go at once."""

    def __init__(self, config: uvicorn.Config, service: Service, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._service = service
        self._on_stop = on_stop

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        def stop(number: int, frame: FrameType | None) -> None:
            if not self._service.notifier.stopping:
                self._on_stop()
            self._service.notifier.stop()
            self.handle_exit(number, frame)

        previous_handlers = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            # what is left to do takes seconds; a second signal must not tear it apart
            for number in previous_handlers:
                signal.signal(number, signal.SIG_IGN)


def server_config(service: Service) -> uvicorn.Config:
    """Return how REST is answered."""
    settings = service.settings
    return uvicorn.Config(
        create_app(service),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
        http=partial(  # type: ignore[arg-type]  # what makes a connection
            Connection,
            patience=settings.request_timeout_seconds,
            limit=max_connections(settings.max_connections),
        ),
        h11_max_incomplete_event_size=settings.max_header_bytes,
        ws="none",
    )


def answer(service: Service, listener: socket.socket, on_stop: Callable[[], None]) -> None:
    """Answer REST on ``listener`` until a signal comes; then ``on_stop`` is called first."""
    _Server(server_config(service), service, on_stop).run(sockets=[listener])


def max_connections(requests: int) -> int:
    """Return how many connections may be open: twice the requests, as far as there are descriptors for them."""
    return max(1, min(2 * requests, descriptors() - SPARE_DESCRIPTORS))


def _why_not_ready(supervisor: JobSupervisor) -> str | None:
    return None if supervisor.is_ready() else supervisor.why_not_ready()


def _announce(supervisor: JobSupervisor, url: str, data_dir: str, stopped: threading.Event) -> None:
    while not stopped.wait(READY_POLL_SECONDS):
        if supervisor.is_ready():
            print(f"Braid is ready at {url} (docs: /docs, data: {data_dir})", flush=True)
            return


def _trim(service: Service, stopped: threading.Event) -> None:
    def results() -> None:
        trimmed = service.retention.trim(time.time_ns() // 1000, service.session.needed_seq)
        if trimmed.held_back:
            service.session.write_snapshot()
        if trimmed.batches:
            log.info(
                "results beyond their retention are removed",
                extra={"fields": {"batches": trimmed.batches, "blocks": trimmed.blocks}},
            )

    def pushes() -> None:
        service.pushes.trim(service.session.streams.ids())

    def plans() -> None:
        trim_plan_log(service.storage, service.session.snapshot_epoch)

    while not stopped.wait(TRIM_SECONDS):
        for trim in (results, pushes, plans):  # one that a full disk stops must not keep it full
            try:
                trim()
            except Exception:  # the service goes on; the next round tries again
                log.exception(
                    "removing what is needed no more failed; it is tried again",
                    extra={"fields": {"what": trim.__name__}},
                )


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
