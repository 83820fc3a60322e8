"""What the queries of an epoch ask of a partition: a side of each kind of operator."""

from __future__ import annotations

from braid.operators.kinds import KINDS
from braid.operators.live_queries import LiveQueries, LiveQuery
from braid.operators.operator import PartitionSide
from braid.operators.predicates.analysis import Predicate, analyse
from braid.operators.windowing.firing_limit import FiringLimit


class PartitionOperators:
    """The ``sides`` of all kinds; ``side_of`` finds them by the names of operators.

    ``limit`` says how far their windows fire in a batch.
    """

    def __init__(self) -> None:
        self.sides: list[PartitionSide] = []
        self.side_of: dict[str, PartitionSide] = {}
        self.limit = FiringLimit()
        self._predicates: dict[str, Predicate] = {}
        self._live = LiveQueries()
        self._epoch = (0, -1)

    def follow(self, live: LiveQueries) -> None:
        """Take note of the operators and queries of a new epoch."""
        if self._epoch == (id(live), live.epoch):
            return
        self._epoch = id(live), live.epoch
        self._live = live  # so that nothing else gets its id
        running = {query.id for query in live.by_slot.values()}
        self._predicates = {name: p for name, p in self._predicates.items() if name.partition("#")[0] in running}
        self.sides = [kind.partition_side(live, self.predicate_of) for kind in KINDS if kind.partition_side is not None]
        self.side_of = {name: side for side in self.sides for name in side.names}
        self.limit = FiringLimit(ends for side in self.sides for ends in side.ends())

    def predicate_of(self, query: LiveQuery) -> Predicate:
        """Return the predicate of a query, or of an input of a join, analysed once."""
        predicate = self._predicates.get(query.id)
        if predicate is None:
            predicate = self._predicates[query.id] = analyse(query.where)
        return predicate
