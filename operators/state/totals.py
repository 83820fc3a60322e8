"""Totals: the components of entries that are addressed by number, and how tuples are added to them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from braid.operators import kernels
from braid.operators.arrays import Numbers
from braid.operators.expressions import Expression
from braid.operators.kernels import double_double
from braid.operators.query_parts import Measure
from braid.operators.state import components
from braid.operators.state.addresses import Addresses
from braid.operators.state.components import COUNT_NAME, Component, Encoded

# with so many tuples per entry, a small part of them is likely to have one of each entry
_PER_ENTRY = 128
_EXTREMES = {"min": kernels.LEAST, "max": kernels.GREATEST}


def argument_of(measure: Measure) -> Expression:
    """Return the argument of a measure, which must have one: COUNT(*) has none."""
    assert measure.argument is not None
    return measure.argument


def accumulate(at: npt.NDArray[np.int32], size: int, encoded: Mapping[Measure, Encoded]) -> dict[str, Numbers]:
    """Return the components of ``size`` entries; counts that equal that of all tuples are left out."""
    totals = new_totals(size, encoded)
    add_up(totals, at, encoded)
    return totals


def entry_components(encoded: Mapping[Measure, Encoded]) -> dict[str, Component]:
    """Return the components of entries by their names; a count that equals that of all tuples is left out."""
    by_name = {COUNT_NAME: components.COUNT}
    for measure, values in encoded.items():
        if values.valid is not None:
            count_name = components.count_name(measure)
            by_name[count_name] = replace(components.COUNT, name=count_name)
        by_name |= {component.name: component for component in components.components_of(measure)}
    return by_name


def new_totals(size: int, encoded: Mapping[Measure, Encoded], without: Collection[str] = ()) -> dict[str, Numbers]:
    """Return the components of ``size`` entries without tuples, all but those named in ``without``."""
    by_name = entry_components(encoded)
    return {name: empty(component, size) for name, component in by_name.items() if name not in without}


def add_up(
    totals: dict[str, Numbers],
    at: npt.NDArray[np.int32],
    encoded: Mapping[Measure, Encoded],
    source: npt.NDArray[np.int32] | None = None,
) -> None:
    """Add tuples to entries: tuple ``source[i]``, or tuple i where it is None, to the entry ``at[i]``.

    Components that are not in ``totals`` are left out.
    """
    done = entry_components(encoded).keys() - totals.keys()
    for measure, values in encoded.items():
        count_name = components.count_name(measure)
        if values.valid is not None and count_name not in done:
            valid = values.valid if source is None else kernels.take(values.valid, source)
            kernels.add(totals[count_name], at, valid)
            done.add(count_name)
        for component in components.components_of(measure):
            if component.name in done:
                continue
            done.add(component.name)
            numbers, total = values.numbers[component.name], totals[component.name]
            numbers = numbers if source is None else kernels.take(numbers, source)
            if component.merge == "sum" and COUNT_NAME not in done and total.dtype.kind != "c":
                kernels.count_and_add(totals[COUNT_NAME], total, at, numbers)
                done.add(COUNT_NAME)
            else:
                merge_into(component, total, at, numbers)
    if COUNT_NAME not in done:
        kernels.count(totals[COUNT_NAME], at)


@dataclass(frozen=True)
class Run:
    """The tuples ``[low, high)``, whose entries have no other tuples.

    Queries select ``wanted`` of them, which lie in so many ``entries``.
    """

    low: int
    high: int
    wanted: int = 0
    entries: int = 0

    @property
    def is_dense(self) -> bool:
        """Whether a small part of them is likely to have a tuple of each entry."""
        return 0 < _PER_ENTRY * self.entries <= self.wanted


def add_looked_up(
    totals: Mapping[str, Numbers],
    addresses: Addresses,
    encoded: Mapping[Measure, Encoded],
    runs: Sequence[Run] | None = None,
) -> None:
    """Add tuples to the entries at their addresses; components that are not in ``totals`` are left out.

    ``runs`` are all tuples, None if nothing is known of them.
    """
    remaining = dict(totals)
    runs = [Run(0, len(addresses.column))] if runs is None else runs
    for measure, values in encoded.items():
        for component in components.components_of(measure):
            if component.merge in _EXTREMES and component.name in remaining:
                total = remaining.pop(component.name)
                for run in runs:
                    _keep_extremes(component, total, addresses, values, run)
    if remaining:
        add_up(remaining, addresses.of_tuples(), encoded)


def _keep_extremes(component: Component, total: Numbers, addresses: Addresses, values: Encoded, run: Run) -> None:
    """Merge the numbers of a run into ``total``, the least or greatest of each entry.

    Where numbers ascend, as event times mostly do, that is the first or the last of an entry, and few need be read.
    """
    way, numbers, column = _EXTREMES[component.merge], values.numbers[component.name], addresses.column
    pieces = addresses.cell.between(run.low, run.high)
    table = addresses.cell.least, addresses.offsets
    if not (run.is_dense and values.ascends(component.name)):
        for first, last, piece in pieces:
            kernels.merge_looked_up(way, total, piece, *table, column[first:last], numbers[first:last])
        return
    backwards, missing = way == kernels.GREATEST, run.entries
    entries, unset = total[: addresses.entries], component.neutral
    for first, last, piece in reversed(pieces) if backwards else pieces:
        parts = column[first:last], numbers[first:last]
        missing = kernels.set_looked_up(entries, unset, missing, piece, *table, *parts, backwards)
        if not missing:
            return


def empty(component: Component, size: int) -> Numbers:
    """Return so many neutral values."""
    if component.neutral == 0:
        return np.zeros(size, dtype=component.dtype)
    return np.full(size, component.neutral, dtype=component.dtype)


def merge_into(component: Component, total: Numbers, at: npt.NDArray[np.int32], numbers: Numbers) -> None:
    """Merge numbers into the entries at which they belong."""
    if total.dtype.kind == "c":
        double_double.add_at(total, at, numbers)
        return
    kernel = {"sum": kernels.add, "min": kernels.least, "max": kernels.greatest}[component.merge]
    kernel(total, at, numbers)
