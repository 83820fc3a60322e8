"""Run a deliverer: a process that brings rows from the result log to the sinks of queries."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any

from braid.api import logs
from braid.router.delivery.deliverer import Deliverer
from braid.router.delivery.shards import DeliveryShard
from braid.session.settings_sources import load_settings
from braid.sources.core.errors import NotAllowed, ServiceError
from braid.sources.core.storage import Storage

STOP_SECONDS = 3.5

log = logging.getLogger("braid.deliverer")


def deliver(flags: Mapping[str, Any], shard: str, supervised: bool) -> int:
    """Deliver the queries of a shard until a signal stops it; return the exit status.

    A ``supervised`` one ends when its standard input does: then the service is gone.
    """
    try:
        settings = load_settings(flags)
        logs.configure(settings.log_level)
        storage = Storage(settings.data_dir)
        if storage.local_root is not None and not storage.local_root.is_dir():
            raise NotAllowed(
                f"The data directory {settings.data_dir!r} does not exist. Give that of a service as --data-dir."
            )
        deliverer = Deliverer(storage, DeliveryShard.parse(shard), settings.sink_folder)
    except (ServiceError, OSError, ValueError, ImportError) as error:
        print(f"braid: {error}", file=sys.stderr)
        return 1
    stopping = threading.Event()

    def stop(*_: object) -> None:
        if not stopping.is_set():
            stopping.set()
            # a sink that hangs must not keep the process
            timer = threading.Timer(STOP_SECONDS, os._exit, args=(0,))
            timer.daemon = True
            timer.start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    if supervised:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=_watch_input, args=(stop,), daemon=True).start()
    log.info("the deliverer has started", extra={"fields": {"data_dir": settings.data_dir, "shard": shard}})
    deliverer.run(stopping)
    return 0


def _watch_input(stop: Any) -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    stop()
