"""Files of rows: whole, each row once, whatever moment the process ends at."""

from __future__ import annotations

import csv
import dataclasses
import datetime as dt
import errno
import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators.expressions import Column
from braid.operators.queries import Selection
from braid.operators.query_parts import Output
from braid.router.row_text import objects
from braid.router.sinks import file
from braid.router.sinks.sink import DelivererIdentity, RowsRefused, Sink, SinkDown, SinkRefused, SinkRows, Subject
from braid.sources.core.confinement import OPEN
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BIGINT, VARCHAR
from braid.sources.core.storage import Storage
from tests.kit.examples import examples
from tests.router.sinks.subjects import SELECTION, aggregation, rows_of, selected, subject


def opened(folder: Path, of: Subject, **options: str) -> Sink:
    all_options = {"path": str(folder), **options}
    file.validate(all_options, of.query, OPEN)
    return file.connect(all_options, DelivererIdentity("test")).open(of, all_options)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for path in sorted(folder.glob("*.ndjson")) for line in path.read_text().split("\n") if line
    ]


def as_json(rows: SinkRows) -> list[dict[str, Any]]:
    values: list[dict[str, Any]] = orjson.loads(orjson.dumps(objects(rows.table)))
    return values


def test_each_write_is_a_file_and_the_cursor_is_beside_it(tmp_path: Path) -> None:
    query = subject()
    sink = opened(tmp_path, query)
    assert sink.resume() is None
    first, second = rows_of(query, selected(20), 1), rows_of(query, selected(5, 20), 2)
    sink.write(first)
    sink.write(second)
    assert lines(tmp_path) == as_json(first) + as_json(second)
    assert len(list(tmp_path.glob("*.ndjson"))) == 2
    assert opened(tmp_path, query).resume() == "after 2"
    assert opened(tmp_path, subject()).resume() is None, "another query has another cursor"


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_all_types_are_read_back(tmp_path: Path, format: str) -> None:
    query = subject()
    sink = opened(tmp_path, query, format=format)
    sink.resume()
    rows = rows_of(query, selected(40), 1)
    sink.write(rows)
    (path,) = (entry for entry in tmp_path.iterdir() if entry.is_file())
    if format == "parquet":
        assert ds.dataset(str(path)).to_table().to_pylist() == rows.table.to_pylist()
    elif format == "json":
        assert lines(tmp_path) == as_json(rows)
    else:
        with path.open(newline="") as text:
            rows_read = list(csv.DictReader(text))
        plain = [{name: "" if value is None else value for name, value in row.items()} for row in as_json(rows)]
        for got, expected in zip(rows_read, plain, strict=True):
            assert got["s"] == expected["s"]
            assert got["at"] == expected["at"]
            assert got["day"] == expected["day"]
            assert got["b"] == str(expected["b"]).lower()
            for name in ("n", "i", "x", "d"):
                assert (got[name] and float(got[name])) == expected[name]


def test_partitions_are_folders_that_others_read(tmp_path: Path) -> None:
    query = subject()
    sink = opened(tmp_path, query, format="parquet", partition_by="s, i")
    sink.resume()
    rows = rows_of(query, [row for row in selected(60) if row["s"] != ""], 1)
    sink.write(rows)
    dataset = ds.dataset(str(tmp_path), format="parquet", partitioning="hive", exclude_invalid_files=False).to_table()
    names = rows.table.column_names
    by = [("n", "ascending")]
    assert dataset.select(names).sort_by(by).to_pylist() == rows.table.sort_by(by).to_pylist()  # type: ignore[arg-type]


@pytest.mark.parametrize("alias", ["../../../x", "..", ".", "/", "a/b", "\0"])
def test_no_name_of_a_column_leaves_the_folder(tmp_path: Path, alias: str) -> None:
    outputs = (Output(alias, Column("s", VARCHAR)), Output("n", Column("n", BIGINT)))
    query, root = subject(Selection("s-1", None, outputs)), tmp_path / "inside"
    sink = opened(root, query, partition_by=alias)
    sink.resume()
    sink.write(rows_of(query, [{alias: value, "n": 1} for value in ("..", "../..", ".", "/", "")], 1))
    files = list(tmp_path.rglob("*.ndjson"))
    assert len(files) == 5
    assert {path.parent.parent for path in files} == {root}
    assert opened(root, query, partition_by=alias).resume() == "after 1"


def test_long_values_have_folders_of_their_own(tmp_path: Path) -> None:
    query = subject()
    sink = opened(tmp_path, query, partition_by="s")
    sink.resume()
    texts = ["x" * 250, "x" * 250 + "y", "ü" * 100, "ü" * 100 + "y", "a" * 195 + "é"]
    sink.write(rows_of(query, [{**selected(1)[0], "s": text} for text in texts], 1))
    folders = [path.name for path in tmp_path.iterdir() if path.name != file.ASIDE]
    assert len(set(folders)) == len(texts)
    assert all(len(name.encode()) <= file.LONGEST_FOLDER for name in folders)
    assert opened(tmp_path, query, partition_by="s").resume() == "after 1"


