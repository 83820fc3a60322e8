"""How far behind the job is: for each stream, the inputs that its source has and no batch has read."""

from __future__ import annotations

import logging
import time

from session.shared_session import SharedSession
from sources.connectors.connector import Connector
from sources.connectors.registry import open_connector
from sources.core.errors import BraidError
from sources.core.storage import Storage

log = logging.getLogger("braid.lag")


class Lag:
    """Tells the lag of each stream; the connectors that it asks stay open from call to call."""

    def __init__(self, session: SharedSession, storage: Storage) -> None:
        self._session = session
        self._storage = storage
        self._connectors: dict[str, Connector] = {}

    def read(self) -> dict[str, int]:
        """Return the lag of each stream by name; a stream whose source does not answer is left out."""
        definitions = self._session.streams.definitions()
        offsets = {stream["id"]: stream["offsets"] for stream in self._session.streams.describe_all()}
        now_us = time.time_ns() // 1000
        lags = {}
        for definition in definitions:
            try:
                connector = self._connectors.get(definition.id)
                if connector is None:
                    connector = self._connectors[definition.id] = open_connector(definition, self._storage)
                available = connector.available(now_us)
            except (BraidError, OSError) as error:
                log.debug("lag unknown", extra={"fields": {"stream": definition.name, "error": str(error)}})
                continue
            read_offsets = offsets.get(definition.id, {})
            lags[definition.name] = sum(
                max(0, extent.end - read_offsets.get(partition, extent.start))
                for partition, extent in available.items()
            )
        for stream in self._connectors.keys() - offsets.keys():
            self._connectors.pop(stream, None)
        return lags
