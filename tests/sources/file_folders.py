"""Folders of files for tests: a stream over each, files as old as they are told to be."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from braid.sources.connectors.connector import Chunk, Connector, Extent
from braid.sources.connectors.files.connector import FileConnector
from braid.sources.connectors.registry import open_connector, open_for_planner, validate_definition
from braid.sources.core.confinement import Confinement
from braid.sources.core.schema import INT, TIMESTAMP, VARCHAR, Field, StreamDefinition, StreamSchema
from braid.sources.core.storage import Storage
from tests.kit.waiting import wait_until

SCHEMA = StreamSchema((Field("k", INT), Field("s", VARCHAR), Field("t", TIMESTAMP)), "t", 0)
START = datetime(2026, 1, 1)
LONG_AGO = 1_700_000_000
DISCOVERED = 10.0


def line(k: int, s: str | None = "é") -> bytes:
    return orjson.dumps({"k": k, "s": s, "t": f"{START + timedelta(seconds=k)}"}) + b"\n"


def row(k: int, s: str = "é") -> bytes:
    return f"{k},{s},{START + timedelta(seconds=k)}\n".encode()


def parquet(path: Path, numbers: range, rows_in_group: int = 1000) -> None:
    times = pa.array([START + timedelta(seconds=k) for k in numbers], pa.timestamp("us"))
    table = pa.table({"t": times, "k": pa.array(numbers, pa.int32()), "s": ["é"] * len(numbers), "more": times})
    pq.write_table(table, path, row_group_size=rows_in_group)


class Files:
    """A folder and the stream that reads it; files are as old as they are told to be."""

    def __init__(self, folder: Path, storage: Storage) -> None:
        self.folder = folder
        self.storage = storage
        folder.mkdir()

    def put(self, name: str, content: bytes, age: int = 0) -> Path:
        """Write a file that was last changed ``age`` seconds after a moment long ago."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}")
        hidden.write_bytes(content)
        self.set_age(hidden, age)
        return hidden.rename(path)

    @staticmethod
    def set_age(path: Path, age: int) -> None:
        os.utime(path, (LONG_AGO + age, LONG_AGO + age))

    def definition(self, form: str = "json", created_us: int = 0, **options: str) -> StreamDefinition:
        all_options = {"path": str(self.folder), **options}
        validate_definition("readings", SCHEMA, "file", form, all_options)
        return StreamDefinition("s-1", "readings", SCHEMA, "file", form, all_options, created_us=created_us)

    def planner(self, form: str = "json", table_folder: str = "", **options: str) -> Connector:
        Confinement(table_folder).write(self.storage)
        return open_for_planner(self.definition(form, **options), self.storage)

    def reader(self, form: str = "json", **options: str) -> FileConnector:
        opened = open_connector(self.definition(form, **options), self.storage)
        assert isinstance(opened, FileConnector)
        return opened


def discovered(planner: Connector, end: int) -> None:
    """Return once records up to ``end`` were discovered."""
    wait_until(lambda: planner.available(0) == {"0": Extent(0, end)}, DISCOVERED, lambda: told(planner, end))


def told(planner: Connector, end: int) -> str:
    return f"records up to {end} are discovered, got {planner.available(0)}; {planner.problem}"


def problem(planner: Connector) -> str:
    """Return what the planner says is wrong, once it does; then nothing is available."""
    message = wait_until(lambda: (planner.available(0), planner.problem)[1], DISCOVERED, "something is wrong")
    assert planner.available(0) == {}
    return str(message)


def keys(chunks: list[Chunk]) -> list[int]:
    values: list[int] = pa.Table.from_batches([c.tuples for c in chunks], SCHEMA.arrow).column("k").to_pylist()
    return values


def read(reader: Connector, start: int, end: int) -> list[int]:
    return keys(list(reader.read("0", start, end)))


def put_json(files: Files, name: str, numbers: range, age: int) -> None:
    files.put(name, b"".join(map(line, numbers)), age)


def put_csv(files: Files, name: str, numbers: range, age: int) -> None:
    files.put(name, b"k,s,t\n" + b"".join(map(row, numbers)), age)


def put_parquet(files: Files, name: str, numbers: range, age: int) -> None:
    hidden = files.folder / f"_{name}"
    parquet(hidden, numbers, 7)
    files.set_age(hidden, age)
    hidden.rename(files.folder / name)


WRITERS = {"json": put_json, "csv": put_csv, "parquet": put_parquet}
