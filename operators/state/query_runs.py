"""Query runs: partial aggregates of queries that are added up each alone, in one block for all of an operator.

A :class:`~braid.operators.state.bucket.Bucket` has entries of cells, which queries share. Where queries have little in
common, there are hardly fewer cells than queries, so here each has entries of its own: a *run* of them for each slice.
Runs of one query follow each other by slice, so that a window is one stretch of entries. An entry has the components
that its query needs, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from braid.operators.arrays import Numbers
from braid.operators.predicates.query_set import Bools
from braid.operators.predicates.space_key import ALONE, SpaceKey
from braid.operators.state.bucket import Bucket, flat, narrow, short, to_arrow
from braid.operators.state.components import COUNT_NAME
from braid.operators.state.keys import Digits, key_digits
from braid.sources.core.columns import one_array

Starts = npt.NDArray[np.int64]

_HEADER = b"query runs"


@dataclass(frozen=True)
class QueryRuns:
    """Entries of some queries, and what they mean.

    ``slots`` are those of the queries, shape (queries,); ``slices``, shape (slices, 2), those that occur (µs),
    ascending, and ``latest`` the greatest event time in each, whichever query selected it. The entries of query q and
    slice s are ``[starts[r], starts[r + 1])``, r = q · slices + s; ``key`` is the key of each, a row of ``keys``, which
    no run has twice. ``components`` maps names to one number for each entry of the queries that have it,
    ``holders[name]``, shape (queries,). ``dictionaries`` maps measures to what is behind their ranks. ``epoch`` is the
    one in which this was made.
    """

    operator: str
    epoch: int
    slots: npt.NDArray[np.int64]
    slices: npt.NDArray[np.int64]
    latest: npt.NDArray[np.int64]
    starts: Starts
    key: Numbers
    keys: pa.Table
    components: Mapping[str, Numbers]
    holders: Mapping[str, Bools]
    dictionaries: Mapping[str, pa.Array]

    @property
    def space(self) -> SpaceKey:
        """What stands for the cell space of its queries."""
        return ALONE

    @property
    def entries(self) -> int:
        """How many entries there are."""
        return int(self.starts[-1])

    def starts_of(self, name: str) -> Starts:
        """Return where the numbers of a component of each run begin, as `starts` are for entries."""
        if name not in self._starts:
            lengths = (
                np.diff(self.starts).reshape(len(self.slots), len(self.slices)) * self.holders[name][:, np.newaxis]
            )
            self._starts[name] = np.concatenate([[0], np.cumsum(lengths)])
        return self._starts[name]

    @cached_property
    def _starts(self) -> dict[str, Starts]:
        return {COUNT_NAME: self.starts}

    @cached_property
    def key_digits(self) -> list[Digits]:
        """Its keys as numbers, kept because window after window unites them with others."""
        return key_digits(self.keys)

    @cached_property
    def nbytes(self) -> int:
        """The size of the data in memory."""
        arrays = [self.slots, self.slices, self.latest, self.starts, self.key, *self.components.values()]
        return sum(array.nbytes for array in arrays) + int(self.keys.nbytes)

    def serialize(self) -> bytes:
        """Return it as Arrow IPC streams after each other: slices, queries, runs, keys, dictionaries, components."""
        header: dict[str, Any] = {
            "operator": self.operator,
            "epoch": self.epoch,
            "dictionaries": list(self.dictionaries),
            "components": list(self.components),
        }
        slices = pa.table({"start": self.slices[:, 0], "end": self.slices[:, 1], "latest": self.latest})
        queries = {"slot": self.slots} | {name: self.holders[name] for name in self.components if name != COUNT_NAME}
        dictionaries = [pa.table({"value": values}) for values in self.dictionaries.values()]
        components = [pa.table({"n": to_arrow(narrow(numbers))}) for numbers in self.components.values()]
        tables = (
            slices.replace_schema_metadata({_HEADER: orjson.dumps(header)}),
            pa.table(queries),
            pa.table({"entries": narrow(np.diff(self.starts))}),
            self.keys,
            *dictionaries,
            pa.table({"key": short(self.key, self.keys.num_rows)}),
            *components,
        )
        sink = pa.BufferOutputStream()
        for table in tables:
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
        return sink.getvalue().to_pybytes()

    @classmethod
    def deserialize(cls, data: bytes | pa.Buffer) -> QueryRuns:
        """Read what :meth:`serialize` wrote; numbers are not copied."""
        source = pa.BufferReader(data)

        def table() -> pa.Table:
            return pa.ipc.open_stream(source).read_all()

        slices = table()
        header = orjson.loads(slices.schema.metadata[_HEADER])
        queries, lengths, keys = table(), flat(table().column(0)), table()
        dictionaries = {name: one_array(table().column(0)) for name in header["dictionaries"]}
        key = flat(table().column(0))
        components = {name: flat(table().column(0)) for name in header["components"]}
        holders = {name: np.asarray(one_array(queries.column(name))) for name in queries.column_names if name != "slot"}
        return cls(
            operator=header["operator"],
            epoch=header["epoch"],
            slots=flat(queries.column("slot")),
            slices=np.stack([flat(slices.column("start")), flat(slices.column("end"))], axis=1),
            latest=flat(slices.column("latest")),
            starts=np.concatenate([[0], np.cumsum(lengths)]),
            key=key,
            keys=keys,
            components=components,
            holders={COUNT_NAME: np.ones(queries.num_rows, dtype=np.bool_), **holders},
            dictionaries=dictionaries,
        )


Partials = Bucket | QueryRuns
"""Partial aggregates as source tasks send them and partitions keep them."""


def read_bucket(data: bytes | pa.Buffer) -> Partials:
    """Read a bucket or query runs, whichever was serialized."""
    metadata = pa.ipc.open_stream(pa.BufferReader(data)).schema.metadata
    return QueryRuns.deserialize(data) if _HEADER in (metadata or {}) else Bucket.deserialize(data)
