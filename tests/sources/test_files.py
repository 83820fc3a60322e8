"""The file connector: every record of every file once, in the order of discovery, however ranges are cut."""

from __future__ import annotations

import random
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braid.sources.connectors.connector import Extent
from braid.sources.connectors.files import index as file_index
from braid.sources.connectors.files.connector import DiscoveringFileConnector
from braid.sources.connectors.registry import validate_definition
from braid.sources.core.errors import NotAllowed, NotReady
from braid.sources.formats.parquet_rows import TEXT_BYTES
from tests.kit.waiting import wait_until
from tests.sources.file_folders import (
    DISCOVERED,
    SCHEMA,
    START,
    WRITERS,
    Files,
    discovered,
    keys,
    line,
    problem,
    read,
    row,
)


@pytest.mark.parametrize("form", WRITERS)
def test_any_range_of_any_format_reads_the_same_in_the_order_of_time_then_name(form: str, files: Files) -> None:
    write = WRITERS[form]
    write(files, "b", range(200, 300), 1)
    write(files, "c", range(100), 0)
    write(files, "a", range(100, 200), 1)
    planner, reader = files.planner(form), files.reader(form)
    discovered(planner, 300)
    expected = [*range(100), *range(100, 200), *range(200, 300)]
    assert read(reader, 0, 300) == expected
    rng = random.Random(1)
    for _ in range(20):
        start = rng.randint(0, 300)
        end = rng.randint(start, 300)
        assert read(reader, start, end) == expected[start:end]
    write(files, "0", range(300, 305), 0)  # older than others, but discovered later
    discovered(planner, 305)
    assert read(reader, 298, 305) == [298, 299, *range(300, 305)]
    sizes = [sum(c.bytes for c in reader.read("0", a, b)) for a, b in ((0, 305), (0, 150), (150, 305))]
    assert sizes[0] == sizes[1] + sizes[2] > 0
    assert {c.received_us for c in reader.read("0", 0, 100)} == {c.received_us for c in reader.read("0", 50, 60)}


def test_what_was_discovered_outlives_a_restart_and_is_not_read_again(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_index, "MAX_FILES", 3)
    for number in range(8):
        files.put(f"{number}.json", line(number), number)
    planner = files.planner()
    discovered(planner, 8)
    files.put("late.json", line(8), 0)
    discovered(planner, 9)
    del planner
    for name in ("0.json", "7.json"):
        (files.folder / name).unlink()  # read files may go
    again = files.planner()
    discovered(again, 9)
    files.put("last.json", line(9))
    discovered(again, 10)
    assert read(files.reader(), 1, 7) == [1, 2, 3, 4, 5, 6]
    assert read(files.reader(), 8, 10) == [8, 9]
    assert len(files.storage.names("streams/s-1/files")) == 4  # records of three files each, and one begun


def test_a_reader_that_was_opened_before_sees_what_is_added_to_the_last_record(files: Files) -> None:
    reader, planner = files.reader(), files.planner()
    for number in range(4):
        files.put(f"{number}.json", line(number))
        discovered(planner, number + 1)
        assert read(reader, 0, number + 1) == list(range(number + 1))
        assert reader.available(0) == {"0": Extent(0, number + 1)}
    with pytest.raises(NotReady, match="index"):
        read(reader, 0, 5)


def test_only_one_process_lists_the_files(files: Files) -> None:
    files.put("a.json", line(0))
    planner = files.planner()
    discovered(planner, 1)
    other_planner = files.planner()
    assert "One process at a time may list the files" in problem(other_planner)
    del planner
    discovered(other_planner, 1)


def test_nested_folders_are_read_and_hidden_and_unfinished_files_are_not(files: Files) -> None:
    files.put("2026/01/a.json", line(0), 0)
    files.put("2026/02/a.json", line(1), 1)
    for name in ("_temporary/0/part.json", ".git/x.json", "_SUCCESS", "b.json.tmp", "b.json._COPYING_", "2026/x.part"):
        files.put(name, line(99))
    files.put(".hidden.json", line(99))
    files.put("empty.json", b"")
    planner = files.planner()
    discovered(planner, 2)
    (files.folder / "_SUCCESS").rename(files.folder / "success.json")
    discovered(planner, 3)
    assert read(files.reader(), 0, 3) == [0, 1, 99]


