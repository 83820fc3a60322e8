"""NDJSON and JSON: what is accepted, what is told about the rest, and that the fast way gives the same."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from braid.sources.core.errors import MalformedRequest
from braid.sources.core.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    TIMESTAMP,
    VARCHAR,
    ColumnType,
    Field,
    StreamSchema,
)
from braid.sources.formats import decode, json_document, ndjson
from braid.sources.formats.json_document import lines_of, read_document
from braid.sources.formats.json_rows import elements_of, parse_json
from braid.sources.formats.ndjson import read_carefully, read_fast
from tests.kit.examples import examples

PURCHASES = StreamSchema(
    (Field("user_id", BIGINT), Field("gem_pack", INT), Field("price", DOUBLE), Field("time", TIMESTAMP)),
    "time",
    0,
)
EVERYTHING = StreamSchema(
    (
        Field("b", BOOLEAN),
        Field("i", INT),
        Field("n", BIGINT),
        Field("d", DOUBLE),
        Field("s", VARCHAR),
        Field("day", DATE),
        Field("Time", TIMESTAMP),
    ),
    "Time",
    0,
)
MONEY = StreamSchema((Field("m", ColumnType("DECIMAL", 38, 20)), Field("t", TIMESTAMP)), "t", 0)
NDJSON = "application/x-ndjson"
GOOD = b'{"user_id": 1, "gem_pack": 2, "price": 3.5, "time": "2024-01-01T00:00:00Z"}'


def details(body: bytes, content_type: str = NDJSON, schema: StreamSchema = PURCHASES) -> list[str]:
    return [m.detail for m in decode(body, content_type, schema).malformed]


def test_lines_become_tuples_in_order() -> None:
    lines = [
        orjson.dumps({"user_id": i, "gem_pack": i % 10, "price": i / 4, "time": f"2024-01-01 00:00:{i:02d}"})
        for i in range(60)
    ]
    decoded = decode(b"\n".join(lines), NDJSON + "; charset=utf-8", PURCHASES)
    assert decoded.malformed == ()
    assert decoded.tuples.schema == PURCHASES.arrow
    assert decoded.tuples.to_pylist() == [
        {"user_id": i, "gem_pack": i % 10, "price": i / 4, "time": datetime(2024, 1, 1, 0, 0, i)} for i in range(60)
    ]


def test_malformed_lines_are_told_with_their_number_and_text() -> None:
    body = b"\n".join([GOOD, b"", GOOD.replace(b"3.5", b'"abc"'), b" \r", b"{", b"[1]", GOOD])
    decoded = decode(body, NDJSON, PURCHASES)
    assert decoded.tuples.num_rows == 2
    assert [m.line for m in decoded.malformed] == [3, 5, 6]
    first, second, third = decoded.malformed
    assert first.detail == "line 3: column 'price' must be a DOUBLE, got 'abc'"
    assert first.raw == GOOD.replace(b"3.5", b'"abc"').decode()
    assert second.detail.startswith("line 5 must be JSON: ")
    assert third.detail == "line 6 must be a JSON object, got an array"


@pytest.mark.parametrize("body", [b'[{"user_id": 1}]', b'\n[\n {"user_id": 1}\n]\n'])
def test_an_array_sent_as_ndjson_is_refused_with_the_type_to_send(body: bytes) -> None:
    with pytest.raises(MalformedRequest, match="Send the array as application/json"):
        decode(body, NDJSON, PURCHASES)


@pytest.mark.parametrize(
    ("line", "part"),
    [
        (b'{"user_id": 1}', "column 'time' is the event time and must not be NULL or missing"),
        (b'{"user_id": 1, "time": null}', "column 'time' is the event time and must not be NULL or missing"),
        (GOOD.replace(b"1,", b"1.5,"), "column 'user_id' must be a BIGINT, got 1.5 (it must be whole)"),
        (GOOD.replace(b"1,", b"1e18,"), "must be a BIGINT, got 1e+18 (from 9007199254740992 on it must be written"),
        (GOOD.replace(b": 2,", b": 3000000000,"), "column 'gem_pack' must be an INT, got 3000000000"),
        (GOOD.replace(b"3.5", b"1e400"), "column 'price' must be a DOUBLE"),
        (GOOD.replace(b"3.5", b"NaN"), "must be JSON"),
        (GOOD + GOOD, "must be JSON"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "nested too deeply"),
        (
            GOOD.replace(b"00Z", b"00X"),
            "column 'time' must be a TIMESTAMP, got '2024-01-01T00:00:00X' (expected RFC",
        ),
    ],
)
def test_what_is_wrong_with_a_line(line: bytes, part: str) -> None:
    (detail,) = details(line)
    assert detail.startswith("line 1")
    assert part in detail


def test_names_match_exactly_before_they_match_in_another_case() -> None:
    body = b'{"S": "upper", "s": "exact", "TIME": "2024-01-01 00:00:00"}\n{"S": "upper", "tIME": "2024-01-01 00:00:00"}'
    assert decode(body, NDJSON, EVERYTHING).tuples.column("s").to_pylist() == ["exact", "upper"]


def test_unknown_fields_do_not_matter_whatever_they_hold() -> None:
    odd = b'"x": 1e400, "y": "\\ud800", "z": [[{"a": 12345678901234567890123}]], "x": 2, '
    body = b"{" + odd + GOOD[1:]
    assert decode(body, NDJSON, PURCHASES).tuples.num_rows == 1
    assert decode(b"[" + body + b"]", "application/json", PURCHASES).tuples.num_rows == 1


def test_decimals_keep_every_digit() -> None:
    times = b', "t": "2024-01-01 00:00:00"}'
    body = b'{"m": 123456789012345678.12345678901234567890' + times + b'\n{"m": "0.1"' + times
    values = decode(body, NDJSON, MONEY).tuples.column("m").to_pylist()
    assert values == [Decimal("123456789012345678.12345678901234567890"), Decimal("0.1")]
    (detail,) = details(body.split(b"\n")[1].replace(b'"0.1"', b"0.123456789012345678901"), NDJSON, MONEY)
    assert "must be a DECIMAL(38,20), got 0.123456789012345678901 (it must fit" in detail


def test_json_takes_an_object_or_an_array_and_numbers_elements() -> None:
    assert decode(GOOD, "application/json", PURCHASES).tuples.num_rows == 1
    decoded = decode(b"[" + GOOD + b", 5, " + GOOD + b', {"time": 1}]', "Application/JSON", PURCHASES)
    assert decoded.tuples.num_rows == 2
    assert [(m.line, m.raw) for m in decoded.malformed] == [(2, "5"), (4, '{"time":1}')]
    assert decoded.malformed[0].detail == "element 2 must be a JSON object, got 5"
    assert decode(b"[]", "application/json", PURCHASES).tuples.num_rows == 0


@pytest.mark.parametrize("body", [b"", b"5", b'"x"', b"[", b"[{}", b"nul", b"[" * 5000, b"\xff", b"[NaN]"])
def test_a_body_that_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest, match="The body must be"):
        decode(body, "application/json", PURCHASES)


@pytest.mark.parametrize("many", [1, 1000])
def test_a_line_that_is_no_utf8_is_malformed_alone(many: int) -> None:
    body = b"\n".join([GOOD] * many + [GOOD.replace(b"{", b'{"\xff": 1, ', 1)] + [GOOD] * many)
    decoded = decode(body, NDJSON, PURCHASES)
    assert decoded.tuples.num_rows == 2 * many
    (malformed,) = decoded.malformed
    assert malformed.line == many + 1
    assert "byte 3 is not UTF-8" in malformed.detail
    assert "\N{REPLACEMENT CHARACTER}" in str(malformed.raw)


@pytest.mark.parametrize("content_type", [NDJSON, "application/json"])
def test_a_byte_order_mark_is_no_part_of_the_text(content_type: str) -> None:
    assert decode(b"\xef\xbb\xbf" + GOOD, content_type, PURCHASES).tuples.num_rows == 1


def test_bytes_that_are_no_utf8_and_unknown_content_types_are_refused() -> None:
    with pytest.raises(MalformedRequest, match="byte 3 is not"):
        decode(b'{"\xff', "application/json", PURCHASES)
    with pytest.raises(MalformedRequest, match="application/x-ndjson, application/json, application/vnd"):
        decode(b"", "text/plain", PURCHASES)


def test_the_fast_way_is_taken_for_plain_bodies() -> None:
    assert read_fast(b"\n".join([GOOD] * 1000) + b"\n", PURCHASES) is not None
    assert read_fast(GOOD.replace(b'"price": 3.5', b'"price": null'), PURCHASES) is not None
    assert read_fast(GOOD.replace(b'"price"', b'"PRICE"'), PURCHASES) is None


TIMES = st.one_of(
    st.datetimes().map(lambda t: t.isoformat() + "Z"),
    st.datetimes().map(lambda t: t.isoformat(sep=" ")),
    st.sampled_from(["2024-01-01T00:00:00+01:00", "2024-01-01", "2024-01-01T00:00Z", "2024-01-01T00:00:00.1234567Z"]),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.dates().map(str),
    TIMES,
    st.sampled_from([-0.0, 0, 2**31, 2**63, "\ud83d\ude00", "NaN", "Infinity", '{"', "}\n{"]),
)
MEMBERS: dict[str, st.SearchStrategy[Any]] = {
    "b": st.booleans(),
    "i": st.integers(-(2**31), 2**31 - 1),
    "n": st.integers(-(2**63), 2**63 - 1),
    "d": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70),
    "s": st.text(),
    "day": st.dates().map(str),
    "Time": st.datetimes().map(lambda t: t.isoformat(timespec="microseconds") + "Z"),
}
GOOD_OBJECTS = st.fixed_dictionaries(
    {"Time": MEMBERS["Time"]},
    optional={n: m for n, m in {**MEMBERS, "other": st.text()}.items() if n != "Time"},
)
FULL_OBJECTS = st.fixed_dictionaries(MEMBERS)
ODD_OBJECTS = st.dictionaries(
    st.sampled_from([*MEMBERS, "time", "S", "N", "other"]),
    SCALARS | st.lists(SCALARS) | st.dictionaries(st.text(), SCALARS),
)
ODD_LINES = st.one_of(
    ODD_OBJECTS.map(json.dumps),
    st.sampled_from(
        [
            '{"i":1}{"i":2}',
            '{"i":',
            "1}",
            "",
            " ",
            "[1]",
            "5",
            "{}",
            '{"i":01}',
            '{"i":-0,"d":-0}',
            '{"i":1,}',
            "{'i':1}",
        ]
    ),
    st.sampled_from(
        [
            '{"d":1E5}',
            '{"d":1e400}',
            '{"d":NaN}',
            '{"x":Inf}',
            '{"x":1e400}',
            '{"i":1,"i":2}',
            '{"x":1,"x":2}',
            '\ufeff{"i":1}',
        ]
    ),
    st.text(alphabet='{}[]",:\\ \n\r\t\x000123.-+eEinds'),
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """NDJSON bodies: all good and alike, all good, or anything."""
    objects = st.lists(FULL_OBJECTS, max_size=8) | st.lists(GOOD_OBJECTS, max_size=8)
    good = objects.map(lambda rows: [json.dumps(r, ensure_ascii=draw(st.booleans())) for r in rows])
    lines = draw(
        good | st.lists(ODD_LINES, max_size=8) | st.lists(ODD_LINES | GOOD_OBJECTS.map(json.dumps), max_size=8)
    )
    return (
        draw(st.sampled_from(["\n", "\n", "\r\n", "\n\n"])).join(lines) + draw(st.sampled_from(["", "\n"]))
    ).encode()


@settings(max_examples=examples(200), deadline=None)
@given(bodies())
@example(b'{"Time":"2024-01-01T00:00:00Z","d":-0}')
@example(b'{"Time":"2024-01-01T00:00:00Z","d":-0.0}')
@example(b'{"Time":\n"2024-01-01T00:00:00Z"}')
@example(b'{"Time":"2024-01-01T00:00:00Z"}{"Time":\n"2024-01-01T00:00:00Z"}')
def test_the_fast_way_gives_what_the_careful_way_gives(body: bytes) -> None:
    fast = read_fast(body, EVERYTHING)
    careful = read_carefully(body, EVERYTHING)
    if fast is not None:
        assert careful.malformed == ()
        assert fast.equals(careful.tuples)
        assert repr(fast.column("d").to_pylist()) == repr(careful.tuples.column("d").to_pylist())


@settings(max_examples=examples(100))
@given(bodies(), st.integers(1, 5))
@example(b'{"d":NaN}\n{"d":1}', 3)
@example(b'{"d":1}\n{"d":1}', 8)
def test_it_makes_no_difference_where_blocks_end(body: bytes, size: int) -> None:
    whole = read_fast(body, EVERYTHING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ndjson, "CACHED_BYTES", size)
        in_blocks = read_fast(body, EVERYTHING)
    assert (whole is None) == (in_blocks is None)
    assert whole is None or whole.equals(in_blocks)


@st.composite
def arrays(draw: st.DrawFn) -> bytes:
    """Arrays of objects, all good or anything, some of them not closed well."""
    lines = draw(bodies()).decode().splitlines()
    separator = draw(st.sampled_from([",", ", ", ",", ", ", " ,", ",\n", "", "\n", ",,"]))
    before, after = draw(
        st.sampled_from([("[", "]"), ("[", "]"), (" [ ", " ]\n"), ("[", ""), ("[", ",]"), ("[", "]]")])
    )
    return (before + separator.join(lines) + after).encode()


@settings(max_examples=examples(200), deadline=None)
@given(arrays())
@example(b'[{"Time":"2024-01-01T00:00:00Z","s":"a},{b"}]')
@example(b'[{"Time":"2024-01-01T00:00:00Z","s":"},{"}]')
@example(b'[{"Time":"2024-01-01T00:00:00Z","s":"}, {","b":true}, {"Time":"2024-01-01T00:00:00Z"}]')
@example(b'[{"Time":"2024-01-01T00:00:00Z"}]')
@example(b'[{"Time":"2024-01-01T00:00:00Z"},]')
@example(b'[{"Time":"2024-01-01T00:00:00Z"}]]')
@example(b'[{"Time":"2024-01-01T00:00:00Z"}\n{"Time":"2024-01-01T00:00:00Z"}]')
def test_arrays_read_as_lines_give_what_the_careful_way_gives(body: bytes) -> None:
    lines = lines_of(body)
    fast = None if lines is None else read_fast(lines, EVERYTHING)
    if fast is not None:
        careful = read_document(body, EVERYTHING)
        assert careful.malformed == ()
        assert fast.equals(careful.tuples)
        assert repr(fast.column("d").to_pylist()) == repr(careful.tuples.column("d").to_pylist())


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_usual_arrays_are_read_as_lines(separators: tuple[str, str]) -> None:
    row = {"user_id": 1, "gem_pack": 2, "price": 3.5, "time": "2024-01-01T00:00:00Z"}
    lines = lines_of(json.dumps([row, row], separators=separators).encode() + b"\n")
    assert lines is not None
    assert read_fast(lines, PURCHASES) is not None


@settings(max_examples=examples(100), deadline=None)
@given(
    st.binary() | bodies(),
    st.sampled_from([EVERYTHING, MONEY]),
    st.sampled_from([NDJSON, "application/json"]),
)
def test_no_bytes_raise_anything_but_malformed_request(body: bytes, schema: StreamSchema, content_type: str) -> None:
    try:
        decoded = decode(body, content_type, schema)
    except MalformedRequest:
        return
    decoded.tuples.validate(full=True)
    assert decoded.tuples.column(schema.event_time).null_count == 0
    for malformed in decoded.malformed:
        malformed.detail.encode()
        malformed.raw.encode()


@given(st.lists(ODD_OBJECTS | GOOD_OBJECTS, max_size=6), st.sampled_from([EVERYTHING, MONEY]))
def test_both_json_formats_agree(rows: list[dict[str, Any]], schema: StreamSchema) -> None:
    texts = [json.dumps(row) for row in rows if "NaN" not in json.dumps(row) and "Infinity" not in json.dumps(row)]
    lines = decode("\n".join(texts).encode(), NDJSON, schema)
    document = decode(f"[{','.join(texts)}]".encode(), "application/json", schema)
    assert lines.tuples.equals(document.tuples)
    assert [m.line for m in lines.malformed] == [m.line for m in document.malformed]
    assert [m.detail.partition(":")[2] for m in lines.malformed] == [
        m.detail.partition(":")[2] for m in document.malformed
    ]


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["d", "i", "s", "Time"]), inner)
            ),
            max_leaves=6,
        ),
        max_size=6,
    ),
    st.sampled_from(["", "x", ",", "]", "[", " ", "1e999", '{"d":1e999}', '{"d":-1.5e-400}']),
    st.integers(0, 200),
    st.booleans(),
)
def test_elements_one_by_one_are_those_of_the_whole(elements: list[Any], extra: str, at: int, exact: bool) -> None:
    text = json.dumps(elements, ensure_ascii=False)
    body = f" {text[:at]}{extra}{text[at:]}\n".encode(errors="replace")
    if not body.lstrip().startswith(b"["):
        return
    try:
        whole = parse_json(body, exact)
    except ValueError:
        whole = None
    try:
        one_by_one = list(elements_of(body, exact))
    except ValueError:
        one_by_one = None
    assert (whole is None) == (one_by_one is None)
    if whole is not None and one_by_one is not None:
        assert list(map(repr, map(as_double, whole))) == list(map(repr, map(as_double, one_by_one)))


def as_double(value: Any) -> Any:
    """Return a JSON value whose numbers with fractions are all doubles: the whole is exact where one of it must be."""
    if isinstance(value, dict):
        return {name: as_double(member) for name, member in value.items()}
    if isinstance(value, list):
        return [as_double(member) for member in value]
    return float(value) if isinstance(value, Decimal) or type(value) is int else value


def test_a_large_array_is_decoded_as_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [b"[" + b",".join([GOOD] * 9000) + end for end in (b"]", b" , 7 ]", b",]", b"", b"]x")]
    wholes = [outcome(body) for body in bodies]
    monkeypatch.setattr(json_document, "WHOLE_BYTES", 0)
    assert [outcome(body) for body in bodies] == wholes


def outcome(body: bytes) -> Any:
    """Return what is accepted of a JSON body, and told of the rest."""
    try:
        decoded = read_document(body, PURCHASES)
    except MalformedRequest as problem:
        return problem.detail
    return decoded.tuples.num_rows, decoded.malformed
