"""Mixed queries of a benchmark workload in a job without Spark: their tuples, their deployment, and their rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from braid.bench_driver.dialects.braid import query_sql, table_sql
from braid.bench_driver.mixed_query import MixedQuery
from braid.bench_driver.queues.datasets import TIME, find_dataset
from braid.bench_driver.queues.mixed_datasets import TABLE_COLUMNS, static_table
from braid.bench_driver.queues.ring import Ring
from braid.bench_driver.workload import Workload
from braid.engine.data_layout import BATCHES
from braid.engine.plan_log import PlanLog
from braid.engine.planning.offsets import Offset
from braid.operators.lookup.lookup_join import version_path
from braid.router.result_reader import BatchIndex, ResultReader
from braid.session.sql.parser import parse_statement
from braid.session.sql.statements import CreateTable
from braid.sources.connectors.static_table import TableDefinition, TableVersion
from braid.sources.core.record_log import RecordLog
from braid.sources.core.schema import StreamDefinition
from tests.operators.job_in_process import Job
from tests.operators.join_pipeline import Deployed
from tests.session.sql.catalog import define

BEGIN_US = 1_772_300_040_000_000
"""A whole minute, so that windows of all sizes begin then."""
DAY_US = 86_400_000_000
LONGEST_WAIT_US = 250_000
"""The planner waits no longer than this for the ends of windows."""
CHUNK = 1 << 16
PAGE = 100_000


def tuples_of(workload: Workload, count: int, seconds: float, seed: int) -> pa.Table:
    """Return tuples of the workload's stream, evenly spread over so many seconds from `BEGIN_US` on."""
    (stream,) = workload.streams
    ring = Ring(find_dataset(stream.dataset), stream.options, seed, stream.name, count)
    times = BEGIN_US + (np.arange(count) * (seconds * 1_000_000 / count)).astype(np.int64)
    return pa.Table.from_batches([ring.batch(0, times)])


def seconds_of(tuples: pa.Table) -> Iterator[pa.Table]:
    """Yield the tuples of each second, which are in order."""
    seconds = np.asarray(tuples[TIME].cast(pa.int64())) // 1_000_000
    edges = [0, *(np.flatnonzero(np.diff(seconds)) + 1), len(seconds)]
    for begin, end in itertools.pairwise(edges):
        yield tuples.slice(begin, end - begin)


class MixedTables:
    """The static tables of a workload, as the planner of SQL looks for them."""

    def __init__(self, workload: Workload) -> None:
        self._versions = {name: TableVersion(_table(name), static_table(name)) for name in workload.tables}
        self.names = tuple(self._versions)

    def find(self, name: str) -> TableVersion | None:
        """Return a table by its name."""
        return self._versions.get(name)

    def add(self, table: TableVersion) -> None:
        """Do nothing."""

    def version_of(self, table: TableVersion) -> str:
        """Return what lookups call its rows."""
        return table.id

    def __iter__(self) -> Iterator[TableVersion]:
        return iter(self._versions.values())


def _table(name: str) -> TableDefinition:
    statement = parse_statement(table_sql(name, TABLE_COLUMNS[name], f"{name}.parquet"))
    assert isinstance(statement, CreateTable)
    return TableDefinition(f"t-{name}", name, statement.schema, statement.format, statement.options)


def stream_of(workload: Workload) -> StreamDefinition:
    """Return the workload's stream, pushed, with tuples that are never late."""
    (stream,) = workload.streams
    columns = ", ".join(
        f"{name} {kind}" + (" LATENESS INTERVAL '0' SECOND" if name == TIME else "")
        for name, kind in find_dataset(stream.dataset).columns
    )
    return define(f"CREATE STREAM {stream.name} ({columns}) WITH (connector = 'push', format = 'json')", "s-1")


class MixedJob(Job):
    """The job of one workload; query `n` of `queries` is ``qn``."""

    def __init__(self, folder: Path, workload: Workload, queries: Sequence[MixedQuery]) -> None:
        tables, stream = MixedTables(workload), stream_of(workload)
        texts = {f"q{number}": query_sql(query, probe=False) for number, query in enumerate(queries)}
        super().__init__(folder, [stream], texts, tables)
        for version in tables:
            self.storage.put(version_path(version.id), version.data)
        self._stream = stream
        self._batches = BatchIndex(RecordLog(self.storage, BATCHES))
        self._reader = ResultReader(self.storage, self._batches)
        self._cursors: dict[str, str] = {}

    def push_table(self, tuples: pa.Table) -> None:
        """Append tuples, in the chunks that the queue of a benchmark gives."""
        for batch in tuples.combine_chunks().to_batches(CHUNK):
            self.push_batch(
                self._stream.name, pa.RecordBatch.from_arrays(batch.columns, schema=self._stream.schema.arrow)
            )

    def whole(self) -> Offset:
        """Return the end of a first batch that takes all tuples there are."""
        end = self.planner.latest(Offset(), BEGIN_US + DAY_US)
        pushed = {partition: self.pushes[self._stream.name].end() for partition in end.streams[self._stream.id]}
        return Offset(**{**vars(end), "streams": {self._stream.id: pushed}, "waiting": 0})

    def due(self, second: int) -> Offset | None:
        """Return where the next batch ends that there is to run so many seconds after `BEGIN_US`, None for none."""
        now_us = BEGIN_US + second * 1_000_000
        for at_us in (now_us, now_us + LONGEST_WAIT_US):
            if (end := self.planner.latest(self.offset, at_us)) is not self.offset:
                return end
        return None

    def new_rows(self) -> dict[str, pa.Table]:
        """Return the rows that came since they were asked for before, by query."""
        self._batches.advance(self.offset.seq)
        live = PlanLog(self.storage).at(self.offset, self.offset)
        return {query.id: rows for query in live.by_slot.values() if (rows := self._rows_of(Deployed(query))).num_rows}

    def _rows_of(self, deployed: Deployed) -> pa.Table:
        pages, has_more = [], True
        while has_more:
            page = self._reader.read(deployed, self._cursors.get(deployed.id), PAGE)
            self._cursors[deployed.id], has_more = page.cursor, page.has_more
            pages.append(page.table)
        return pa.concat_tables(pages)
