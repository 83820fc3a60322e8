"""Files of text: every record is read once, wherever ranges are cut and however little is seen at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.sources.connectors.files import text
from braid.sources.connectors.files.index import IndexedFile
from braid.sources.connectors.files.options import FileOptions
from braid.sources.connectors.files.reading import FileFormat
from braid.sources.connectors.files.text import CsvFormat, JsonFormat
from braid.sources.core.errors import MalformedRequest
from braid.sources.core.schema import INT, TIMESTAMP, VARCHAR, Field, StreamSchema
from tests.kit.examples import examples

SCHEMA = StreamSchema((Field("k", INT), Field("s", VARCHAR), Field("t", TIMESTAMP)), "t", 0)

LINES = st.lists(
    st.one_of(
        st.builds(lambda s: json.dumps({"k": 1, "s": s, "t": "2026-01-01T00:00:00Z"}, ensure_ascii=False), st.text()),
        st.sampled_from(["", " ", "{", "[]", '{"k": "x", "t": "2026-01-01T00:00:00Z"}', "\x00", "é\u2028"]),
    ),
    max_size=12,
)
FIELDS = st.one_of(
    st.sampled_from(
        ["", "1", '"1"', '"a,b"', '"a\r\nb"', '""', '"x""y"', '"', 'a"b', '"a"b', "é", "2026-01-01 00:00:00"]
    ),
    st.text('",\r\n a1', max_size=4),
)
RECORDS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["1", "", "2"]), FIELDS, st.just("2026-01-01 00:00:00")).map(",".join),
        st.lists(FIELDS, max_size=4).map(",".join),
    ),
    max_size=10,
)


def check_every_cut(form: FileFormat, content: bytes, folder: Path) -> None:
    """Check that reading in two parts gives what reading at once does, for every cut."""
    path = folder / "content"
    path.write_bytes(content)
    with pa.OSFile(str(path)) as source:
        scan = form.scan(source, len(content))
        file = IndexedFile("", "", "", len(content), 0, 0, 0, scan.records, scan.marks)

        def inputs(start: int, end: int) -> tuple[list[object], list[tuple[int, str]], int]:
            pieces = list(form.read(source, file, start, end))
            assert sum(piece.records for piece in pieces) == end - start
            tuples = [row for piece in pieces for row in piece.decoded.tuples.to_pylist()]
            faults = [(piece.first + fault.line, fault.raw) for piece in pieces for fault in piece.decoded.malformed]
            return tuples, faults, sum(piece.bytes for piece in pieces)

        whole = inputs(0, scan.records)
        assert whole[2] == len(content) - scan.marks[0][1]
        for cut in range(scan.records + 1):
            first, second = inputs(0, cut), inputs(cut, scan.records)
            assert tuple(a + b for a, b in zip(first, second, strict=True)) == whole
        if isinstance(form, JsonFormat):
            lines = [line for line in content[scan.marks[0][1] :].split(b"\n") if line.strip(b" \t\r")]
            assert len(whole[0]) + len(whole[1]) == len(lines)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(LINES.map("\n".join), max_size=1), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.integers(1, 40))
def test_every_line_is_read_once_wherever_ranges_are_cut(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], end: str, tail: bool, size: int
) -> None:
    content = "".join(texts).replace("\n", end).encode(errors="replace") + (end.encode() if tail else b"")
    check_every_cut(JsonFormat(SCHEMA, size, size), content, tmp_path_factory.getbasetemp())


@settings(max_examples=examples(80), deadline=None)
@given(RECORDS, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.integers(1, 40), st.booleans())
def test_every_record_of_csv_is_read_once_wherever_ranges_are_cut(
    tmp_path_factory: pytest.TempPathFactory, records: list[str], end: str, tail: bool, size: int, header: bool
) -> None:
    names = f"k,s,t{end}" if header else ""
    content = (names + end.join(records) + (end if tail else "")).encode()
    form = CsvFormat(SCHEMA, FileOptions("x", "csv", header=header), size, size)
    check_every_cut(form, content, tmp_path_factory.getbasetemp())


def test_a_big_file_is_read_from_the_mark_before_the_first_record(tmp_path: Path) -> None:
    path = tmp_path / "big"
    rows = [f'{k},"a\n{k}",2026-01-01 00:00:00\n' for k in range(20_000)]
    path.write_text("k,s,t\n" + "".join(rows))
    size = path.stat().st_size
    form = CsvFormat(SCHEMA, FileOptions("x", "csv"), 10_000, 3_000)
    with pa.OSFile(str(path)) as source:
        scan = form.scan(source, size)
        assert scan.records == len(rows)
        assert len(scan.marks) > size // 10_000
        for record, position in scan.marks:
            assert position == len("k,s,t\n") + sum(map(len, rows[:record]))
        file = IndexedFile("", "", "", size, 0, 0, 0, scan.records, scan.marks)
        ranges = [(0, 20_000), (0, 7_777), (7_777, 7_778), (7_778, 20_000)]
        keys_read = [
            [k for piece in form.read(source, file, *bounds) for k in piece.decoded.tuples.column("k").to_pylist()]
            for bounds in ranges
        ]
        path.write_text("k,s,t\n" + "".join(rows).replace("\n15000,", "\nx5000,").replace("\n17,", "\n1,2,"))
    with pa.OSFile(str(path)) as source:
        faults = [
            (piece.first + fault.line, fault.raw)
            for piece in CsvFormat(SCHEMA, FileOptions("x", "csv")).read(source, file, 0, 20_000)
            for fault in piece.decoded.malformed
        ]
    assert [number for number, _ in faults] == [18, 15_001]
    assert keys_read[0] == list(range(20_000)) == keys_read[1] + keys_read[2] + keys_read[3]


@pytest.mark.parametrize("form", [JsonFormat(SCHEMA, 8), CsvFormat(SCHEMA, FileOptions("x", "csv"), 8)])
def test_a_record_without_end_is_refused(form: FileFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "LONGEST_RECORD", 100)
    path = tmp_path / "endless"
    content = b'k,s,t\n"' + b"x" * 1000
    path.write_bytes(content)
    with pa.OSFile(str(path)) as source, pytest.raises(MalformedRequest, match="must have at most 100 bytes"):
        form.scan(source, len(content))
