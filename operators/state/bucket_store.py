"""Where buckets and result blocks lie: immutable files beside the checkpoint, passed around by reference.

Small buckets travel inside the row that announces them; moving large ones through Spark's rows costs more than a file.
The name of each file begins with the number of its batch and ends with its checksum
(:mod:`braid.sources.core.checksums`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from braid.sources.core.checksums import crc32, named_checksum, with_checksum
from braid.sources.core.record_log import file_number
from braid.sources.core.storage import Storage, not_read_back

if TYPE_CHECKING:  # the sink needs the names of folders only, and compiled kernels take a second to import
    from braid.operators.joins.matches.block import JoinBlock
    from braid.operators.state.query_runs import Partials
    from braid.operators.state.tuple_bucket import TupleIndex
    from braid.operators.windowing.window_rows import WindowRows

BUCKETS = "buckets"
TUPLES = "tuples"
RESULTS = "results"
DEAD_LETTERS = "dead-letters"
STATES = "states"
INLINE_BYTES = 1 << 16


def put_bucket(storage: Storage, seq: int, bucket: Partials) -> tuple[str, bytes]:
    """Store a bucket made in batch ``seq``; return its path and no bytes, or no path and its bytes when small."""
    return put_payload(storage, seq, bucket.serialize())


def put_payload(storage: Storage, seq: int, data: bytes) -> tuple[str, bytes]:
    """Store bytes made in batch ``seq`` in the same way."""
    if len(data) <= INLINE_BYTES:
        return "", data
    return _put(storage, BUCKETS, seq, data), b""


def get_payload(storage: Storage, path: str, data: bytes) -> pa.Buffer:
    """Return the bytes behind what :func:`put_payload` returned; CorruptData names a file that is damaged or gone."""
    return read_state(storage, path) if path else pa.py_buffer(data)


def read_state(storage: Storage, path: str) -> pa.Buffer:
    """Read a file without which partitions cannot go on; CorruptData when it is damaged or gone."""
    try:
        return storage.read(path)
    except FileNotFoundError as error:
        raise not_read_back(path, "it is missing") from error


def put_block(storage: Storage, folder: str, seq: int, table: pa.Table) -> str:
    """Write a result or dead-letter block of batch ``seq`` as an Arrow file; return its path.

    Readers find it once the batch record names it; a replayed batch writes new files, and the old ones are swept.
    """
    with storage.writing(_block_name(folder, seq)) as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return file.path


def put_window_rows(storage: Storage, folder: str, seq: int, rows: WindowRows) -> str:
    """Write rows of windows in the same way."""
    with storage.writing(_block_name(folder, seq)) as file:
        rows.write(file)
    return file.path


class StoredTuples:
    """Tuples of joins of batch ``seq``: in a file to which each partition has a path; few go with their indexes."""

    def __init__(self, storage: Storage, seq: int, tuples: pa.Table, partitions: Collection[int]) -> None:
        self._storage = storage
        self._seq = seq
        self._tuples = tuples
        self.paths: dict[int, str] = {}
        """The path that each of the ``partitions`` has, none where the tuples go with each index."""
        if tuples.nbytes > INLINE_BYTES and storage.has_links:
            written = put_block(storage, TUPLES, seq, tuples)
            for partition in partitions:
                self.paths[partition] = _link(storage, written, TUPLES, seq) if self.paths else written

    def put_index(self, partition: int, index: TupleIndex) -> tuple[str, bytes]:
        """Store an index of the tuples for a partition, as :func:`put_bucket` does a bucket."""
        has_file = partition in self.paths
        data = index.serialize(self.paths[partition]) if has_file else index.serialize_with(self._tuples)
        return put_payload(self._storage, self._seq, data)


def is_path_of_tuples(path: str) -> bool:
    """Return whether a path is one of :class:`StoredTuples`."""
    return path.startswith(f"{TUPLES}/")


def put_join_block(
    storage: Storage, folder: str, seq: int, block: JoinBlock, links: dict[str, str]
) -> tuple[str, list[str]]:
    """Write a block of joins of batch ``seq``; return its path, and the paths of tuples that no block before it had.

    ``links`` maps the path of a file of tuples to the one by which blocks of the batch refer to it; new ones are added.
    """
    new_files = [file for file in block.files if file not in links]
    for file in new_files:
        links[file] = _link(storage, file, folder, seq)
    path = _put(storage, folder, seq, block.serialize(links))
    return path, [links[file] for file in new_files]


def batch_of(path: str) -> int:
    """Return the number of the batch that made the file at ``path``."""
    return file_number(path.rpartition("/")[2])


def block_paths(record: dict[str, Any]) -> list[str]:
    """Return the paths of all blocks that a batch record names, and of the tuples that these refer to."""
    blocks = [part["path"] for part in (*record["results"], *record.get("dead_letters", ()))]
    return [*blocks, *dict.fromkeys(path for part in record["results"] for path in part.get("tuples", ()))]


def _link(storage: Storage, path: str, folder: str, seq: int) -> str:
    """Give another reader of batch ``seq`` a path of its own to the file at ``path``; return that path."""
    crc = named_checksum(path)
    link = f"{_stem(folder, seq)}.arrow" if crc is None else _block_name(folder, seq)(crc)
    storage.link(path, link)
    return link


def _put(storage: Storage, folder: str, seq: int, data: bytes) -> str:
    path = _block_name(folder, seq)(crc32(data))
    storage.put(path, data, durable=False)
    return path


def _block_name(folder: str, seq: int) -> Callable[[int], str]:
    """Return what makes the path of a new file, given its checksum."""
    return partial(with_checksum, _stem(folder, seq), ending=".arrow")


def _stem(folder: str, seq: int) -> str:
    return f"{folder}/{seq:012d}-{uuid.uuid4().hex}"
