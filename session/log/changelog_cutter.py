"""Cut a changelog out of what waits (thesis 4.3.1.1): which queries come, go and are freed, and with which slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from bitarray import frozenbitarray

from braid.operators.joins.key_splits import KeySplit
from braid.session.state.catalog_entries import TableState
from braid.session.state.changelog import Changelog, Created, Deleted, Freed, RefreshedTable, Regrouped, Split, resized
from braid.session.state.query_record import QueryRecord
from braid.session.state.query_table import number_of
from braid.session.state.session_state import SessionState


def cut_changelog(
    state: SessionState,
    now_us: int,
    timed_out: Iterable[str] = (),
    free_since_us: int | None = None,
    groups: Mapping[str, int] | None = None,
    splits: Mapping[str, KeySplit] | None = None,
) -> Changelog | None:
    """Return the next changelog, None when it would say nothing; changes nothing.

    It takes all that waits, frees the queries that drained for too long (``timed_out``), drops slots at the end
    that have been free since ``free_since_us`` (thesis 4.3.2.4; None: drops none), and gives queries their new
    ``groups`` and operators the new ``splits`` of their keys. Queries and operators that have left the plan are
    skipped, and operators whose keys may not be split now.
    """
    waiting = state.pending
    created = [state.queries[query_id] for query_id in sorted(waiting.create, key=number_of)]
    deleted = [state.queries[query_id] for query_id in waiting.delete]
    undrained = [record.id for record in deleted if not record.drain]
    overdue = [query_id for query_id in timed_out if query_id not in waiting.free]
    freed = [state.queries[query_id] for query_id in [*waiting.free, *undrained, *overdue]]
    freed.sort(key=_slot)
    slots = state.slots.next_slots(len(created), [_slot(record) for record in freed])
    compacted = state.slots.capacity if free_since_us is None else state.slots.compacted_capacity(free_since_us)
    capacity = max(compacted, max(slots, default=-1) + 1)
    freed_ids = {record.id for record in freed}
    regrouped = _regrouped(state, groups or {}, freed_ids)
    split = _split(state, splits or {}, freed_ids)
    if not (waiting.has_changes or freed or regrouped or split) and capacity == state.slots.capacity:
        return None
    bits = resized(state.slots.occupied(), capacity)
    for slot in (*slots, *(_slot(record) for record in freed)):
        bits[slot] = 0
    names = {definition.id: definition.name for definition in waiting.definitions}
    alone = state.plan.alone_among((record.id, record.query) for record in created)
    return Changelog(
        epoch=state.epoch + 1,
        created_us=now_us,
        why=_why(state, len(overdue), capacity, len(regrouped), split),
        changelog_set=frozenbitarray(bits),
        capacity=capacity,
        plan_version=state.plan.version_after(
            bool(created or freed or regrouped or split), names, waiting.streams_dropped
        ),
        created=tuple(
            Created(record.id, slot, record.operator, record.query, record.id in alone, record.sees_after)
            for record, slot in zip(created, slots, strict=True)
        ),
        deleted=tuple(Deleted(record.id, _slot(record), record.drain) for record in deleted),
        freed=tuple(Freed(record.id, _slot(record)) for record in freed),
        regrouped=regrouped,
        split=split,
        refreshed=tuple(
            RefreshedTable(table.definition.id, table.refreshes, table.file) for table in _tables_refreshed(state)
        ),
        streams_created=tuple(waiting.definitions),
        streams_dropped=tuple(waiting.streams_dropped),
        raised={stream: watermark for stream, (watermark, _) in waiting.raised.items()},
        requests=state.requests,
        batches=state.applied_seq,
    )


def _regrouped(state: SessionState, groups: Mapping[str, int], freed_ids: Set[str]) -> tuple[Regrouped, ...]:
    """Return the queries whose group changes, without those that are freed."""
    changed = {
        query_id: group
        for query_id, group in groups.items()
        if query_id not in freed_ids and state.plan.group_of(query_id) not in (None, group)
    }
    return tuple(
        Regrouped(query_id, _slot(state.queries[query_id]), group) for query_id, group in sorted(changed.items())
    )


def _split(state: SessionState, splits: Mapping[str, KeySplit], freed_ids: Set[str]) -> tuple[Split, ...]:
    """Return the splits of operators that may be split now and keep a query."""
    return tuple(
        Split(
            name, state.plan.operators[name].streams, split.number, tuple(sorted(split.hashes)), split.spread, split.by
        )
        for name, split in sorted(splits.items())
        if state.may_split(name) and not state.plan.operators[name].queries.keys() <= freed_ids
    )


def _tables_refreshed(state: SessionState) -> list[TableState]:
    return [t for t in state.catalog.tables() if t.definition.id in state.pending.tables_refreshed]


def _slot(record: QueryRecord) -> int:
    assert record.slot is not None, f"{record.id} must have been placed"
    return record.slot


def _why(state: SessionState, timed_out: int, capacity: int, regrouped: int, splits: Sequence[Split]) -> str:
    waiting, freed = state.pending, len(state.pending.free)
    tables = _tables_refreshed(state)
    parts = []
    if waiting.requests:
        parts.append(f"{waiting.requests} request{'s' * (waiting.requests > 1)}")
    parts += [f"stream {definition.name} created" for definition in waiting.definitions]
    parts += [f"stream {stream} dropped" for stream in waiting.streams_dropped]
    parts += [f"watermark of stream {stream} set" for stream in waiting.raised]
    parts += [f"table {table.definition.name} refreshed" for table in tables]
    if freed:
        parts.append(f"{freed} slot{'s' * (freed > 1)} freed")
    if timed_out:
        parts.append(f"{timed_out} drain{'s' * (timed_out > 1)} timed out")
    if regrouped:
        parts.append(f"{regrouped} quer{'y' if regrouped == 1 else 'ies'} regrouped")
    parts += [
        f"keys of {split.operator} split" if split.hashes else f"no key of {split.operator} split" for split in splits
    ]
    if capacity < state.slots.capacity:
        parts.append(f"compacted to {capacity} slots")
    return ", ".join(parts)
