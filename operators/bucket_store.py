"""Where buckets and result blocks lie: immutable files beside the checkpoint, passed around by reference.

Small buckets travel inside the row that announces them; moving large ones through Spark's rows costs more than a file.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pyarrow as pa

from sources.storage import Storage

if TYPE_CHECKING:  # the sink needs the names of folders only, and compiled kernels take a second to import
    from operators.bucket import Bucket
    from operators.tuple_bucket import TupleBucket
    from operators.window_rows import WindowRows

BUCKETS = "buckets"
RESULTS = "results"
DEAD_LETTERS = "dead-letters"
INLINE_BYTES = 1 << 16


def put_bucket(storage: Storage, seq: int, bucket: Bucket | TupleBucket) -> tuple[str, bytes]:
    """Store a bucket made in batch ``seq``; return its path and no bytes, or no path and its bytes when small."""
    return put_payload(storage, seq, bucket.serialize())


def put_payload(storage: Storage, seq: int, data: bytes) -> tuple[str, bytes]:
    """Store bytes made in batch ``seq`` in the same way."""
    if len(data) <= INLINE_BYTES:
        return "", data
    path = f"{BUCKETS}/{seq:012d}-{uuid.uuid4().hex}.arrow"
    storage.put(path, data, durable=False)
    return path, b""


def get_payload(storage: Storage, path: str, data: bytes) -> pa.Buffer:
    """Return the bytes behind what :func:`put_payload` returned; a file is mapped, not read."""
    if not path:
        return pa.py_buffer(data)
    with storage.open(path) as source:
        return source.read_buffer()


def put_block(storage: Storage, folder: str, seq: int, table: pa.Table) -> str:
    """Write a result or dead-letter block of batch ``seq`` as an Arrow file; return its path.

    Readers find it once the batch record names it; a replayed batch writes new files, and the old ones are swept.
    """
    path = _block_path(folder, seq)
    with storage.writing(path) as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return path


def put_window_rows(storage: Storage, folder: str, seq: int, rows: WindowRows) -> str:
    """Write rows of windows in the same way."""
    path = _block_path(folder, seq)
    with storage.writing(path) as file:
        rows.write(file)
    return path


def put_block_bytes(storage: Storage, folder: str, seq: int, data: pa.Buffer) -> str:
    """Write a block of batch ``seq`` that is serialized already; return its path."""
    path = _block_path(folder, seq)
    storage.put(path, data, durable=False)
    return path


def _block_path(folder: str, seq: int) -> str:
    return f"{folder}/{seq:012d}-{uuid.uuid4().hex}.arrow"
