"""The queries that the session has in memory, in the order of their ids, counted by state."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice

from braid.session.state.query_record import FINAL_STATES, QueryRecord
from braid.sources.core.derived import lineages_of

READABLE = 1000
"""So many queries that are FINISHED can be read by others: the last ones."""
_MIN_GONE = 1000


class QueryTable(Mapping[str, QueryRecord]):
    """Records by id.

    Adding, removing, counting and finding the next ones after an id cost the same however many there are. Ids come in
    ascending order.
    """

    def __init__(self) -> None:
        self._records: dict[str, QueryRecord] = {}
        # ascending; may have ids that were removed
        self._ids: list[str] = []
        self.states: Counter[str] = Counter()
        self.finished: dict[str, None] = {}
        """The ids of the queries that are in a final state, in the order in which they became that."""
        # by lineage the newest query that has replaced another
        self._newest: dict[str, str] = {}
        # by tenant, how many are not finished
        self._unfinished: Counter[str] = Counter()

    def __getitem__(self, query_id: str) -> QueryRecord:
        return self._records[query_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def find(self, query_id: str) -> QueryRecord | None:
        """Return the record of an id, None when there is none."""
        return self._records.get(query_id)

    def newest(self, lineage: str) -> QueryRecord | None:
        """Return the newest record of a lineage, None when there is none."""
        return self._records.get(self._newest.get(lineage, lineage))

    def queries_behind(self, stream_id: str) -> list[QueryRecord | None]:
        """Return the newest record of each lineage whose rows a stream has: none where it is no derived one."""
        return list(map(self.newest, lineages_of(stream_id)))

    def add(self, record: QueryRecord) -> None:
        """Add a record; its id must come after all that were ever added."""
        self._records[record.id] = record
        self._ids.append(record.id)
        if record.first_id is not None:
            self._newest[record.lineage] = record.id
        self.states[record.state] += 1
        if record.tenant is not None and not record.has_ended:
            self._unfinished[record.tenant] += 1

    def remove(self, record: QueryRecord) -> None:
        """Remove a record."""
        del self._records[record.id]
        if self._newest.get(record.lineage) == record.id:
            del self._newest[record.lineage]
        self.finished.pop(record.id, None)
        self.states[record.state] -= 1
        if len(self._ids) > 2 * len(self._records) + _MIN_GONE:
            self._ids = list(self._records)

    def moved(self, former_state: str, record: QueryRecord) -> None:
        """Count a record that was in another state before."""
        self.states[former_state] -= 1
        self.states[record.state] += 1
        if record.tenant is not None and record.has_ended and former_state not in FINAL_STATES:
            self._unfinished[record.tenant] -= 1

    def finish(self, record: QueryRecord) -> None:
        """Note that a query is in a final state from now on; it finished no earlier than those before it."""
        self.finished[record.id] = None

    def settled(self, active_epoch: int, before_us: int | None = None) -> list[QueryRecord]:
        """Return the settled queries: finished ones that no operator and no batch to come knows, so they never change.

        Not those that others can still read: the last ``READABLE`` that are FINISHED and no subqueries. With
        ``before_us`` those that finished at or before it, and no others. The cost depends on the finished queries in
        memory.
        """
        records = []
        kept = set[str]() if before_us is not None else self._readable()
        for record in map(self.__getitem__, self.finished):
            assert record.finished_us is not None
            if before_us is not None and record.finished_us > before_us:
                break
            if record.id in kept:
                continue
            if record.slot is None or (record.freed_epoch is not None and record.freed_epoch <= active_epoch):
                records.append(record)
        return records

    def _readable(self) -> set[str]:
        """Return the ids of finished queries that others can read."""
        records = map(self.__getitem__, reversed(self.finished))
        return {record.id for record in islice((r for r in records if r.is_readable and not r.is_subquery), READABLE)}

    @property
    def unfinished(self) -> int:
        """How many are not in a final state."""
        return len(self._records) - sum(self.states[state] for state in FINAL_STATES)

    def unfinished_of(self, tenant: str) -> int:
        """How many of a tenant's queries are not in a final state."""
        return self._unfinished[tenant]

    def after(self, number: int, count: int, newest_first: bool = False) -> list[QueryRecord]:
        """Return the next ``count`` records whose number is above ``number``, with ``newest_first`` below it."""
        if newest_first:
            places = range(bisect.bisect_left(self._ids, number, key=number_of) - 1, -1, -1)
        else:
            places = range(bisect.bisect_right(self._ids, number, key=number_of), len(self._ids))
        found = (self._records.get(self._ids[at]) for at in places)
        return list(islice((record for record in found if record is not None), count))


def number_of(identifier: str) -> int:
    """Return the number in an id such as ``q-17``."""
    return int(identifier.rpartition("-")[2])