def test_what_cannot_be_placed_does_not_count(tmp_path: Path) -> None:
    query = subject()
    sink = opened(tmp_path, query, partition_by="i,s")
    sink.resume()
    sink.write(rows_of(query, [{**selected(1)[0], "i": 1, "s": "a"}], 1))
    (tmp_path / "i=2").write_text("no folder")
    row = {**selected(1)[0], "i": 2, "s": "a"}
    with pytest.raises(RowsRefused, match="i=2"):
        sink.write(rows_of(query, [row], 2))
    again = opened(tmp_path, query, partition_by="i,s")
    assert again.resume() == "after 1"
    (tmp_path / "i=2").unlink()
    again.write(rows_of(query, [row], 2))
    assert opened(tmp_path, query, partition_by="i,s").resume() == "after 2"
    assert len(list(tmp_path.rglob("*.ndjson"))) == 2


def test_a_path_that_no_store_takes_is_refused(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(9)]
    outputs = tuple(Output(name, Column(name, VARCHAR)) for name in (*names, "rest"))
    query = subject(Selection("s-1", None, outputs))
    sink = opened(tmp_path, query, partition_by=",".join(names))
    sink.resume()
    with pytest.raises(RowsRefused, match="at most 1000 bytes"):
        sink.write(rows_of(query, [dict.fromkeys((*names, "rest"), "x" * 300)], 1))
    assert sink.resume() is None


@pytest.mark.parametrize(
    ("number", "means"),
    [
        (errno.ENAMETOOLONG, SinkRefused),
        (errno.EINVAL, SinkRefused),
        (errno.ENOTDIR, SinkRefused),
        (errno.EEXIST, SinkRefused),
        (errno.ENOSPC, SinkDown),
        (errno.EIO, SinkDown),
        (errno.EACCES, SinkDown),
        (errno.ESTALE, SinkDown),
    ],
)
def test_what_an_error_means(number: int, means: type[Exception]) -> None:
    assert type(file.failure(OSError(number, "said"))) is means


def test_a_column_of_a_folder_has_a_short_name() -> None:
    output = Output("x" * 101, Column("s", VARCHAR))
    query = dataclasses.replace(SELECTION, outputs=(*SELECTION.outputs, output))
    with pytest.raises(NotAllowed, match="at most 100 bytes"):
        file.validate({"path": "x", "partition_by": output.name}, query, OPEN)


class Crash(Exception):
    """The process ends here."""


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 12)), min_size=1, max_size=6), st.booleans())
def test_whatever_is_interrupted_rows_come_once(writes: list[tuple[int, int]], partitioned: bool) -> None:
    """Each write is cut off before one of the calls that change files; then the sink is opened anew, and goes on."""
    with tempfile.TemporaryDirectory() as folder:
        query, root = subject(), Path(folder)
        options = {"partition_by": "i"} if partitioned else {}
        expected, first = [], 0
        for seq, (count, survives) in enumerate(writes, 1):
            rows = rows_of(query, selected(count, first), seq)
            first += count
            expected += [row["n"] for row in rows.table.to_pylist()]
            with pytest.MonkeyPatch.context() as patch:
                calls_left = [survives]

                def counted(name: str, calls_left: list[int] = calls_left) -> Any:
                    whole = getattr(Storage, name)

                    def call(*arguments: Any, **keywords: Any) -> Any:
                        calls_left[0] -= 1
                        if calls_left[0] < 0:
                            raise Crash
                        return whole(*arguments, **keywords)

                    return call

                for name in ("put", "move", "delete"):
                    patch.setattr(Storage, name, counted(name))
                with suppress(Crash):
                    deliver(opened(root, query, **options), rows)
            deliver(opened(root, query, **options), rows)
        delivered = [
            json.loads(line)["n"]
            for path in sorted(root.rglob("*.ndjson"), key=lambda p: p.name)
            for line in path.read_text().split("\n")
            if line
        ]
        assert sorted(delivered) == sorted(expected)
        if not partitioned:
            assert delivered == expected


def deliver(sink: Sink, rows: SinkRows) -> None:
    """Write rows unless they are there: what a deliverer does."""
    if sink.resume() != rows.cursor:
        sink.write(rows)


def test_a_folder_can_be_demanded(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    assert file.locate("rows", str(inside)) == str(inside / "rows")
    for path in (str(outside), "../outside", "file:///etc"):
        with pytest.raises(NotAllowed, match="sink_folder"):
            file.locate(path, str(inside))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs the option 'path'"),
        ({"path": "x", "format": "xml"}, "'json', 'csv', 'parquet'; got 'xml'"),
        ({"path": "x", "partition_by": "nothing"}, "columns of the result.*got 'nothing'"),
        ({"path": "x", "partition_by": "n,i,x,d,s,b,day,at"}, "must not name all columns"),
        ({"path": "x", "color": "red"}, "has no option 'color'. It has 'path'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(NotAllowed, match=message):
        file.validate(options, SELECTION, OPEN)


def test_windows_are_partitions_by_their_times(tmp_path: Path) -> None:
    query = subject(aggregation())
    sink = opened(tmp_path, query, partition_by="window_start")
    sink.resume()
    start = dt.datetime(2026, 1, 1)
    sink.write(
        rows_of(query, [{"window_start": start, "window_end": start, "name": "a", "n": 1, "_partial": False}], 1)
    )
    (path,) = tmp_path.rglob("*.ndjson")
    assert path.parent.name == "window_start=2026-01-01T00%3A00%3A00.000000Z"
