"""What statements may make the service read, write and call.

The service writes its confinement to the data directory, where every process that works for it finds it: the job, its
workers on other machines, and deliverers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from sources.outgoing import EVERYWHERE, Outgoing
from sources.storage import Storage

FILE = "confinement.json"


@dataclass(frozen=True)
class Confinement:
    """``table_folder`` is what files of streams and tables must lie below, ``sink_folder`` those of sinks.

    Empty, they may lie anywhere; :data:`sources.locations.NOWHERE` allows none.
    """

    table_folder: str = ""
    sink_folder: str = ""
    outgoing: Outgoing = EVERYWHERE

    @classmethod
    def of(cls, storage: Storage) -> Confinement:
        """Return the confinement of the service whose data directory this is; none when it was never written."""
        if not storage.exists(FILE):
            return cls()
        return cls.from_json(storage.get_json(FILE))

    def write(self, storage: Storage) -> None:
        """Confine so all processes of the service that open something from now on."""
        storage.put(FILE, orjson.dumps(self.to_json()))

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
