"""Spark's checkpoint must go with the batch log: what a power cut tore is removed, what is missing is an error.

Spark logs the offset of a batch before it runs, and its commit after its record was written; it counts batches from 0,
the batch log counts from 1. It flushes neither log to disk, so the newest file of each may be torn. A commit that is
gone has its batch run again, without effect; an offset that is gone has its batch planned again, which is right only
while that is not published. The offset of a published batch and the state of partitions that its record names were
flushed before it, unless the setting ``flush_batches`` is off; they must be whole. Spark's log has no checksums here,
so an offset has its own.
"""

from __future__ import annotations

from itertools import pairwise

import orjson

from braid.engine.data_layout import ACTIVATIONS, BATCHES, CHANGELOGS, PLANS, check_partitions
from braid.engine.partition_files import PartitionFiles
from braid.engine.planning.offsets import Offset
from braid.sources.core.errors import CorruptData
from braid.sources.core.record_log import RecordLog, file_number
from braid.sources.core.storage import Storage, not_read_back

OFFSETS = "checkpoint/offsets"
COMMITS = "checkpoint/commits"
_LINES = {OFFSETS: 2, COMMITS: 1}


def check_checkpoint(storage: Storage) -> None:
    """Remove what is torn and need not be there; CorruptData where Spark and the batch log are not of one moment, or
    a file is missing or damaged without which no batch can be run.

    Call it before the job starts: nobody else may write to either.
    """
    published = RecordLog(storage, BATCHES).latest()
    check_partitions(storage)
    committed, logged = _newest(storage, COMMITS), _newest(storage, OFFSETS)
    if committed and not _is_whole(storage, COMMITS, committed):
        storage.delete(_path(COMMITS, committed))
        committed -= 1
    if logged > published and not _is_whole(storage, OFFSETS, logged):
        storage.delete(_path(OFFSETS, logged))
        logged = _newest(storage, OFFSETS)
    if published:
        record = RecordLog(storage, BATCHES).read(published)
        if "partitions" not in record:
            raise CorruptData(
                "Another version of Braid wrote the data directory: it must be empty, or go on with that."
            )
        _check_no_gap(storage)
        _check_plan(storage, record["epoch"])
        for path in record["partitions"].values():
            PartitionFiles(storage, published + 1, path).check()
    if committed > published:
        raise _missing(f"batches/{committed:012d}.json", f"Spark committed batch {committed}")
    if published and not _is_whole(storage, OFFSETS, published):
        raise _missing(_path(OFFSETS, published), f"batch {published} was published")


def _check_no_gap(storage: Storage) -> None:
    """Raise CorruptData where a batch record is missing between others."""
    numbers = RecordLog(storage, BATCHES).numbers()
    for number, following in pairwise(numbers):
        if following != number + 1:
            raise not_read_back(f"{BATCHES}/{number + 1:012d}.json", "it is missing")


def _check_plan(storage: Storage, epoch: int) -> None:
    """Raise CorruptData unless all files can be read of which the queries of ``epoch``, and later ones, are rebuilt."""
    snapshots = [file_number(name) for name in storage.names(PLANS)]
    for name in storage.names(PLANS):
        storage.get_json(f"{PLANS}/{name}")
    begin = max((snapshot for snapshot in snapshots if snapshot <= epoch), default=0)
    changelogs = RecordLog(storage, CHANGELOGS)
    for number in range(begin + 1, changelogs.latest() + 1):
        changelogs.needed(number)
    reached = begin
    for name in storage.names(ACTIVATIONS):
        if begin < file_number(name) <= epoch:
            activation = storage.get_json(f"{ACTIVATIONS}/{name}")
            if activation["previous_epoch"] > reached:
                break
            reached = activation["epoch"]
    if reached < epoch:
        raise not_read_back(f"of {ACTIVATIONS} with epoch {reached + 1}", "it is missing")


def newest_offset(storage: Storage) -> int:
    """Return the number of the newest batch whose offset Spark has logged, 0 for none."""
    return _newest(storage, OFFSETS)


def read_offset(storage: Storage, seq: int) -> Offset:
    """Return the offset at which batch ``seq`` ends, as Spark logged it."""
    return Offset.from_json(orjson.loads(storage.get(_path(OFFSETS, seq)).splitlines()[-1]))


def rewrite_offset(storage: Storage, seq: int, offset: Offset) -> None:
    """Replace the offset of a batch that is not published, in Spark's log; Spark must not run meanwhile."""
    path = _path(OFFSETS, seq)
    lines = storage.get(path).splitlines()
    lines[-1] = orjson.dumps(offset.to_json())
    storage.put(path, b"\n".join(lines))
    folder, _, name = path.rpartition("/")
    storage.delete(f"{folder}/.{name}.crc")  # where Spark's configuration has it write checksums


def _newest(storage: Storage, folder: str) -> int:
    """Return the number that the batch log has for the newest batch in a log of Spark's, 0 when there is none."""
    return max((int(name) + 1 for name in storage.names(folder) if name.isdigit()), default=0)


def _path(folder: str, seq: int) -> str:
    return f"{folder}/{seq - 1}"


def _is_whole(storage: Storage, folder: str, seq: int) -> bool:
    """Whether a file of Spark's, a version and then a JSON object a line, is all there, and an offset what it was."""
    try:
        version, *lines = storage.get(_path(folder, seq)).splitlines() or [b""]
        values = [dict(orjson.loads(line)) for line in lines]
        if folder == OFFSETS and values:
            Offset.from_json(values[-1])
    except (FileNotFoundError, ValueError, TypeError, CorruptData):
        return False
    return version.startswith(b"v") and len(values) == _LINES[folder] and all(values)


def _missing(path: str, why: str) -> CorruptData:
    return CorruptData(
        f"The file {path} must be there, and whole, to go on: {why}. Restore the data directory from a backup."
    )
