"""What statements may make the service read, write and call.

The service writes its confinement to the data directory, where every process that works for it finds it: the job, its
workers on other machines, and deliverers.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import Any

from braid.sources.core.errors import ServiceError
from braid.sources.core.locations import NOWHERE
from braid.sources.core.outgoing import EVERYWHERE, Outgoing
from braid.sources.core.storage import Storage

FILE = "confinement.json"

log = logging.getLogger("braid.confinement")


@dataclass(frozen=True)
class Confinement:
    """``table_folder`` is what files of streams and tables must lie below, ``sink_folder`` those of sinks.

    Empty, they may lie anywhere; :data:`braid.sources.core.locations.NOWHERE` allows none. Never may they lie in or
    above ``data_folder``, that of the service, which each process knows by itself.
    """

    table_folder: str = ""
    sink_folder: str = ""
    outgoing: Outgoing = EVERYWHERE
    data_folder: str = field(default="", compare=False)

    @classmethod
    def of(cls, storage: Storage) -> Confinement:
        """Return the confinement of the service with this data directory, which refuses all where it cannot be read."""
        try:
            return replace(cls.from_json(storage.get_json(FILE)), data_folder=storage.location)
        except (FileNotFoundError, ServiceError, KeyError, TypeError) as problem:
            log.warning(
                "no file may be read or written and no call made, until a start can read %s: %s",
                FILE,
                problem,
            )
            return cls(NOWHERE, NOWHERE, Outgoing(()), storage.location)

    def write(self, storage: Storage) -> None:
        """Confine so all processes of the service that open something from now on."""
        storage.put_json(FILE, self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form."""
        return {
            "table_folder": self.table_folder,
            "sink_folder": self.sink_folder,
            "outgoing": list(self.outgoing.allowed),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Confinement:
        """Read what :meth:`to_json` wrote."""
        return cls(value["table_folder"], value["sink_folder"], Outgoing(tuple(value["outgoing"])))


OPEN = Confinement()
"""Nothing is confined."""
