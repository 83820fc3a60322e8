"""Flink SQL: windows by table-valued function, and the older group windows where Flink refuses those."""

from __future__ import annotations

from collections.abc import Sequence

from braid.bench_driver.dialects import common
from braid.bench_driver.query_spec import ColumnRef, QuerySpec, WindowSpec
from braid.bench_driver.queues.datasets import find_dataset
from braid.bench_driver.workload import StreamSpec

# as fast as it can: the generator always has a rate, which is 10,000 unless told
UNLIMITED = 1_000_000_000
_PRICES = (0.99, 99.99)


def query_sql(spec: QuerySpec, probe: bool) -> str:
    """Return the query; a probe also gives the event times of definition 3."""
    sources = _joined(spec) if spec.is_join else _single(spec)
    return f"SELECT {common.select_list(spec, probe, _name)} FROM {sources}{_group_by(spec)}"


def source_sql(stream: StreamSpec, columns: Sequence[tuple[str, str]], rows_per_second: int | None) -> str:
    """Return the statement that declares a stream which Flink's own `datagen` makes up, None for as fast as it can.

    Its tuples resemble those of the driver's datasets: columns, types and ranges are the same, but every column is
    uniform, `key` too, as `datagen` has neither a normal distribution nor an unbounded round robin. The event time is
    when a tuple is made, so several tuples share a millisecond and the watermark stays one behind.
    """
    dataset = find_dataset(stream.dataset)
    limits = dataset.options(stream.options)
    declared, options = [], {"connector": "datagen", "rows-per-second": str(rows_per_second or UNLIMITED)}
    for name, kind in columns:
        if name == common.TIME:
            declared.append(f"`{name}` AS LOCALTIMESTAMP")
            continue
        declared.append(f"`{name}` {kind}")
        if name == "price":
            least, most = _PRICES
        else:
            least, most = 0, 0 if name == "key" and limits["one_key"] else limits[dataset.bounds[name]] - 1
        options |= {f"fields.{name}.min": str(least), f"fields.{name}.max": str(most)}
    declared.append(f"WATERMARK FOR `{common.TIME}` AS `{common.TIME}` - INTERVAL '0.001' SECOND")
    option_list = ", ".join(f"{common.text(key)} = {common.text(value)}" for key, value in options.items())
    return f"CREATE TABLE `{stream.name}` ({', '.join(declared)}) WITH ({option_list})"


def _name(column: ColumnRef) -> str:
    return f"`{column.stream}`.`{column.column}`"


def _interval(milliseconds: int) -> str:
    """Return an interval; Flink takes at most two digits of whole seconds unless told."""
    seconds, remainder = divmod(milliseconds, 1000)
    fraction = f".{remainder:03d}" if remainder else ""
    return f"INTERVAL '{seconds}{fraction}' SECOND({max(2, len(str(seconds)))}, 3)"


def _slide_divides_size(window: WindowSpec) -> bool:
    """Whether the slide divides the size, without which Flink does not aggregate the windows of HOP."""
    return window.size_ms % window.slide_ms == 0


def _windowed(spec: QuerySpec, stream: str) -> str:
    size, slide = _interval(spec.window.size_ms), _interval(spec.window.slide_ms)
    tumbling = spec.window.size_ms == spec.window.slide_ms
    function, lengths = ("TUMBLE", size) if tumbling else ("HOP", f"{slide}, {size}")
    return f"TABLE({function}(TABLE `{stream}`, DESCRIPTOR(`{common.TIME}`), {lengths})) AS `{stream}`"


def _conditions(spec: QuerySpec, stream: str) -> str:
    return common.where(
        [common.condition(comparison, _name) for comparison in spec.comparisons if comparison.stream == stream]
    )


def _single(spec: QuerySpec) -> str:
    stream = spec.streams[0]
    return (_windowed(spec, stream) if _slide_divides_size(spec.window) else f"`{stream}`") + _conditions(spec, stream)


def _joined(spec: QuerySpec) -> str:
    """Return window joins: inputs are equal in both bounds of their windows and in the join attributes."""
    inputs = [
        f"(SELECT * FROM {_windowed(spec, stream)}{_conditions(spec, stream)}) AS `{stream}`" for stream in spec.streams
    ]
    text = inputs[0]
    for number, (previous, stream) in enumerate(zip(spec.streams, spec.streams[1:], strict=False), start=1):
        conditions = [f"`{previous}`.{bound} = `{stream}`.{bound}" for bound in ("window_start", "window_end")]
        conditions += [common.join_condition(step, _name) for step in common.steps_to(spec, number)]
        text += f" JOIN {inputs[number]} ON {' AND '.join(conditions)}"
    return text


def _group_by(spec: QuerySpec) -> str:
    if spec.measure is None:
        return ""
    first = spec.streams[0]
    if _slide_divides_size(spec.window):
        window = f"`{first}`.window_start, `{first}`.window_end"
    elif spec.is_join:
        # all rows of a window have its last millisecond as their time
        window = f"TUMBLE(`{first}`.window_time, {_interval(1)})"
    else:
        time = _name(ColumnRef(first, common.TIME))
        window = f"HOP({time}, {_interval(spec.window.slide_ms)}, {_interval(spec.window.size_ms)})"
    return f" GROUP BY {', '.join([window, *map(_name, spec.keys)])}"
