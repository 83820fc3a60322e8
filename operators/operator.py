"""The protocol of a kind of shared operator: what selections, aggregations, sessions and joins are to the job.

A *kind* has a folder with all that is particular to it: which operator runs a query, both sides of the shuffle, and how
rows of a query are read out of blocks. :mod:`braid.operators.kinds` lists the kinds. Source tasks, partitions, the
reader of results and the plan go through that list and name no kind.

Each side is asked once for a chunk, or a batch, *and kind*, with all operators of the kind, so that what many operators
have in common is done once:

- The *source side* of an input takes chunks of tuples. It gives result blocks, buckets by key group, and tuples that
  rows of joins will be made of.
- The *partition side* fires windows from what a partition holds, says which of that is needed still, and merges it.
- The *reader* returns rows of a query from the blocks that name it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braid.operators import kernels
from braid.operators.arrays import Places
from braid.operators.block_files import BlockFiles, BlockPart
from braid.operators.expressions import Expression
from braid.operators.live_queries import LiveQueries, LiveQuery
from braid.operators.predicates.analysis import Predicate
from braid.operators.predicates.conditions import Conditions
from braid.operators.predicates.index import PredicateIndex, TupleCells
from braid.operators.predicates.space_key import SpaceKey
from braid.operators.query_parts import Measure
from braid.operators.report import Work
from braid.operators.state.query_runs import Partials
from braid.operators.state.sliced_tuples import EncodedMeasures
from braid.operators.state.tuple_bucket import IndexedTuples, TupleBucket
from braid.operators.tuples import Tuples
from braid.operators.windowing.emission_log import EmissionLog
from braid.operators.windowing.firing_limit import Ends
from braid.sources.core.schema import StreamDefinition
from braid.sources.core.storage import Storage

Reached = Mapping[str, int | None]
Mask = npt.NDArray[np.bool_]


class ResultBlock(Protocol):
    """Rows of some queries, to be written as a file that the batch record names."""

    def write(self, storage: Storage, seq: int, links: dict[str, str]) -> dict[str, Any]:
        """Write the block of batch ``seq`` and return its entry of the batch record.

        ``links`` has the paths by which blocks of the batch refer to files of tuples
        (:func:`braid.operators.state.bucket_store.put_join_block`).
        """


@dataclass(frozen=True)
class Input:
    """What the operators over one input are compiled for: a stream after its lookups, at an epoch.

    ``words`` is the width of query-sets, ``groups`` the number of key groups; ``index`` has the predicates of all
    queries over the input.
    """

    stream: StreamDefinition
    name: str
    epoch: int
    words: int
    groups: int
    index: PredicateIndex


@dataclass(frozen=True)
class Arrived:
    """A chunk of tuples, their event times (µs) and cells, the numbers that they add to measures, and conditions."""

    tuples: Tuples
    times: npt.NDArray[np.int64]
    cells: TupleCells
    measures: EncodedMeasures
    conditions: Conditions

    def take(self, rows: Places, names: Iterable[str]) -> Arrived:
        """Return some of them, with the columns ``names``."""
        tuples = self.tuples.take(rows, names)
        times, cells = kernels.take(self.times, rows), self.cells.take(rows)
        return Arrived(tuples, times, cells, EncodedMeasures.of_tuples(tuples), Conditions(tuples))


@dataclass
class ChunkOutput:
    """What a chunk of one input gave: result blocks, buckets with their key groups, and tuples for rows of joins."""

    blocks: list[ResultBlock] = field(default_factory=list)
    buckets: list[tuple[int, Partials]] = field(default_factory=list)
    indexed: IndexedTuples | None = None
    failures: dict[str, str] = field(default_factory=dict)


class SourceSide(Protocol):
    """All operators of one kind over one input, in source tasks.

    ``queries`` are those that run in them, as they are evaluated over the input. The index of the input has their
    predicates when ``compile`` is called, once, before anything below.
    """

    @property
    def queries(self) -> Sequence[LiveQuery]: ...

    def compile(self, source: Input) -> None:
        """Work out what follows from the queries and the input."""

    @property
    def columns(self) -> Collection[str]:
        """The columns that are read besides those of predicates, keys and measures."""

    @property
    def spread_by(self) -> Collection[str]:
        """The columns by which tuples may be spread over partitions: samples have them."""

    @property
    def keys(self) -> Iterable[Expression]:
        """What is grouped by; a chunk has the values of all of them in memory."""

    @property
    def measures(self) -> Iterable[Measure]:
        """What is added up; as with ``keys``."""

    def process(self, arrived: Arrived, watermark: int | None, output: ChunkOutput, work: Work) -> None:
        """Run all operators over a chunk, none of it below ``watermark`` (µs), and add what comes of it to ``output``.

        An operator that fails adds nothing, and ``failures`` get its queries.
        """


@dataclass(frozen=True)
class Held:
    """The state of a partition, by operator, in the order of batches: partial aggregates, and tuples of inputs."""

    buckets: dict[str, list[Any]]
    tuples: dict[str, list[TupleBucket]]


@dataclass(frozen=True)
class FiringBatch:
    """What a partition side fires from, and where it says what it did.

    ``held`` includes what the batch brought, of which ``new_buckets`` are the buckets. ``before`` and ``after`` are up
    to where the windows of each stream have fired around the batch, ``now_us`` is its processing time. Of a window of a
    join ``join_row_limit`` rows are kept. ``emitted`` has the early rows of the partition; ``failures`` get messages by
    query.
    """

    held: Held
    new_buckets: Sequence[Partials]
    before: Reached
    after: Reached
    now_us: int
    join_row_limit: int
    emitted: EmissionLog
    work: Work
    failures: dict[str, str]


class PartitionSide(Protocol):
    """All operators of one kind at one epoch, in a partition; ``names`` are those of their buckets and tuples."""

    @property
    def names(self) -> Collection[str]: ...

    def ends(self) -> Iterator[tuple[str, Ends]]:
        """Yield the ends of windows that cost something, each with the stream whose watermark brings them."""

    def fire(self, batch: FiringBatch) -> Iterator[ResultBlock]:
        """Yield the rows that are due: of windows that are final now, and early ones."""

    def needed(self, held: Held, reached: Reached) -> dict[int, Mask]:
        """Return what of ``held`` a window can still need.

        By the id of each bucket which of its slices (of sessions: fragments), by that of tuples whether they are.
        """

    def merged(self, members: Sequence[Any], masks: Sequence[Mask], reached: Reached) -> Partials:
        """Return one bucket for several of one operator and cell space, with what ``masks`` say is needed."""


Predicates = Callable[[LiveQuery], Predicate]


class RowReader(Protocol):
    """Reads rows of queries of one kind out of blocks, of which it may keep some."""

    def rows(
        self,
        query: Any,
        slot: int,
        active_from: Reached,
        parts: Sequence[BlockPart],
        start: int,
        count: int,
        max_bytes: int | None,
    ) -> pa.Table:
        """Return rows ``[start, start + count)`` of a query in one batch, see
        :meth:`braid.router.materialize.Materializer`.

        Raises CorruptData, TooLarge.
        """


@dataclass(frozen=True)
class OperatorKind:
    """A kind: its ``name``, what the plan says of it, and what makes its sides; queries of it are given as they are.

    ``operator_of`` returns the id of the operator that runs a query, and ``source_operators`` the names of those that
    the query has in source tasks; ``partitioned_by`` its attributes as SQL. ``evaluation`` says in which form tuples
    are brought to a query, and why, ``rule`` which queries share an operator, given its streams and attributes as
    people read them; ``shown_as`` is what the plan's graph calls the kind, and ``has_emit`` whether EMIT may say how
    rows come. ``bytes_a_tuple`` returns how many bytes a query takes for a tuple while source tasks add it up.
    ``cells`` returns the cell space of a query that shares its cells, where there are any.
    """

    name: str
    shown_as: str
    has_emit: bool
    operator_of: Callable[[Any], str]
    source_operators: Callable[[Any], tuple[str, ...]]
    partitioned_by: Callable[[Any], tuple[str, ...]]
    evaluation: Callable[[Any], dict[str, str]]
    rule: Callable[[str, str], str]
    bytes_a_tuple: Callable[[Any], int]
    source_side: Callable[[LiveQueries, str], SourceSide]
    partition_side: Callable[[LiveQueries, Predicates], PartitionSide] | None
    reader: Callable[[BlockFiles], RowReader]
    cells: Callable[[Any], SpaceKey] | None = None
