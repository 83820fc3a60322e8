"""The report as `report.json` keeps it: what was measured, on what, and what gave no figure and why.

Lifecycle: `Document(...)` → `add_row`, `add_unsupported`, `add_failure` in any order, `write` after each, so that a
run that is interrupted keeps what it has. `read_document` gives back only what has this form.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

FORMAT = 1
FILE_NAME = "report.json"
# points kept of each time series of a row: enough for a plot as wide as a page
MAX_POINTS = 240

Row = Mapping[str, Any]
Point = Sequence[float]

_NUMBER = (int, float)
_MAYBE_NUMBER = (int, float, type(None))
_MAYBE_OBJECT = (dict, type(None))
_ROW: dict[str, tuple[type, ...]] = {
    "system": (str,),
    "workload": (str,),
    "queries": (int,),
    "sustainable_tuples_per_second": _MAYBE_NUMBER,
    "overall_tuples_per_second": _MAYBE_NUMBER,
    "slowest_tuples_per_second": _MAYBE_NUMBER,
    "query_throughput_per_second": _MAYBE_NUMBER,
    "event_time_latency_seconds": _MAYBE_OBJECT,
    "processing_time_latency_seconds": _MAYBE_OBJECT,
    "deployment_latency_seconds": _MAYBE_OBJECT,
    "sustained": (bool,),
    "seed": (int,),
    "settings": (dict,),
    "source": (str,),
    "error": (str, type(None)),
    "series": (dict,),
    "steps": (list,),
}
# what rows of older reports lack
_LATER: dict[str, tuple[type, ...]] = {"processor_cores": _MAYBE_NUMBER, "not_measured": (str, type(None))}
_QUANTILES = ("p50", "p95", "p99", "max")
_TOP: dict[str, tuple[type, ...]] = {
    "taken_at": (str,),
    "command": (str,),
    "machine": (dict,),
    "versions": (dict,),
    "settings": (dict,),
    "results": (list,),
    "unsupported": (list,),
    "failures": (list,),
}
# columns after the time: how the points of a stretch become one
_THINNING: dict[str, tuple[Callable[[Sequence[float]], float], ...]] = {"latency": (median, max)}


class ReportError(ValueError):
    """A file is not a report of the benchmark driver; the text says which file and what is wrong with it."""


class Document:
    """A report while it grows."""

    def __init__(
        self, command: str, settings: Mapping[str, Any], machine: Mapping[str, Any], versions: Mapping[str, Any]
    ) -> None:
        self.content: dict[str, Any] = {
            "format": FORMAT,
            "taken_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "command": command,
            "machine": dict(machine),
            "versions": dict(versions),
            "settings": _plain(settings),
            "results": [],
            "unsupported": [],
            "failures": [],
        }

    def add_row(self, row: Row) -> None:
        """Keep one result row, its series thinned to `MAX_POINTS`.

        Raises:
            ReportError: it lacks a key or has one of another type.
        """
        row = _plain(row)
        check_row(row, "a result row")
        series = {name: thin(points, MAX_POINTS, name) for name, points in row["series"].items()}
        self.content["results"].append({**row, "series": series})

    def add_unsupported(self, workload: str, queries: int | None, system: str, reason: str) -> None:
        """Keep that a system cannot run a workload's queries at all."""
        self.content["unsupported"].append(
            {"workload": workload, "queries": queries, "system": system, "reason": reason}
        )

    def add_failure(self, workload: str, queries: int, system: str, number: int, reason: str) -> None:
        """Keep why round `number` gave no figure for a system that should have had one."""
        self.content["failures"].append(
            {"workload": workload, "queries": queries, "system": system, "round": number, "reason": reason}
        )

    def write(self, folder: Path) -> Path:
        """Write `report.json` into a folder, whole or not at all, and return its path."""
        path = folder / FILE_NAME
        write_whole(path, json.dumps(self.content, ensure_ascii=False, separators=(",", ":"), allow_nan=False))
        return path


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader finds the old text or the new, never a part."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_document(path: Path) -> dict[str, Any]:
    """Return a report by its file or its folder.

    Raises:
        ReportError: there is no such file, or it is not a report of this format.
    """
    file = path / FILE_NAME if path.is_dir() else path
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"{file} cannot be read ({error.strerror}); name a report's folder or file") from error
    except ValueError as error:
        raise ReportError(f"{file} is not JSON: {error}") from error
    check_document(content, str(file))
    return dict(content)