def test_lines_that_do_not_fit_say_where_they_are(files: Files) -> None:
    lines = [line(0), b"{\n", b"\n", b" \r\n", b'{"k": "x", "t": "2026-01-01"}\r\n', b'{"k": 1, "s": "\xff"}\n', b"[1]"]
    path = files.put("a.json", b"\xef\xbb\xbf" + b"".join(lines))
    planner = files.planner()
    discovered(planner, 7)
    chunks = list(files.reader().read("0", 0, 7))
    assert keys(chunks) == [0]
    faults = [fault for chunk in chunks for fault in chunk.malformed]
    assert [fault.detail.split(" must")[0].split(":")[0] for fault in faults] == [
        f"{path}, line {number}" for number in (2, 5, 6, 7)
    ]
    assert [fault.raw for fault in faults] == ["{", '{"k": "x", "t": "2026-01-01"}', '{"k": 1, "s": "�"}', "[1]"]
    (alone,) = [fault for chunk in files.reader().read("0", 4, 5) for fault in chunk.malformed]
    assert alone == faults[1]


def test_rows_of_csv_that_do_not_fit_say_where_they_are(files: Files) -> None:
    body = b'\n"K" , T,more,S\r\n1,2026-01-01 00:00:00,,"a\n""b"""\n2,x,,\n\n3,2026-01-01 00:00:00,x\n4,,,\n"5'
    path = files.put("a.csv", body)
    discovered(files.planner("csv"), 6)
    (chunk,) = files.reader("csv").read("0", 0, 6)
    assert chunk.tuples.select(["k", "s"]).to_pylist() == [{"k": 1, "s": 'a\n"b"'}]
    assert [fault.detail for fault in chunk.malformed] == [
        f"{path}, row 2: column 't' must be a TIMESTAMP, got 'x' (expected RFC 3339, such as"
        " 2024-01-31T12:00:00.5Z or 2024-01-31 12:00:00; 'timestamp.format' declares another notation)",
        f"{path}, row 4 must have 4 fields, got 3",
        f"{path}, row 5: column 't' is the event time and must not be NULL or missing",
        f"{path}, row 6 must close the quotes that it opens",
    ]
    assert [fault.raw for fault in chunk.malformed] == ["2,x,,", "3,2026-01-01 00:00:00,x", "4,,,", '"5']


def test_csv_without_names_has_the_declared_columns_in_order(files: Files) -> None:
    files.put("a.csv", row(0).replace(b",", b"\t") + row(1).replace(b",", b"\t"))
    options = {"header": "false", "delimiter": "\t"}
    discovered(files.planner("csv", **options), 2)
    assert read(files.reader("csv", **options), 0, 2) == [0, 1]


def test_rows_of_parquet_that_do_not_fit_say_where_they_are(files: Files) -> None:
    path = files.folder / "a.parquet"
    pq.write_table(pa.table({"k": pa.array([1, 2**40, 3]), "s": ["a"] * 3, "t": [START, START, None]}), path)
    files.set_age(path, 0)
    discovered(files.planner("parquet"), 3)
    for ranges in ([(0, 3)], [(0, 1), (1, 2), (2, 3)]):
        chunks = [chunk for start, end in ranges for chunk in files.reader("parquet").read("0", start, end)]
        assert keys(chunks) == [1]
        places = [fault.detail.split(":")[0] for chunk in chunks for fault in chunk.malformed]
        assert places == [f"{path}, row 2", f"{path}, row 3"]


@pytest.mark.parametrize("form", WRITERS)
def test_a_replay_gives_records_as_time_passes(form: str, files: Files) -> None:
    WRITERS[form](files, "a", range(1000), 0)
    WRITERS[form](files, "b", range(1000, 1010), 1)
    created_us = 10**15
    definition = files.definition(form, created_us, replay_speed="10")
    planners = [DiscoveringFileConnector(definition, files.storage)]

    def end(seconds: float) -> int:
        extents = planners[0].available(created_us + int(seconds * 1e6))
        return extents["0"].end if extents else -1

    wait_until(lambda: end(1e6) == 1010, DISCOVERED, lambda: f"all is known, got {end(1e6)}")
    assert end(-1) == 0
    assert [end(seconds) for seconds in (0, 0.1, 1, 50, 99.95, 100, 101)] == [1, 2, 11, 501, 1000, 1001, 1010]
    planners.clear()
    again = DiscoveringFileConnector(definition, files.storage)
    wait_until(lambda: again.available(created_us + 10**6) == {"0": Extent(0, 11)}, DISCOVERED, "it is known again")


