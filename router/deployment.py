"""Deployments: the stretches of a query's life in which it has a slot; one that was paused and resumed has several.

Those of a query follow each other: a batch with an epoch before ``freed_epoch`` of one has no row of the next.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

EventTimes = Mapping[str, int | None]


@dataclass(frozen=True)
class Deployment:
    """Its rows are those of ``slot`` in batches with an epoch in ``[epoch, freed_epoch)``, from batch ``first_seq`` on.

    ``freed_epoch`` is None while it holds the slot. ``active_from`` and ``active_to`` are event times (µs) by stream
    id; ``active_to`` is None until it is decided.
    """

    slot: int
    epoch: int
    first_seq: int
    active_from: EventTimes
    active_to: EventTimes | None = None
    freed_epoch: int | None = None

    def holds_slot_at(self, epoch: int) -> bool:
        """Whether the slot is the query's in batches of an epoch."""
        return self.epoch <= epoch and (self.freed_epoch is None or epoch < self.freed_epoch)

    def to_json(self) -> dict[str, Any]:
        """Return its fields, as orjson does by itself."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def from_batch(deployments: Sequence[Deployment], seq: int) -> Sequence[Deployment]:
    """Return those of ``deployments``, which are in order, that may have rows in batch ``seq`` or later."""
    first = bisect_right(deployments, seq, key=lambda deployment: deployment.first_seq)
    return deployments[max(0, first - 1) :]
