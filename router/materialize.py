"""Turn shared result blocks into the rows of one query: its kind of operator says how (``operators/kinds.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from braid.operators.block_files import BlockFiles, BlockPart
from braid.operators.kinds import KINDS
from braid.operators.queries import Query
from braid.router.deployment import Deployment
from braid.sources.core.storage import Storage


class DeployedQuery(Protocol):
    """What the reader must know of a query: its deployments in order, none for one that no batch has had yet."""

    @property
    def id(self) -> str: ...
    @property
    def query(self) -> Query: ...
    @property
    def deployments(self) -> Sequence[Deployment]: ...


class Materializer:
    """Reads rows of queries of every kind; see :class:`braid.operators.block_files.BlockFiles` for what it keeps."""

    def __init__(self, storage: Storage) -> None:
        self._files = BlockFiles(storage)
        self._readers = {kind.name: kind.reader(self._files) for kind in KINDS}

    def rows(
        self,
        deployed: DeployedQuery,
        deployment: Deployment,
        parts: Sequence[BlockPart],
        start: int,
        count: int,
        max_bytes: int | None = None,
    ) -> pa.Table:
        """Return rows ``[start, start + count)`` of a query in one batch, with the deployment that it has there.

        ``parts`` are the batch's blocks that hold rows of the query, in the order of the batch record. Raises
        CorruptData when one is gone, or does not hold what its batch record says, TooLarge where the rows of a block,
        or of a window of a join, take more than ``max_bytes``.
        """
        reader = self._readers[deployed.query.kind]
        return reader.rows(deployed.query, deployment.slot, deployment.active_from, parts, start, count, max_bytes)

    def forget(self, path: str) -> None:
        """Close the block at ``path``, whose file is being removed."""
        self._files.forget(path)
