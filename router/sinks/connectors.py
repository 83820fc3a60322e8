"""The sinks that a query can be declared with, and reading what it says of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from braid.operators.queries import Query
from braid.router.sinks import clickhouse, file, kafka, postgres, webhook
from braid.router.sinks.options import flush_rows, flush_seconds, max_retries, sets_aside
from braid.router.sinks.sink import DelivererIdentity, Destination, SinkConnector
from braid.sources.core.confinement import Confinement
from braid.sources.core.errors import NotAllowed

LOG = "log"
CONNECTOR = "connector"


@dataclass(frozen=True)
class Kind:
    """A connector, and when its sinks write unless a query says otherwise."""

    connector: SinkConnector
    flush_rows: int
    flush_seconds: float


KINDS: Mapping[str, Kind] = {
    module.NAME: Kind(module, module.FLUSH_ROWS, module.FLUSH_SECONDS)
    for module in (clickhouse, file, kafka, postgres, webhook)
}


@dataclass(frozen=True)
class SinkDefinition:
    """What a query says of its sink; ``options`` are those besides ``connector``."""

    connector: str
    options: Mapping[str, str]

    @property
    def flush_rows(self) -> int:
        """How many rows are enough to write at once, and the most that are."""
        return flush_rows(self.options, self._kind.flush_rows)

    @property
    def flush_seconds(self) -> float:
        """How long rows may wait for more."""
        return flush_seconds(self.options, self._kind.flush_seconds)

    @property
    def max_retries(self) -> int:
        """How often rows that are refused are tried again before some are set aside."""
        return max_retries(self.options)

    @property
    def sets_aside(self) -> bool:
        """Whether rows that are refused for good are set aside, rather than tried until they are taken."""
        return sets_aside(self.options)

    @property
    def destination(self) -> str:
        """What is equal for sinks that share a destination."""
        return f"{self.connector}\n{self._kind.connector.destination(self.options)}"

    def validate(self, query: Query, confinement: Confinement) -> None:
        """Check the options for a query; NotAllowed says what is supported instead."""
        try:
            self._kind.connector.validate(self.options, query, confinement)
            flush_rows(self.options, self._kind.flush_rows)
            flush_seconds(self.options, self._kind.flush_seconds)
            max_retries(self.options)
            sets_aside(self.options)
        except ValueError as problem:
            raise NotAllowed(f"The options of sink {self.connector!r} must be readable, but: {problem}.") from None

    def connect(self, deliverer: DelivererIdentity) -> Destination:
        """Return the destination. Raises SinkDown."""
        return self._kind.connector.connect(self.options, deliverer)

    def to_json(self) -> dict[str, str]:
        """Return what a query says: the connector and its options."""
        return {CONNECTOR: self.connector, **self.options}

    @property
    def _kind(self) -> Kind:
        return KINDS[self.connector]


def read_sink(value: Any) -> SinkDefinition | None:
    """Read the ``sink`` of a query; None, from None or ``"log"``, is the result log alone."""
    if value is None or value == LOG:
        return None
    names = ", ".join(map(repr, KINDS))
    if not isinstance(value, Mapping):
        raise NotAllowed(
            f'The sink of a query must be "{LOG}" or an object such as {{"connector": "file", "path": "rows"}}, with'
            f" a connector of {names}; got {value!r}."
        )
    for name, option in value.items():
        if not isinstance(name, str) or not isinstance(option, (str, int, float)):
            raise NotAllowed(
                f"An option of a sink must be a text, a number or a truth value; got {name!r}: {option!r}."
            )
    options = {name: _text(option) for name, option in value.items()}
    connector = options.pop(CONNECTOR, None)
    if connector is None or connector not in KINDS:
        raise NotAllowed(f"The connector of a sink must be one of {names}; got {connector!r}.")
    return SinkDefinition(connector, options)


def _text(value: str | float) -> str:
    try:
        return str(value).lower() if isinstance(value, bool) else str(value)
    except ValueError:
        raise NotAllowed("A number among the options of a sink must have fewer digits.") from None
