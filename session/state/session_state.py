"""The state of the session: a fold over three durable logs.

Requests say what was asked, changelogs what was decided, batch records what has happened. :meth:`apply_requests`,
:meth:`apply_changelog` and :meth:`apply_batch` are where the state changes, live and at a replay alike; none of them
looks at a clock, a disk or a thread. So a restart, which replays the logs from a snapshot, arrives at the same state.
What follows from them for a single query, :mod:`braid.session.state.lifecycle` says. Besides, :meth:`deploy_planned`
applies early what the record of a batch is going to say, :meth:`remove` forgets settled queries, and ids are given
ahead of the requests that use them.

Invariants:

- A query waits for a changelog at most once in each role (created, deleted, freed); a changelog empties all roles.
- A query with a slot was placed by the changelog ``epoch`` and not yet freed by a changelog ``freed_epoch``.
- A query that is resumed waits for its creation only once a batch has freed the slot that it had: no batch and no
  changelog knows two deployments of one query.
- A query and the one that it replaces wait for the same changelog.
- ``active_epoch`` <= ``epoch``: the epoch of the last batch applied, and of the last changelog.
- Ids count up and are never given twice.
- The cost of a change depends on what it changes, not on how many queries there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from braid.engine.data_layout import PlannedBatch
from braid.operators.derived import QueryBehind, derived_stream
from braid.operators.event_times import ENDED
from braid.operators.joins.key_splits import KeySplit
from braid.operators.queries import lookups_of
from braid.optimizer.plan import Plan
from braid.session.state.applied_epoch import AppliedEpoch, ClocksOf, SlotChange, UnappliedEpoch
from braid.session.state.catalog import Catalog
from braid.session.state.catalog_entries import StreamState, TableState
from braid.session.state.changelog import Changelog
from braid.session.state.drain import Draining
from braid.session.state.lifecycle import QueryLifecycle
from braid.session.state.pending_changes import PendingChanges
from braid.session.state.query_record import PENDING, QueryRecord, Times, subquery_key
from braid.session.state.query_table import QueryTable, number_of
from braid.session.state.requests import (
    OutcomeRecorded,
    QueriesAccepted,
    QueriesDeleted,
    QueryPaused,
    QueryReplaced,
    QueryResumed,
    Request,
    StreamCreated,
    StreamDropped,
    TableCreated,
    TableDropped,
    TableRefreshed,
    WatermarkRaised,
    new_queries,
)
from braid.session.state.slots import SlotTable
from braid.sources.core.derived import all_lineages
from braid.sources.core.errors import CorruptData
from braid.sources.core.replays import origin_of
from braid.sources.core.schema import StreamDefinition


class SessionState:
    """Streams, queries, slots and plan, and how far each log is applied."""

    def __init__(self) -> None:
        self.requests = 0
        self.epoch = 0
        self.active_epoch = 0
        self.applied_seq = 0
        self.next_query = 1
        self.next_stream = 1
        self.next_table = 1
        self.queries_created = 0
        self.queries_deleted = 0
        self.catalog = Catalog()
        self.queries = QueryTable()
        self.slots = SlotTable()
        self.plan = Plan()
        self.pending = PendingChanges()
        # what the data plane runs with at `active_epoch`; and for each epoch after it what will change
        self.active = AppliedEpoch()
        self.inactive: dict[int, UnappliedEpoch] = {}
        # the newest query of each full name, while it is in `queries`
        self.names: dict[str, str] = {}
        # the newest subquery of each key, while it is in `queries`
        self.subqueries: dict[bytes, str] = {}
        # the oldest batch whose rows some query has still to read; not kept over restarts, where the next batch says it
        self.rows_needed_from = 0
        # derived: rebuilt from the above by `index`
        self.draining = Draining()
        self.lifecycle = QueryLifecycle(self.catalog, self.queries, self.pending, self.draining)

    def new_query_ids(self, count: int) -> list[str]:
        """Return ids that no query ever had, for a request to come."""
        first = self.next_query
        self.next_query += count
        return [f"q-{number}" for number in range(first, self.next_query)]

    def new_stream_id(self) -> str:
        """Return an id that no stream ever had, for a request to come."""
        self.next_stream += 1
        return f"s-{self.next_stream - 1}"

    def new_table_id(self) -> str:
        """Return an id that no table ever had, for a request to come."""
        self.next_table += 1
        return f"t-{self.next_table - 1}"

    # requests

    def apply_requests(self, number: int, at_us: int, requests: Sequence[Request]) -> None:
        """Apply request record ``number``, written at ``at_us``."""
        for request in requests:
            match request:
                case QueriesAccepted():
                    for record in request.queries:
                        self._accept(record, at_us)
                case QueriesDeleted():
                    for query_id in request.ids:
                        self.queries_deleted += self.lifecycle.delete(query_id, request.drain, at_us)
                case QueryReplaced():
                    for record in new_queries(request):
                        self._accept(record, at_us)
                    self.queries_deleted += self.lifecycle.replace(
                        request.replaced, request.query.id, request.drain, at_us
                    )
                    for definition in request.streams:
                        self.catalog.redefine(definition)
                        self.pending.stream_changed(definition, at_us)
                case QueryPaused(query_id):
                    self.lifecycle.pause(query_id, at_us)
                case QueryResumed(query_id):
                    self.lifecycle.resume(query_id, at_us, self.active_epoch)
                case StreamCreated(definition):
                    self.catalog.add(StreamState(definition))
                    self.next_stream = max(self.next_stream, number_of(definition.id) + 1)
                    self.pending.stream_created(definition, at_us)
                case StreamDropped(stream):
                    self.catalog.remove(stream)
                    self.pending.stream_dropped(stream, at_us)
                case WatermarkRaised(stream, watermark):
                    self.catalog.raise_watermark(stream, watermark)
                    self.pending.watermark_raised(stream, watermark, at_us)
                case TableCreated(table):
                    self.catalog.add_table(TableState(table))
                    self.next_table = max(self.next_table, number_of(table.id) + 1)
                case TableDropped(table_id):
                    self.catalog.remove_table(table_id)
                    self.pending.table_dropped(table_id)
                case TableRefreshed(table_id, version):
                    if (refreshed := self.catalog.table_by_id(table_id)) is not None:
                        refreshed.refresh(version)
                        self.pending.table_refreshed(table_id, at_us)
                case OutcomeRecorded():
                    pass  # kept by braid.session.log.idempotency
        self.requests = number

    def _accept(self, record: QueryRecord, at_us: int) -> None:
        self.queries.add(record)
        for lookup in lookups_of(record.query):
            if (table := self.catalog.table_by_id(lookup.table)) is not None:
                table.newest = lookup.version
        self.next_query = max(self.next_query, number_of(record.id) + 1)
        self.queries_created += 1
        if record.full_name is not None:
            self.names[record.full_name] = record.id
        if record.is_subquery:
            self.subqueries[subquery_key(record.tenant, record.query, record.start)] = record.id
        for each in record.hidden_streams:  # one that nobody read any more stays
            self.pending.stream_kept(each)
        for stream in self.catalog.begin_hidden(record.query, lambda each: self._rows_of(each, record)):
            self.pending.stream_created(stream, at_us)
            if stream.id in record.complete:
                self.catalog.raise_watermark(stream.id, ENDED)
                self.pending.watermark_raised(stream.id, ENDED, at_us)
        self.catalog.count_users(record.query, 1)
        self.pending.created(record.id, at_us)

    def _rows_of(self, stream_id: str, reader: QueryRecord) -> StreamDefinition:
        """Return the definition of the derived stream that a query is the first to read."""
        newest = filter(None, map(self.queries.newest, all_lineages(stream_id)))
        behind = [QueryBehind(record.id, record.query, number) for number, record in enumerate(newest)]
        names = {origin_of(stream): name for stream, name in reader.stream_names.items()}
        return derived_stream(stream_id, names[stream_id], behind)

    def readers_of(self, record: QueryRecord) -> list[QueryRecord]:
        """Return the queries that read the rows of a query, and are not finished."""
        return self.lifecycle.readers_of(record)

    # changelogs

    def apply_changelog(self, changelog: Changelog) -> None:
        """Move to the changelog's epoch; CorruptData when it does not follow from the state."""
        epoch = changelog.epoch
        if epoch != self.epoch + 1:
            raise CorruptData(f"Changelogs apply in order: epoch {self.epoch + 1} must be next, got {epoch}.")
        inactive = UnappliedEpoch(changelog.change)
        self.inactive[epoch] = inactive
        touched = inactive.touched
        for deleted in changelog.deleted:
            self._record(deleted.id).deleted_epoch = epoch
            touched.add(deleted.id)
        removed = []
        for freed in changelog.freed:
            record = self._record(freed.id)
            self.slots.free(freed.slot, freed.id, changelog.created_us)
            record.freed_epoch = epoch
            removed.append((record.id, record.query))
            touched.add(freed.id)
        for created in changelog.created:
            record = self._record(created.id)
            self.slots.take(created.slot, created.id)
            record.place(created.slot, epoch, created.is_alone)
            self.catalog.note_read(record.query)
            touched.add(created.id)
        groups = {regrouped.id: regrouped.group for regrouped in changelog.regrouped}
        inactive.groups.update(groups)
        for stream in changelog.streams_dropped:  # of those that are hidden the data plane knew until now
            self.catalog.remove(stream)
        self.slots.truncate(changelog.capacity)
        self.plan.change(
            [(c.id, c.query) for c in changelog.created],
            removed,
            {s.id: s.name for s in changelog.streams_created},
            changelog.streams_dropped,
            groups,
            {s.operator: KeySplit(s.number, frozenset(s.hashes), s.spread, by=s.by) for s in changelog.split},
            {c.id for c in changelog.created if c.is_alone},
        )
        if self.plan.version != changelog.plan_version:
            raise CorruptData(
                f"Epoch {epoch} must give plan version {changelog.plan_version}; got {self.plan.version}."
            )
        self.pending.clear()
        self.epoch = epoch

    # batches

    def apply_batch(self, record: Mapping[str, Any]) -> list[SlotChange]:
        """Apply the next batch record, and return which slots changed hands. CorruptData when it is not the next."""
        seq, epoch, committed_us = record["seq"], record["epoch"], record["committed_us"]
        if seq != self.applied_seq + 1 or not self.active_epoch <= epoch <= self.epoch:
            raise CorruptData(
                f"Batch {self.applied_seq + 1} with an epoch from {self.active_epoch} to {self.epoch} must be next;"
                f" got batch {seq} with epoch {epoch}."
            )
        joined = [replay for replay in record.get("joined", ()) if not self.catalog.has_joined(replay)]
        risen = self.catalog.absorb(record)
        if self.catalog.has_read_all_rows(record):
            self.rows_needed_from = seq
        planned_us = record.get("planned_us") or committed_us  # records of older batches do not say
        changes = self._activate(epoch, record["clocks_at_start"], planned_us, committed_us, seq)
        for block in record["results"]:
            for slot, rows, latest_us in zip(block["slots"], block["counts"], block["latest_event_us"], strict=True):
                query = self.active.holder(slot)
                if query is not None and rows:
                    query.count(rows, latest_us, committed_us)
        for query_id, error in record.get("failures", {}).items():
            self.lifecycle.fail(query_id, error, committed_us, seq)
        for stream_id in risen:
            for query_id in self.draining.passed(stream_id, self.catalog.fired(stream_id)):
                self.lifecycle.end_deployment(self.queries[query_id], committed_us, seq)
        if joined:
            for query in self.active.queries:
                self.lifecycle.mark_caught_up(query)
        ended = {stream_id for stream_id in record["fired"] if self.catalog.has_ended(stream_id)}
        newly_ended = ended.intersection(risen)
        came = {query.id for _, query in changes if query is not None}
        if newly_ended or (ended and came):
            for query in self.active.queries:
                if query.id in came or not newly_ended.isdisjoint(query.query.streams):
                    self.lifecycle.finish(query, committed_us, seq)
        self.active_epoch, self.applied_seq = epoch, seq
        return changes

    def deploy_planned(self, batch: PlannedBatch) -> bool:
        """Note which queries a batch that has begun deploys, and return whether there are any.

        All else follows with the batch's record, which says the same of these queries.
        """
        any_deployed = False
        clocks_of = ClocksOf(batch.clocks)
        if batch.seq <= self.applied_seq:
            return any_deployed
        for changed_epoch in range(batch.previous_epoch + 1, batch.epoch + 1):
            for query_id in self.inactive[changed_epoch].touched if changed_epoch in self.inactive else ():
                record = self.queries[query_id]
                if record.epoch == changed_epoch and record.deployed_us is None:
                    self.lifecycle.deploy(record, clocks_of(record), batch.planned_us, batch.seq)
                    any_deployed = True
        return any_deployed

    def _activate(self, epoch: int, clocks: Times, planned_us: int, committed_us: int, seq: int) -> list[SlotChange]:
        changes: list[SlotChange] = []
        clocks_of = ClocksOf(clocks)
        for changed_epoch in range(self.active_epoch + 1, epoch + 1):
            inactive = self.inactive.pop(changed_epoch)
            touched = [self.queries[query_id] for query_id in inactive.touched]
            # slots that are freed may be given again by the same changelog
            touched.sort(key=lambda query: (query.freed_epoch != changed_epoch, number_of(query.id)))
            for record in touched:
                if record.epoch == changed_epoch:
                    self.lifecycle.deploy(record, clocks_of(record), planned_us, seq)
                    changes.append(self.active.take(record))
                if record.deleted_epoch == changed_epoch:
                    record.end(clocks_of(record), committed_us)
                if record.freed_epoch == changed_epoch:
                    changes.append(self.active.free(record))
                    self.lifecycle.end_deployment(record, committed_us, seq)
                    if record.state == PENDING:  # it was resumed meanwhile
                        self.lifecycle.renew(record, committed_us)
                elif (
                    record.deleted_epoch == changed_epoch
                    and not record.has_ended
                    and self.draining.add(record, self.catalog.fired)
                ):
                    self.lifecycle.end_deployment(record, committed_us, seq)
            for query_id, group in inactive.groups.items():
                self.queries[query_id].group = group
            self.active.apply_change(inactive.change, clocks)
            if self.active.splits and any(record.freed_epoch == changed_epoch for record in touched):
                older = (q for q in self.active.queries if q.epoch is not None and q.epoch < changed_epoch)
                self.active.splits.keep({q.operator for q in older})
            for refreshed in inactive.change.refreshed:
                if (table := self.catalog.table_by_id(refreshed["table"])) is not None:
                    table.refreshed, table.refreshed_us = refreshed["number"], planned_us
        return changes

    def may_split(self, operator: str) -> bool:
        """Whether an operator of joins may get another key split: all windows from before its last one are over."""
        unapplied = (split["operator"] for inactive in self.inactive.values() for split in inactive.change.splits)
        if operator in unapplied:
            return False
        splits, operator_plan = self.active.splits.get(operator), self.plan.operators.get(operator)
        if splits is None or operator_plan is None:
            return operator_plan is not None
        longest_us = max((window.longest_us for window in operator_plan.windows), default=0)
        fired = [self.catalog.fired(stream) for stream in operator_plan.streams]
        return all(reached is not None and reached >= splits[-1].since + longest_us for reached in fired)

    def _record(self, query_id: str) -> QueryRecord:
        record = self.queries.find(query_id)
        if record is None:
            raise CorruptData(f"A changelog must name queries that were accepted; got {query_id!r}.")
        return record

    # finished queries

    def remove(self, records: Iterable[QueryRecord]) -> None:
        """Forget settled queries; those that are forgotten already are skipped."""
        for record in records:
            if self.queries.find(record.id) is None:
                continue
            self.queries.remove(record)
            name = record.full_name
            if name is not None and self.names.get(name) == record.id:
                del self.names[name]
            if record.is_subquery:
                key = subquery_key(record.tenant, record.query, record.start)
                if self.subqueries.get(key) == record.id:
                    del self.subqueries[key]

    # snapshots

    def index(self, groups: Mapping[str, int] | None = None, splits: Mapping[str, KeySplit] | None = None) -> None:
        """Rebuild what is derived from streams, queries and names; ``groups`` and ``splits`` are those of the plan."""
        records = list(self.queries.values())
        for record in sorted(records, key=lambda q: (q.finished_us or 0, number_of(q.id))):
            if record.has_ended:
                self.queries.finish(record)
        for record in sorted(records, key=lambda q: number_of(q.id)):
            if record.is_subquery:
                self.subqueries[subquery_key(record.tenant, record.query, record.start)] = record.id
            if not record.has_ended:
                self.catalog.count_users(record.query, 1)
            for epoch in (record.epoch, record.deleted_epoch, record.freed_epoch):
                if epoch is not None and epoch > self.active_epoch:
                    self.inactive[epoch].touched.add(record.id)
            is_placed = record.epoch is not None and record.epoch <= self.active_epoch
            if is_placed and not record.is_freed(self.active_epoch):
                self.active.take(record)
        for record in sorted(records, key=lambda q: q.active_to_us or 0):
            if record.active_to is not None and not record.has_ended and not record.is_freed(self.active_epoch):
                self.draining.add(record, self.catalog.fired)
        running = [q for q in records if q.epoch is not None and q.freed_epoch is None]
        running.sort(key=lambda q: (q.epoch or 0, number_of(q.id)))
        version = self.plan.version
        alone = {q.id for q in running if q.is_alone}
        self.plan.change([(q.id, q.query) for q in running], groups=groups, splits=splits, alone=alone)
        self.plan.version = version
