"""Placement: which partitions the tuples of an operator go to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    """Which partition the tuples of an input go to: that of ``salt`` and of the columns ``hashed`` of their key.

    All go to all partitions where ``hashed`` is None. Those of keys with one of the hashes ``split`` do, too, unless
    the input ``is_spread``: then each goes to one partition, by its values in the columns ``by``, or in all if these
    are none.
    """

    salt: str
    hashed: tuple[int, ...] | None
    split: frozenset[int] = frozenset()
    is_spread: bool = False
    by: tuple[str, ...] = ()

    @property
    def is_everywhere(self) -> bool:
        """Whether every partition gets all tuples."""
        return self.hashed is None
