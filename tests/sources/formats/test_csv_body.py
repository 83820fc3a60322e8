"""Pushed CSV: columns by the names of the first record, rows that do not fit, and what is refused as a whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.sources.core.errors import MalformedRequest, TooLarge
from braid.sources.core.schema import BIGINT, DOUBLE, TIMESTAMP, VARCHAR, Field, Schema, StreamSchema
from braid.sources.formats import csv_body, decode
from braid.sources.formats.csv_document import MAX_COLUMNS, decode_csv
from braid.sources.formats.decoded import Decoded
from braid.sources.formats.limits import DecodingLimits

CSV = "text/csv"
SCHEMA = StreamSchema((Field("k", BIGINT), Field("x", DOUBLE), Field("s", VARCHAR), Field("t", TIMESTAMP)), "t", 0)
TIME = "2026-01-01T00:00:00Z"


def test_columns_are_found_by_name_and_others_are_null() -> None:
    body = f'T,"more, or less",s,k\r\n{TIME},1,"a ""b""\n",5\r\n{TIME},,,\r\n'.encode()
    decoded = decode(b"\xef\xbb\xbf" + body, "Text/CSV; charset=utf-8", SCHEMA)
    assert (decoded.malformed, decoded.missing, decoded.unknown) == ((), ("x",), ("more, or less",))
    rows = [{name: row[name] for name in ("k", "x", "s")} for row in decoded.tuples.to_pylist()]
    assert rows == [{"k": 5, "x": None, "s": 'a "b"\n'}, {"k": None, "x": None, "s": None}]


def test_rows_that_do_not_fit_are_told_by_their_number() -> None:
    rows = [f"{n},{n / 2},text {n},{TIME}" for n in range(3000)]
    rows[7], rows[1700], rows[2999] = f"x,1,a,{TIME}", f'5,1,"a,{TIME}', "1,2"
    body = ("k,x,s,t\n" + "\n".join(rows[:1700] + rows[1701:])).encode()
    decoded = decode(body, CSV, SCHEMA)
    assert [fault.line for fault in decoded.malformed] == [8, 2999]
    first, last = decoded.malformed
    assert first.detail == "row 8: column 'k' must be a BIGINT, got 'x'"
    assert first.raw == rows[7]
    assert last.detail == "row 2999 must have 4 fields, got 2"
    assert decoded.tuples.num_rows == 2997


@pytest.mark.parametrize(
    ("form", "body", "detail"),
    [
        (CSV, f"k,t\n1,{TIME}\nx,{TIME}", "row 1002: column 'k'"),
        ("application/x-ndjson", f'{{"t": "{TIME}"}}\nx', "line 1002 must be JSON"),
        ("application/json", f'[{{"t": "{TIME}"}}, 5]', "element 1002 must be"),
    ],
)
def test_faults_of_a_piece_are_numbered_in_the_whole(form: str, body: str, detail: str) -> None:
    [fault] = decode(body.encode(), form, SCHEMA).numbered_from(1001).malformed
    assert fault.line == 1002
    assert fault.detail.startswith(detail)


def test_a_row_that_is_not_utf8_is_malformed_alone() -> None:
    decoded = decode(b"k,s,t\n1,\xff,2026-01-01 00:00:00\n2,a,2026-01-01 00:00:00\n", CSV, SCHEMA)
    assert decoded.tuples.column("k").to_pylist() == [2]
    assert decoded.malformed[0].detail == "row 1 must be UTF-8"


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["", "1", "-5", "1.0", "x"]),
        st.sampled_from(["", "1.5", "nan", "1e3", "abc"]),
        st.sampled_from(["", "a", '"b,c"', '"d\ne"', '""', "é", 'f"g']),
        st.sampled_from([TIME, "2026-01-01 00:00:00", "", "soon"]),
    ).map(",".join),
    max_size=12,
)


@given(ROWS, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.integers(1, 60))
def test_it_is_read_as_a_whole_document_wherever_it_is_cut(
    rows: list[str], end: str, is_ended: bool, size: int
) -> None:
    body = (end.join(["k,x,s,t", *rows]) + (end if is_ended else "")).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_body, "PIECE_BYTES", size)
        decoded = decode(body, CSV, SCHEMA)
    whole = decode_csv(body, SCHEMA)
    assert decoded.tuples.equals(whole.tuples)
    assert [fault[:2] for fault in decoded.malformed] == [fault[:2] for fault in whole.malformed]


@pytest.mark.parametrize(
    ("head", "read"),
    [
        ("k,x,s,t", decode_csv),
        ('\r\n\nk,x,"s",t,"a\n,""b"" ",c"d', decode_csv),
        ('k,x,"s",t,"a,""b"" ",c"d', lambda body, schema: decode(body, CSV, schema)),
    ],
)
def test_a_first_line_of_too_many_columns_is_refused_before_it_is_read(
    head: str, read: Callable[[bytes, Schema], Decoded]
) -> None:
    columns = 4 if head.endswith("t") else 6
    body = f"{head}{',y' * (MAX_COLUMNS - columns)}\n5,1,a,{TIME}{',' * (MAX_COLUMNS - 4)}\n".encode()
    assert read(body, SCHEMA).tuples.column("k").to_pylist() == [5]
    with pytest.raises(MalformedRequest, match="at most 10000 columns; its first line has more"):
        read(body.replace(b"y\n", b"y,y\n"), SCHEMA)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "The first line is empty; it must name the columns: k,x,s,t"),
        (b"\n\n", "The first line is empty"),
        (b"k,x,s\n1,2,a\n", "The first line lacks column 't'; it has 'k', 'x', 's'.$"),
        (f"1,2,a,{TIME}\n".encode(), "The first line lacks .* It must name columns of the stream: k,x,s,t"),
        (b"k,tt\n1,2\n", "it has 'k', 'tt'. Is it 'tt'?"),
        (f"t,k,K\n{TIME},1,2\n".encode(), "must have column 'k' once"),
        (f't,t\n{TIME},{TIME}\n'.encode(), "must have column 't' once"),
        (b'"t\n', "closed by quotes"),
        (b"\xff,t\n", "UTF-8"),
    ],
)  # fmt: skip
def test_names_that_do_not_fit_refuse_the_body(body: bytes, says: str) -> None:
    if b"k,K" in body:
        schema = StreamSchema((Field("kK", BIGINT, source="K"), Field("k", BIGINT), Field("t", TIMESTAMP)), "t", 0)
        assert decode(body, CSV, schema).tuples.num_rows == 1, "each is there in its own case"
        body = body.replace(b"k,K", b"K,K")
    with pytest.raises(MalformedRequest, match=says):
        decode(body, CSV, SCHEMA)


@pytest.mark.parametrize("delimiter", [";", "\t", "|", ","])
def test_the_names_tell_the_delimiter(delimiter: str) -> None:
    body = f'k{delimiter}s{delimiter}T\n1{delimiter}"a{delimiter}b"{delimiter}{TIME}\n'.encode()
    decoded = decode(body, CSV, SCHEMA)
    assert decoded.malformed == ()
    assert decoded.tuples.column("s").to_pylist() == [f"a{delimiter}b"]
    assert decoded.missing == ("x",)


@pytest.mark.parametrize("delimiter", csv_body.DELIMITERS)
def test_a_line_break_in_a_name_does_not_hide_the_delimiter(delimiter: str) -> None:
    body = f'"of\nno column"|k|t\n1|7|{TIME}\n'.replace("|", delimiter).encode()
    decoded = decode(body, CSV, SCHEMA)
    assert (decoded.tuples.column("k").to_pylist(), decoded.unknown) == ([7], ("of\nno column",))


def test_a_quote_that_stays_open_in_the_names_does_not_hide_the_delimiter() -> None:
    decoded = decode(f'k;5" wide;t\n7;1;{TIME}\n'.encode(), CSV, SCHEMA)
    assert decoded.tuples.column("k").to_pylist() == [7]


def test_a_body_without_any_column_of_the_stream_is_refused() -> None:
    schema = StreamSchema((Field("k", BIGINT), Field("t", TIMESTAMP, arrival=True)), "t", 0).stored
    with pytest.raises(MalformedRequest, match="The first line lacks column 'k'"):
        decode(b"a,b\n1,2\n", CSV, schema)


def test_columns_that_must_not_be_null_must_be_there() -> None:
    schema = StreamSchema((Field("k", BIGINT, not_null=True), Field("t", TIMESTAMP)), "t", 0)
    with pytest.raises(MalformedRequest, match="The first line lacks column 'k'"):
        decode(f"t\n{TIME}\n".encode(), CSV, schema)


def test_what_csv_cannot_have_is_refused() -> None:
    nested = StreamSchema((Field("id", BIGINT, source="$.user.id"), Field("t", TIMESTAMP)), "t", 0)
    with pytest.raises(MalformedRequest, match="Push JSON, or an Arrow stream"):
        decode(f"user,t\n1,{TIME}\n".encode(), CSV, nested)
    with pytest.raises(MalformedRequest, match="header=absent is not taken"):
        decode(f"1,{TIME}\n".encode(), "text/csv; header=absent", SCHEMA)


def test_limits_hold() -> None:
    body = ("k,t\n" + f"1,{TIME}\n" * 10).encode()
    with pytest.raises(TooLarge, match="at most 9 rows"):
        decode(body, CSV, SCHEMA, DecodingLimits(rows=9))
    assert decode(body, CSV, SCHEMA, DecodingLimits(rows=10)).tuples.num_rows == 10
    with pytest.raises(TooLarge, match="unpack to at most 100 bytes"):
        decode(body, CSV, SCHEMA, DecodingLimits(unpacked_bytes=100))
    with pytest.raises(MalformedRequest, match="at most 2 malformed rows"):
        decode(body.replace(b"\n1", b"\nx"), CSV, SCHEMA, DecodingLimits(malformed=2))
