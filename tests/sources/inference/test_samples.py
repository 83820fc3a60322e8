"""Samples of texts and files: their format, their columns, and what is cut or wrong in them."""

from __future__ import annotations

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braid.sources.core.errors import MalformedRequest
from braid.sources.inference import sample as samples
from braid.sources.inference.sample import CSV, JSON, PARQUET, Sample, form_of, sample_parquet, sample_texts

TIME = "2024-01-31T12:00:00Z"


def kinds(sample: Sample) -> dict[str, str]:
    return {column.name: str(column.type) for column in sample.columns}


def parquet_of(table: pa.Table, **options: int) -> pa.BufferReader:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return pa.BufferReader(sink.getvalue())


@pytest.mark.parametrize(
    ("head", "form"),
    [(b"PAR1\x15", PARQUET), (b' \n{"a": 1}', JSON), (b"\xef\xbb\xbf[{", JSON), (b"a,b\n1,2\n", CSV), (b"", CSV)],
)
def test_a_format_is_known_by_its_first_bytes(head: bytes, form: str) -> None:
    assert form_of(head) == form


def test_packed_samples_are_refused() -> None:
    with pytest.raises(MalformedRequest, match="gzip"):
        form_of(b"\x1f\x8b\x08")


@pytest.mark.parametrize(
    ("text", "options", "columns"),
    [
        ("a,b\n1,x\n2,\n", {}, {"a": "INT", "b": "VARCHAR"}),
        ("\ufeffa;b\r\n1;2,5\r\n", {"delimiter": ";"}, {"a": "INT", "b": "VARCHAR"}),
        ("a\tb\n1\t2.5\n", {"delimiter": "\t"}, {"a": "INT", "b": "DOUBLE"}),
        ("1,x\n2,y\n", {"header": "false"}, {"c1": "INT", "c2": "VARCHAR"}),
        (f"x,{TIME}\ny,{TIME}\n", {"header": "false"}, {"c1": "VARCHAR", "c2": "TIMESTAMP"}),
        ('a,b\n"x,\ny","1"\n', {}, {"a": "VARCHAR", "b": "INT"}),
        (",b\n0,1\n", {}, {"": "INT", "b": "INT"}),
        ("a;b\n1;2,5\n2;3\n3;4\n5\n5;6\n", {"delimiter": ";"}, {"a": "INT", "b": "VARCHAR"}),
    ],
)
def test_csv_tells_its_delimiter_and_whether_it_has_names(
    text: str, options: dict[str, str], columns: dict[str, str]
) -> None:
    sample = sample_texts(CSV, [text.encode()])
    assert (dict(sample.options), kinds(sample)) == (options, columns)


def test_what_is_known_of_csv_is_not_guessed() -> None:
    sample = sample_texts(CSV, [b"a;b,c\nx;y,z\n"], {"delimiter": ",", "header": "false"})
    assert kinds(sample) == {"c1": "VARCHAR", "c2": "VARCHAR"}
    assert sample.rows == 2


def test_rows_that_cannot_be_read_are_numbered() -> None:
    sample = sample_texts(CSV, [b'a,b\n1,2\n1\n3,4\n5,"6\n'])
    assert (sample.rows, sample.unreadable, kinds(sample)) == (2, [2, 4], {"a": "INT", "b": "INT"})
    sample = sample_texts(JSON, [b'{"a": 1}\nx\n{"a": 2}\n{"a":'])
    assert (sample.rows, sample.unreadable, kinds(sample)) == (2, [2, 4], {"a": "INT"})


def test_odd_values_are_found_by_the_numbers_of_their_rows() -> None:
    for form, text in (
        (CSV, b"ts,n\n1700000000,1\nx\n1700000001,2.5\nsoon,later\n"),
        (JSON, b'{"ts":1700000000,"n":1}\n\nx\n{"ts":1700000001,"n":2}\n{"ts":"soon","n":3}\n'),
    ):
        sample = sample_texts(form, [text])
        assert sample.columns[0].misfits == "'soon' (row 4)"
    assert "'later' (row 4)" in sample_texts(CSV, [b"n\n1\n1,1\n2.5\nlater\n"]).columns[0].why


