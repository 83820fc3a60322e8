"""Key splits: a key so frequent that one partition has too much to do with it is shared by all (scaling up, thesis
5.6.2).

A join is distributive over union: of such a key the tuples of one input are spread over the partitions, each to one of
them, and those of all other inputs go to every partition. Each partition forms the rows of its share, and each row is
formed once.

What is in effect when a window begins decides about all of it. A changelog brings the next split, which begins at the
greatest event time that any stream of the join has then, so that no tuple of its windows has come yet. Until the last
window from before is over, tuples go by both, the split before and the next one: double partitioning (5.6.3, figure
5.14). Then a changelog that says the same split again ends this, and the split may change.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from braid.operators.event_times import EARLIEST

_MARK = " split "
_MARKED = re.compile(f"{_MARK}[0-9]+$")


@dataclass(frozen=True)
class KeySplit:
    """Keys with one of the ``hashes`` are split: the tuples of input ``spread`` are spread over the partitions.

    Which partition a tuple goes to is decided by its columns ``by``, in which all tuples of a group are equal, or by
    all its columns where there are none. It is in effect for windows that begin after ``since`` (µs). ``number`` tells
    it from all others, 0 is none.
    """

    number: int
    hashes: frozenset[int] = field(default_factory=frozenset)
    spread: int = 0
    since: int = EARLIEST
    by: tuple[str, ...] = ()

    def name_of(self, operator: str) -> str:
        """Return the name of what an operator is for windows of this split."""
        return f"{operator}{_MARK}{self.number}" if self.number else operator

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for plan snapshots."""
        return {
            "number": self.number,
            "hashes": sorted(self.hashes),
            "spread": self.spread,
            "since": self.since,
            "by": list(self.by),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> KeySplit:
        """Read what :meth:`to_json` wrote."""
        by = tuple(value.get("by", ()))  # older records have none
        return cls(value["number"], frozenset(value["hashes"]), value["spread"], value["since"], by)


NOT_SPLIT = KeySplit(0)

KeySplits = Sequence[KeySplit]
"""The splits of an operator: the newest last; before it the one of windows that began earlier, until they are over."""


def unsplit(operator: str) -> str:
    """Return the name that an operator has without splits."""
    return _MARKED.sub("", operator)


class OperatorSplits(dict[str, KeySplits]):
    """The key splits of operators of joins by their names, as long as these have queries.

    The data plane and the session hold one each, and apply the same changelogs with the same clocks to it.
    """

    def apply(self, changes: Iterable[Mapping[str, Any]], clocks: Mapping[str, int | None]) -> None:
        """Begin the splits of a changelog, given the clocks of all streams (µs)."""
        for change in changes:
            name = change["operator"]
            self[name] = begin(self.pop(name, ()), change, map(clocks.get, change["streams"]))
            if not self[name]:
                del self[name]

    def keep(self, running: Collection[str]) -> None:
        """Forget those of all but some operators."""
        for name in self.keys() - set(running):
            del self[name]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for snapshots."""
        return {name: [split.to_json() for split in splits] for name, splits in self.items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> OperatorSplits:
        """Read what :meth:`to_json` wrote."""
        return cls({name: tuple(map(KeySplit.from_json, splits)) for name, splits in value.items()})


def begin(splits: KeySplits, split: Mapping[str, Any], clocks: Iterable[int | None]) -> KeySplits:
    """Return the splits of an operator after a changelog with one more, given the clocks of its streams (µs).

    If it is the newest again, all windows from before are over, and it is the only one; none if nothing is split.
    """
    since = max((clock for clock in clocks if clock is not None), default=EARLIEST)
    last = splits[-1] if splits else NOT_SPLIT
    if split["number"] == last.number:
        return (last,) if last.number else ()
    return last, KeySplit.from_json({**split, "since": since})
