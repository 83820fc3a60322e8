"""CSV in pieces: Arrow's parser and reading field by field give the same, and records end where they end."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.sources.core.errors import MalformedRequest
from braid.sources.core.schema import BIGINT, BOOLEAN, DATE, DOUBLE, INT, TIMESTAMP, VARCHAR, ColumnType, Field, Schema
from braid.sources.formats.csv_records import (
    CsvLayout,
    read_carefully,
    read_fast,
    record_ends,
    split_fields,
)
from tests.kit.examples import examples

SCHEMA = Schema(
    (
        Field("big", BIGINT),
        Field("x", DOUBLE),
        Field("s", VARCHAR),
        Field("price", ColumnType("DECIMAL", 6, 2)),
        Field("ok", BOOLEAN),
        Field("at", TIMESTAMP),
        Field("small", INT),
        Field("day", DATE),
    )
)
LAYOUT = CsvLayout.declared(SCHEMA, ",")
GOOD = (
    ("1", "", "-5", '"7"', " 3 ", "007"),
    ("1.5", "", "1e5", "-0.0", ".5", "5.", " 2"),
    ("", "a", '"b,c"', '"d\ne"', '""', '"x""y"', "é", '"\r\n"'),
    ("1.5", "", "-0.01", "1e2", " 1.2", "+3", "1.230"),
    ("true", "False", "", "TRUE"),
    ("2026-01-01T00:00:00Z", "", "2026-01-01T00:00:00.5Z"),
    ("1", "", "-2147483648"),
    ("2026-01-01", ""),
)
WRONG = ("+1", "0x1F", "nan", "inf", "1e400", "12345.6", "0.001", "2147483648", '"', 'a"b', '"a"b', "x", "\x00", '"" ')
ROWS = st.one_of(
    st.tuples(*map(st.sampled_from, GOOD)).map(",".join),
    st.tuples(*map(st.sampled_from, GOOD)).map(",".join),
    st.tuples(*(st.sampled_from((*good, *WRONG)) for good in GOOD)).map(",".join),
    st.lists(st.sampled_from(WRONG), max_size=9).map(",".join),
    st.text('",\r\n a1', max_size=6),
)
TEXTS = st.tuples(st.lists(ROWS, max_size=4), st.sampled_from(["\n", "\r\n"]), st.booleans()).map(
    lambda given: (given[1].join(given[0]) + (given[1] if given[2] else "")).encode()
)


@settings(max_examples=examples(300), deadline=None)
@given(TEXTS)
def test_what_arrow_reads_is_what_reading_field_by_field_gives(text: bytes) -> None:
    fast = read_fast(text, SCHEMA, LAYOUT)
    careful = read_carefully(text, SCHEMA, LAYOUT)
    if fast is not None:
        assert not careful.malformed
        assert fast.equals(careful.tuples)


def ends_by_character(text: str) -> list[int]:
    """Return the positions after records, read one character after the other."""
    ends: list[int] = []
    state = "begin"
    for position, character in enumerate(text, 1):
        if character == '"' and state in ("begin", "closed"):
            state = "quoted"
        elif state == "quoted":
            state = "closed" if character == '"' else "quoted"
        else:
            state = "begin" if character in ",\n" else "plain"
            if character == "\n":
                ends.append(position)
    return ends


def test_records_end_where_reading_one_character_after_the_other_finds_it() -> None:
    for length in range(9):
        for characters in itertools.product('",\na', repeat=length):
            text = "".join(characters)
            assert record_ends(text.encode(), ",").tolist() == ends_by_character(text)


@settings(max_examples=examples(100), deadline=None)
@given(TEXTS)
def test_where_records_end_does_not_depend_on_how_much_is_seen(text: bytes) -> None:
    ends = record_ends(text, ",").tolist()
    for cut in range(len(text)):
        assert record_ends(text[:cut], ",").tolist() == [end for end in ends if end <= cut]
    for end in ends:
        assert record_ends(text[end:], ",").tolist() == [later - end for later in ends if later > end]


def test_plain_text_takes_the_fast_way() -> None:
    text = b'1,1.5,"a ""b"", c\n",1.50,true,2026-01-01T00:00:00Z,2,2026-01-01\r\n\n,,,,,,,\n'
    fast = read_fast(text, SCHEMA, LAYOUT)
    assert fast is not None
    assert fast.column("s").to_pylist() == ['a "b", c\n', None]


def test_a_row_that_is_not_utf8_is_malformed_alone() -> None:
    layout = CsvLayout.declared(Schema((Field("s", VARCHAR),)), ";")
    assert read_fast(b"a\n\xff\nb", Schema((Field("s", VARCHAR),)), layout) is None
    decoded = read_carefully(b"a\n\xff\nb", Schema((Field("s", VARCHAR),)), layout)
    assert decoded.tuples.column("s").to_pylist() == ["a", "b"]
    assert decoded.malformed == ((2, "row 2 must be UTF-8", "�"),)


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        (b"a,b\r\n", [b"a", b"b"]),
        (b',"",a"b,"c"d\n', [None, b"", b'a"b', b"cd"]),
        (b'"a\n"",",\n', [b'a\n",', None]),
        (b'"a', None),
    ],
)
def test_fields_of_a_record(record: bytes, fields: list[bytes | None] | None) -> None:
    assert split_fields(record, ",") == fields


@pytest.mark.parametrize(
    ("names", "says"), [(b'"big', "closed by quotes"), (b"\xff", "UTF-8"), (b"big,x", "lacks column 's'")]
)
def test_names_that_are_not_those_of_the_columns_are_refused(names: bytes, says: str) -> None:
    with pytest.raises(MalformedRequest, match=says):
        CsvLayout.named(names, SCHEMA, ",")