@pytest.mark.parametrize(
    "text",
    [b'{"a": 1}\n{"a": 2, "b": "x"}\n', b'[{"a": 1}, {"a": 2, "b": "x"}]', b'[{"a": 1}, {"a": 2, "b": "x"}, {"a": 3'],
)
def test_json_is_an_object_a_line_or_an_array_that_may_be_cut(text: bytes) -> None:
    sample = sample_texts(JSON, [text])
    assert (sample.rows, kinds(sample), sample.is_array) == (2, {"a": "INT", "b": "VARCHAR"}, text[:1] == b"[")


def test_one_object_may_have_several_lines() -> None:
    assert kinds(sample_texts(JSON, [orjson.dumps({"a": 1, "b": 0.5}, option=orjson.OPT_INDENT_2)])) == {
        "a": "INT",
        "b": "DOUBLE",
    }


def test_integers_keep_their_digits() -> None:
    assert kinds(sample_texts(JSON, [b'{"a": 18446744073709551616}'])) == {"a": "DECIMAL(38,0)"}


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (CSV, b""),
        (CSV, b"a,b\n"),
        (CSV, b"a,b\n1\n"),
        (JSON, b"[1, 2]"),
        (JSON, b"{"),
        (JSON, b""),
        (CSV, b"a\n\xff\n"),
        (CSV, b"," * 10_000 + b"\n"),
    ],
)
def test_a_sample_without_a_row_is_refused(form: str, text: bytes) -> None:
    with pytest.raises(MalformedRequest):
        sample_texts(form, [text])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "The sample is empty"),
        (b"\n\n", "The sample is empty"),
        (b"a,b\n", r"no row of 2 field\(s\) besides the names"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "this is no text"),
        (b"name\nM\xfcller\n", "byte 7 is not. Convert it: iconv"),
    ],
)
def test_a_file_that_is_no_csv_is_refused_with_what_it_lacks(text: bytes, said: str) -> None:
    with pytest.raises(MalformedRequest, match=said):
        sample_texts(CSV, [text])


def test_of_much_text_the_first_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "SAMPLE_BYTES", 1000)
    monkeypatch.setattr(samples, "MAX_ROWS", 50)
    text = b"n,s\n" + b"".join(b"%d,\xc3\xa9\n" % n for n in range(10_000))
    for cut in (text, text[:1000], text[:1001]):
        sample = sample_texts(CSV, [cut])
        assert (sample.rows, sample.unreadable, kinds(sample)) == (50, [], {"n": "INT", "s": "VARCHAR"})
    lines = b"".join(b'{"n": %d, "s": "\xc3\xa9"}\n' % n for n in range(100_000))
    assert sample_texts(JSON, [lines[:1000]]).rows < 50
    assert sample_texts(JSON, [lines]).unreadable == []
    array = b"[" + lines.replace(b"\n", b",")
    assert sample_texts(JSON, [array[:1000]]).unreadable == []


def test_files_of_one_stream_have_the_same_columns() -> None:
    sample = sample_texts(CSV, [b"a,b\n1,2\n", b"a,b\n3,4.5\n"])
    assert (sample.rows, kinds(sample)) == (2, {"a": "INT", "b": "DOUBLE"})
    with pytest.raises(MalformedRequest, match="the same columns"):
        sample_texts(CSV, [b"a,b\n1,2\n", b"a,c\n3,4\n"])
    table = pa.table({"a": [1, 2]})
    assert sample_parquet([parquet_of(table), parquet_of(table)]).rows == 4
    with pytest.raises(MalformedRequest, match="the same columns"):
        sample_parquet([parquet_of(table), parquet_of(pa.table({"a": [1.5]}))])


def test_parquet_is_read_as_far_as_needed() -> None:
    table = pa.table({"a": list(range(50_000)), "nested": [{"x": 1}] * 50_000})
    sample = sample_parquet([parquet_of(table, row_group_size=30_000)])
    assert (sample.form, sample.rows, kinds(sample)) == (PARQUET, samples.MAX_ROWS, {"a": "BIGINT", "nested": "None"})


@pytest.mark.parametrize("body", [b"PAR1", b"PAR1" + bytes(100) + b"PAR1", b"x"])
def test_damaged_parquet_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        sample_parquet([pa.BufferReader(body)])


def test_parquet_without_a_row_is_refused() -> None:
    with pytest.raises(MalformedRequest, match="at least one row is needed"):
        sample_parquet([parquet_of(pa.table({"a": pa.array([], pa.int64())}))])