def test_a_replay_of_files_with_malformed_lines_and_late_times_gives_them_all(files: Files) -> None:
    files.put("a.json", b"no JSON\n")
    files.put("b.json", line(5) + b"no JSON\n\n" + line(1) + line(7), 1)
    files.put("c.json", line(2), 2)
    planner = DiscoveringFileConnector(files.definition(replay_speed="1.0"), files.storage)
    wait_until(lambda: planner.available(10**12) == {"0": Extent(0, 7)}, DISCOVERED, "all is known")
    ends = [planner.available(int(seconds * 1e6))["0"].end for seconds in (0, 1, 2, 3)]
    assert ends == sorted(ends)
    assert ends[0] >= 1
    assert ends[-1] == 7


@pytest.mark.parametrize(
    ("form", "options", "says"),
    [
        ("json", {"path": ""}, "needs a folder. Add path = 'FOLDER'"),
        ("json", {"header": "true"}, "with format 'json' has no option 'header'. It has 'path', 'replay_speed'"),
        ("csv", {"header": "maybe"}, "'header' must be 'true' or 'false'; got 'maybe'"),
        ("csv", {"delimiter": ";;"}, "one ASCII character"),
        ("xml", {}, "takes format 'json' or 'csv' or 'parquet'; got format 'xml'"),
        ("json", {"replay_speed": "0"}, "'replay_speed' must be a number above 0; got 0"),
        ("json", {"replay_speed": "fast"}, "'replay_speed' must be a number above 0; got 'fast'"),
        ("json", {"replay_speed": "nan"}, "'replay_speed' must be a number above 0"),
        ("json", {"path": "nowhere://x/y"}, "must be a folder or a URI; got 'nowhere://x/y'"),
    ],
)
def test_wrong_options_say_what_exists(form: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(NotAllowed) as refused:
        validate_definition("s", SCHEMA, "file", form, {"path": "events", **options})
    assert says in refused.value.detail


def test_times_of_int96_are_those_that_were_written_or_refused(files: Files) -> None:
    path = files.folder / "a.parquet"
    times = [datetime(1, 1, 1), datetime(1600, 2, 29), datetime(9999, 12, 31, 23, 59, 59, 999999)]
    columns = {"k": pa.array([1, 2, 3], pa.int32()), "s": ["a"] * 3, "t": pa.array(times, pa.timestamp("us"))}
    pq.write_table(pa.table(columns), path, use_deprecated_int96_timestamps=True)
    files.set_age(path, 0)
    discovered(files.planner("parquet"), 3)
    (chunk,) = files.reader("parquet").read("0", 0, 3)
    assert chunk.tuples.column("t").to_pylist() == times


def test_times_of_int96_that_are_none_of_64_bits_are_refused(files: Files) -> None:
    path = files.folder / "a.parquet"
    columns = {"k": pa.array([1], pa.int32()), "s": ["a"], "t": pa.array([START], pa.timestamp("us"))}
    pq.write_table(
        pa.table(columns), path, use_deprecated_int96_timestamps=True, use_dictionary=False, compression=None
    )
    content = path.read_bytes()
    day = (2440588 + (START - datetime(1970, 1, 1)).days).to_bytes(4, "little")
    assert day in content
    path.write_bytes(content.replace(day, (2**32 - 1).to_bytes(4, "little")))
    files.set_age(path, 0)
    discovered(files.planner("parquet"), 1)
    with pytest.raises(NotReady, match="Times of column 't' must be of the years 1 to 9999; row 1"):
        list(files.reader("parquet").read("0", 0, 1))


def test_long_texts_in_few_bytes_are_read_few_at_a_time(files: Files) -> None:
    path = files.folder / "a.parquet"
    rows, length = 50_000, 1 << 20
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), ["x" * length])
    pq.write_table(pa.table({"k": pa.array(range(rows), pa.int32()), "s": texts, "t": [START] * rows}), path)
    assert path.stat().st_size < length
    files.set_age(path, 0)
    discovered(files.planner("parquet"), rows)
    chunks = files.reader("parquet").read("0", 0, rows)
    for _ in range(3):
        chunk = next(chunks)
        assert chunk.tuples.nbytes <= 2 * TEXT_BYTES
        assert chunk.tuples.column("s")[0].as_py() == "x" * length


def test_a_footer_that_counts_other_rows_than_its_groups_is_refused(files: Files) -> None:
    path = files.folder / "a.parquet"
    pq.write_table(pa.table({"k": pa.array(range(77), pa.int32()), "s": ["a"] * 77, "t": [START] * 77}), path)
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    rows, more_rows = b"\x16\x9a\x01", b"\x16\xfe\x01"  # 77 and 127 as Thrift writes them; the file's come first
    path.write_bytes(content[:footer] + content[footer:].replace(rows, more_rows, 1))
    files.set_age(path, 0)
    assert "the 127 rows of the file together; they say 77" in problem(files.planner("parquet"))
