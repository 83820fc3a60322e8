"""Two streams, and static tables to join them with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pyarrow as pa

from braid.sources.connectors.static_table import TableDefinition, TableVersion
from braid.sources.core.schema import (
    BIGINT,
    DOUBLE,
    INT,
    TIMESTAMP,
    VARCHAR,
    Field,
    Schema,
    StreamDefinition,
    StreamSchema,
)

PURCHASES = StreamSchema(
    (Field("user_id", BIGINT), Field("pack", INT), Field("price", DOUBLE), Field("time", TIMESTAMP)), "time", 0
)
CLICKS = StreamSchema((Field("user_id", BIGINT), Field("ad", BIGINT), Field("time", TIMESTAMP)), "time", 0)
CATALOG = {
    name: StreamDefinition(f"s-{name}", name, schema, "push", "json")
    for name, schema in (("purchases", PURCHASES), ("clicks", CLICKS))
}


def version(name: str, fields: tuple[Field, ...], rows: dict[str, list[object]]) -> TableVersion:
    schema = Schema(fields)
    definition = TableDefinition(f"t-{name}", name, schema, "csv")
    return TableVersion(definition, pa.table(rows, schema=schema.arrow))


class Tables:
    """Packs, brands of packs, and a table in which one key has too many rows."""

    versions: ClassVar = {
        "packs": version(
            "packs",
            (Field("pack", BIGINT), Field("name", VARCHAR), Field("brand", INT)),
            {"pack": [1, 2, 2], "name": ["a", "b", None], "brand": [1, 1, 2]},
        ),
        "brands": version("brands", (Field("brand", INT), Field("label", VARCHAR)), {"brand": [1], "label": ["x"]}),
        "many": version("many", (Field("pack", INT),), {"pack": [7] * 1001}),
    }
    names: Sequence[str] = list(versions)

    def find(self, name: str) -> TableVersion | None:
        return self.versions.get(name.lower())

    def add(self, table: TableVersion) -> None:
        """Do nothing."""

    def version_of(self, table: TableVersion) -> str:
        """Return what lookups call its rows."""
        return table.id
