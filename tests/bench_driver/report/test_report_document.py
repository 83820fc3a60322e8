"""A report is written whole, read back the same, and refused when it is not one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from braid.bench_driver.report.document import (
    FILE_NAME,
    MAX_POINTS,
    Document,
    ReportError,
    read_document,
    thin,
)
from tests.bench_driver.report.made_up_rows import made_up_row


@pytest.fixture
def document() -> Document:
    return Document("braid bench astream-sc1", {"seed": 4, "rounds": 1}, {"cores": 2}, {"pyspark": "4.3.0"})


def test_what_is_written_is_read_back(document: Document, tmp_path: Path) -> None:
    row = made_up_row("braid", "astream-sc1", 20)
    document.add_row(row)
    document.add_unsupported("ajoin-sc1", 5, "spark-fused", "joins of five streams")
    document.add_failure("astream-sc1", 100, "spark-queries", 1, "ended by itself")
    path = document.write(tmp_path)
    assert path == tmp_path / FILE_NAME
    assert read_document(path) == read_document(tmp_path) == document.content
    written_row = document.content["results"][0]
    assert {**written_row, "series": None} == {**row, "series": None}
    assert [entry.name for entry in tmp_path.iterdir()] == [FILE_NAME]
    assert document.content["format"] == 1


def test_numbers_of_numpy_and_what_is_not_finite_are_plain(document: Document, tmp_path: Path) -> None:
    series = {"queue_length": [[np.float64(0.5), np.int64(7)], [1.0, float("nan")]]}
    row = made_up_row("braid", "astream-sc1", 1, overall_tuples_per_second=np.int64(5), series=series)
    document.add_row({**row, "settings": {"folder": Path("x"), "load": float("inf")}})
    written_row = read_document(document.write(tmp_path))["results"][0]
    assert written_row["overall_tuples_per_second"] == 5
    assert written_row["series"]["queue_length"] == [[0.5, 7], [1.0, None]]
    assert written_row["settings"] == {"folder": "x", "load": None}


def test_a_failed_write_leaves_the_old_report(document: Document, tmp_path: Path) -> None:
    before = document.write(tmp_path).read_bytes()
    document.content["machine"]["load"] = object()
    with pytest.raises(TypeError):
        document.write(tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"queries": "20"}, "'queries' must be int, got '20'"),
        ({"queries": True}, "'queries' must be int, got True"),
        ({"sustained": None}, "'sustained' must be bool"),
        ({"sustainable_tuples_per_second": None}, "must say why in error"),
        ({"event_time_latency_seconds": {"p50": 1.0}}, "lacks 'p95'"),
        ({"series": {"latency": [[1.0]]}}, "series 'latency'"),
        ({"series": {"latency": [["now", 1.0]]}}, "series 'latency'"),
    ],
)
def test_a_row_that_is_not_one_is_refused_and_changes_nothing(
    document: Document, changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(ReportError, match=words):
        document.add_row(made_up_row("braid", "astream-sc1", 20) | changed)
    assert document.content["results"] == []


def test_a_row_lacks_no_key(document: Document) -> None:
    row = made_up_row("braid", "astream-sc1", 20)
    for key in row:
        with pytest.raises(ReportError, match=f"lacks '{key}'"):
            document.add_row({name: value for name, value in row.items() if name != key})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a report of format 1 .* got 'list'"),
        ('{"format": 2}', "is not a report of format 1 .* got 2"),
        ('{"format": 1}', "lacks 'taken_at'"),
    ],
)
def test_a_file_that_is_not_a_report_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(ReportError, match=words):
        read_document(tmp_path)


def test_a_report_with_a_broken_part_is_refused_by_its_place(document: Document, tmp_path: Path) -> None:
    document.add_row(made_up_row("braid", "astream-sc1", 20))
    content = json.loads(json.dumps(document.content))
    for part, broken, words in (
        ("results", {"system": "braid"}, r"results\[0\] lacks 'workload'"),
        ("failures", {"workload": "x", "queries": 1, "reason": "y"}, r"failures\[0\] lacks 'system'"),
        ("unsupported", "x", r"unsupported\[0\] must be an object, got 'x'"),
    ):
        (tmp_path / FILE_NAME).write_text(json.dumps({**content, part: [broken]}))
        with pytest.raises(ReportError, match=words):
            read_document(tmp_path)


def test_no_such_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="No such file"):
        read_document(tmp_path / "nothing")


def test_thinning_keeps_the_peaks_and_the_order() -> None:
    points = [[i / 10, float(i % 97)] for i in range(1000)]
    thinned = thin(points, 50, "queue_length")
    assert len(thinned) == 50
    assert max(value for _, value in thinned) == 96.0
    assert [at for at, _ in thinned] == sorted(at for at, _ in thinned)
    assert thinned[0][0] == 0.0
    assert thin(points[:50], 50) == points[:50]


def test_thinned_latency_is_the_median_below_the_maximum() -> None:
    points = [[0.0, 1.0, 2.0], [0.1, 5.0, 9.0], [0.2, 1.5, 2.5], [0.3, 1.0, None]]
    assert thin(points, 2, "latency") == [[0.0, 3.0, 9.0], [0.2, 1.25, 2.5]]


def test_a_row_keeps_few_points(document: Document) -> None:
    document.add_row(made_up_row("braid", "astream-sc1", 20))
    assert max(map(len, document.content["results"][0]["series"].values())) == MAX_POINTS
