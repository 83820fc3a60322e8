"""Rows of joins in which it takes more than equal keys to be a partner in a LEFT JOIN.

Rows are formed for all that is equal. A row of the other inputs keeps those of its partners for which ON holds; where
it holds for none, the row stays once, without a partner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braid.operators.joins.matches import formed_rows
from braid.operators.joins.matches.formed_rows import value_of
from braid.operators.joins.matches.relations import NO_ROW
from braid.operators.joins.query import Join
from braid.operators.state.keys import encode_keys
from braid.operators.tuples import Tuples

Places = npt.NDArray[np.signedinteger]
Form = Callable[[Sequence[Places]], Tuples]


class PartnerRows(Protocol):
    """Joined rows, each a place in every input."""

    @property
    def total(self) -> int:
        """How many there are."""

    def page(self, first: int, count: int) -> Sequence[Places]:
        """Return of the rows ``[first, first + count)`` the place in each input, ``NO_ROW`` for none."""


def pieces(join: Join, joined: PartnerRows, form: Form) -> Iterator[Tuples]:
    """Yield the rows of a join, some at a time; ``form`` makes them out of their places.

    Raises EvaluationFailed.
    """
    if not join.ons:
        for first, last in _pages(joined.total):
            yield form(joined.page(first, last - first))
        return
    rows = list(joined.page(0, joined.total))
    for number in join.ons:
        rows = _with_partners(join, number, rows, form)
    for first, last in _pages(len(rows[0])):
        yield form([places[first:last] for places in rows])


def _pages(total: int) -> Iterator[tuple[int, int]]:
    page_size = formed_rows.FORMED_AT_ONCE
    return ((first, min(first + page_size, total)) for first in range(0, total, page_size))


def _with_partners(join: Join, number: int, rows: list[Places], form: Form) -> list[Places]:
    """Return the rows with those partners in an outer input for which its ON holds."""
    on = join.ons[number]
    formed = (form([places[first:last] for places in rows]) for first, last in _pages(len(rows[0])))
    holds = [np.asarray(value_of(piece, on).fill_null(False)) for piece in formed]
    is_kept = np.concatenate([np.empty(0, dtype=np.bool_), *holds])
    if is_kept.all():
        return rows
    other_places = [pa.array(places) for other, places in enumerate(rows) if other != number]
    coded = encode_keys(other_places, len(is_kept), 1, "")
    has_partner = np.zeros(coded.count, dtype=np.bool_)
    has_partner[coded.codes[is_kept]] = True
    without_partner = np.flatnonzero(~has_partner[coded.codes])
    _, first_of_each = np.unique(coded.codes[without_partner], return_index=True)
    without_partner = without_partner[first_of_each]
    is_kept[without_partner] = True
    rows[number] = rows[number].copy()
    rows[number][without_partner] = NO_ROW
    return [places[is_kept] for places in rows]
