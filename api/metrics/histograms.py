"""Prometheus' text format for thousands of series, which its client library takes a tenth of a second for.

Histograms of latencies are arrays, so that a batch of thousands of queries costs a few numpy calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from braid.api.metrics.families import Family
from braid.router.delivery.progress import LATENCY_SECONDS

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")


def family_text(family: Family, labels: Iterable[str], values: Iterable[object]) -> str:
    """Return a metric with its samples; ``labels`` are texts of :func:`labelled`."""
    lines = [f"{family.name}{{{label}}} {value}\n" for label, value in zip(labels, values, strict=True)]
    return _head(family) + "".join(lines)


def _head(family: Family) -> str:
    """Return what stands before the samples of a metric."""
    return f"# HELP {family.name} {family.meaning}\n# TYPE {family.name} {family.kind}\n"


def labelled(labels: Mapping[str, str]) -> str:
    """Return labels as they stand between braces."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def label_names(keys: Iterable[str]) -> dict[str, str]:
    """Return a label's name for each key that somebody chose: ``label_`` and the key, ``_`` for what no name may have.

    A name that another key has already gets a number, as in ``label_a_b_2``.
    """
    names: dict[str, str] = {}
    used_names: set[str] = set()
    for key in sorted(keys):
        name = base = f"label_{_NOT_IN_NAMES.sub('_', key)}"
        number = 1
        while name in used_names:
            number += 1
            name = f"{base}_{number}"
        used_names.add(name)
        names[key] = name
    return names


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


_BOUNDS = [*(str(bound) for bound in LATENCY_SECONDS), "+Inf"]


class Histograms:
    """One histogram a row: ``counts`` has shape (rows, buckets), not cumulative; ``sums`` (seconds) shape (rows,)."""

    def __init__(self, rows: int) -> None:
        self.counts = np.zeros((rows, len(_BOUNDS)), np.int64)
        self.sums = np.zeros(rows)

    def observe(self, rows: npt.NDArray[np.int64], seconds: npt.NDArray[np.float64]) -> None:
        """Count a latency for each of some rows; NaN is not counted."""
        is_known = ~np.isnan(seconds)
        rows, seconds = rows[is_known], seconds[is_known]
        np.add.at(self.counts, (rows, np.searchsorted(LATENCY_SECONDS, seconds)), 1)
        np.add.at(self.sums, rows, seconds)

    def clear(self, row: int) -> None:
        """Begin a row anew."""
        self.counts[row] = 0
        self.sums[row] = 0.0

    def copy(self) -> Histograms:
        """Return them as they are now."""
        copied = Histograms(0)
        copied.counts, copied.sums = self.counts.copy(), self.sums.copy()
        return copied

    def text(self, family: Family, rows: Sequence[int], ids: Sequence[str]) -> str:
        """Return the metric with the samples of some rows, whose ``query_id`` are given."""
        name, labels = family.name, '{query_id="\0"'
        template = "".join(f'{name}_bucket{labels},le="{bound}"}} %d\n' for bound in _BOUNDS)
        template += f"{name}_count{labels}}} %d\n{name}_sum{labels}}} %r\n"
        counts = np.cumsum(self.counts[rows], axis=1).tolist()
        sums = self.sums[rows].tolist()
        lines = [
            template.replace("\0", query_id) % (*cumulative, cumulative[-1], total)
            for query_id, cumulative, total in zip(ids, counts, sums, strict=True)
        ]
        return _head(family) + "".join(lines)