def check_document(content: Any, name: str) -> None:
    """Raise ReportError unless this is a report of this format, with rows that are whole."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        form = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise ReportError(f"{name} is not a report of format {FORMAT} as `braid bench` writes it, got {form!r}")
    _check(content, _TOP, name)
    for position, row in enumerate(content["results"]):
        check_row(row, f"{name}, results[{position}]")
    for position, entry in enumerate(content["unsupported"]):
        entry_name = f"{name}, unsupported[{position}]"
        _check(entry, {"workload": (str,), "queries": (int, type(None)), "reason": (str,)}, entry_name)
    for position, entry in enumerate(content["failures"]):
        entry_name = f"{name}, failures[{position}]"
        _check(entry, {"workload": (str,), "queries": (int,), "system": (str,), "reason": (str,)}, entry_name)


def check_row(row: Any, name: str) -> None:
    """Raise ReportError unless this is a result row."""
    _check(row, _ROW, name)
    _check(row, {key: kinds for key, kinds in _LATER.items() if key in row}, name)
    for key in ("event_time_latency_seconds", "processing_time_latency_seconds", "deployment_latency_seconds"):
        if row[key] is not None:
            _check(row[key], dict.fromkeys(_QUANTILES, _NUMBER), f"{name}, {key}")
    if row["sustainable_tuples_per_second"] is None and row["error"] is None:
        raise ReportError(f"{name}: a row without sustainable_tuples_per_second must say why in error")
    for key, points in row["series"].items():
        if not isinstance(points, list) or not all(_is_point(point) for point in points):
            raise ReportError(f"{name}: series {key!r} must be a list of lists of numbers that begin with the time")


def thin(points: Sequence[Point], most: int, name: str = "") -> list[list[float]]:
    """Return at most `most` points `[time, value, …]`, none of whose peaks is lower than before.

    Neighbours become one point at the time of the first: the greatest of each value, except that the p50 of series
    "latency" becomes the median.
    """
    if len(points) <= most:
        return [list(point) for point in points]
    reducers = _THINNING.get(name, ())
    thinned = []
    for part in range(most):
        stretch = points[part * len(points) // most : (part + 1) * len(points) // most]
        merged = [stretch[0][0]]
        for column in range(1, len(stretch[0])):
            values = [point[column] for point in stretch if point[column] is not None]
            reduce = reducers[column - 1] if column <= len(reducers) else max
            merged.append(reduce(values) if values else None)  # type: ignore[arg-type]
        thinned.append(merged)
    return thinned


def _plain(value: Any) -> Any:
    """Return a value as JSON knows it: plain numbers, lists, objects; what is not finite becomes None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(part) for part in value]
    if callable(getattr(value, "item", None)):  # a number of numpy
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | None) else str(value)


def _is_point(point: Any) -> bool:
    return (
        isinstance(point, list | tuple)
        and len(point) >= 2
        and isinstance(point[0], _NUMBER)
        and all(isinstance(value, _MAYBE_NUMBER) for value in point)
    )


def _check(value: Any, keys: Mapping[str, tuple[type, ...]], name: str) -> None:
    if not isinstance(value, Mapping):
        raise ReportError(f"{name} must be an object, got {value!r}")
    for key, types in keys.items():
        if key not in value:
            raise ReportError(f"{name} lacks {key!r}; it has {', '.join(sorted(value))}")
        item = value[key]
        # True is an int to Python, but not a number of anything
        if not isinstance(item, types) or (isinstance(item, bool) and bool not in types):
            expected = " or ".join(kind.__name__ for kind in types)
            raise ReportError(f"{name}: {key!r} must be {expected}, got {item!r}")
