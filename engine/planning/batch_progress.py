"""What a batch did: source tasks say it in parts, the batch record has it as a whole.

Each source task sends every partition one *control row*, a summary of what it read. Every partition works the whole out
from the same control rows, and so knows the watermarks that include the batch.
"""

from __future__ import annotations

import zlib
from collections.abc import Container, Mapping
from typing import Any

import orjson

from braid.engine.planning.idleness import raise_followers
from braid.engine.planning.offsets import Offset, advance_watermark
from braid.engine.planning.recent_times import Sum, keep_last, merged, percentile_of
from braid.operators import report


def progress_of(controls: list[dict[str, Any]], start: Offset, end: Offset) -> dict[str, Any]:
    """Bring together what the source tasks say: the part of the batch record that is not about results.

    A stream that some task could not read has no part in the batch: it stays where it was, and ``unread`` says why.
    """
    clocks, watermarks = dict(end.clocks), dict(end.watermarks)
    earliest: dict[str, int] = {}
    unread: dict[str, str] = {}
    for control in reversed(controls):
        unread.update(control["unread"])
    streams: dict[str, dict[str, Any]] = {
        stream: {
            "tuples": 0,
            "late": 0,
            "malformed": 0,
            "bytes": 0,
            "skipped": end.skipped.get(stream, 0),  # gone before the batch, whether the rest could be read or not
            "offsets": dict((end.begins if stream in unread else end.streams)[stream]),
            "unread": unread.get(stream),
        }
        for stream in end.streams
    }
    failures: dict[str, str] = dict(end.failed)
    for control in controls:
        failures.update(control["failures"])
        for stream, counts in control["streams"].items():
            if stream in unread:
                continue
            for name in ("tuples", "late", "malformed", "bytes"):
                streams[stream][name] += counts[name]
            if (first_us := counts["earliest_us"]) is not None:
                earliest[stream] = min(first_us, earliest.get(stream, first_us))
            latest = counts["latest_us"]
            clock = clocks.get(stream)
            if latest is not None and (clock is None or latest > clock):
                clocks[stream] = latest
    agreed = controls[0]  # all tasks say the same of these
    recent = _recent([control for control in controls if control["event_times"]], end, unread)
    for stream in streams:
        clock = clocks.get(stream)
        if stream in recent:
            clock = percentile_of(recent[stream], agreed["percentiles"][stream])
        lateness_us = agreed["lateness"].get(stream, 0)
        # a derived stream has no lateness: its watermark follows from those of its queries alone
        clock, lateness_us = (None, 0) if lateness_us is None else (clock, lateness_us)
        watermark = advance_watermark(watermarks.get(stream), clock, lateness_us)
        watermarks[stream] = watermark if stream in unread else advance_watermark(watermark, end.raised.get(stream), 0)
    return {
        "seq": end.seq,
        "epoch": end.epoch,
        "previous_epoch": start.epoch,
        "clocks_at_start": dict(end.clocks),  # an offset has those before the batch that ends at it
        "clocks": clocks,
        "watermarks": raise_followers(watermarks, agreed["follows"]),
        "joined": {stream: dict(end.begins[stream]) for stream in end.joined},
        "derived": agreed["derived"],
        "idle": list(end.idle),
        "earliest": earliest,
        "recent": recent,
        "planned_us": end.planned_us,
        "waiting": end.waiting,
        "started_us": min(control["started_us"] for control in controls),
        "source_busy_us": [control["busy_us"] for control in controls],
        "streams": streams,
        "failures": failures,
        "failed": dict(end.failed),
        "report": _report([control["report"] for control in controls if control["report"] is not None]),
    }


def digest_of(progress: Mapping[str, Any]) -> int:
    """Return a number that partitions have in common which worked out the same progress of the same tuples.

    ``progress`` is that of :func:`progress_of`, with the ``fired`` that a partition adds.
    """
    decisive = {name: progress[name] for name in ("seq", "clocks", "watermarks", "fired", "streams", "failures")}
    return zlib.crc32(orjson.dumps(decisive, option=orjson.OPT_SORT_KEYS))


def _recent(controls: list[dict[str, Any]], end: Offset, unread: Container[str]) -> dict[str, list[Sum]]:
    """Return the event times of the last tuples of streams with a ``watermark_percentile``, this batch included."""
    recent = {stream: list(sums) for stream, sums in end.recent.items()}
    new_sums: dict[str, list[Sum]] = {}
    for control in controls:
        for stream, times in control["event_times"].items():
            if stream not in unread:
                new_sums.setdefault(stream, []).append(times)
    for stream, sums in new_sums.items():
        recent[stream] = keep_last([*recent.get(stream, []), merged(sums)])
    return recent


def _report(task_reports: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Bring together what source tasks tell of their work; None when they tell nothing with this batch."""
    if not task_reports:
        return None
    samples: dict[str, list[str]] = {}
    for task_report in task_reports:
        for name, texts in task_report["samples"].items():
            samples.setdefault(name, []).extend(texts)
    return {"sources": report.merged(task_reports), "samples": samples}
