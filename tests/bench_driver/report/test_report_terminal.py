"""The table has a line for each case, the ratios, and every reason."""

from __future__ import annotations

from braid.bench_driver.report.document import Document
from braid.bench_driver.report.terminal import one_line, render, seconds, times
from tests.bench_driver.report.made_up_rows import made_up_row


def test_results_ratios_and_reasons_are_told() -> None:
    document = Document("braid bench", {}, {}, {})
    for system in ("braid", "spark-queries", "flink-jobs"):
        document.add_row(made_up_row(system, "astream-sc1", 20))
    document.add_failure("astream-sc1", 100, "spark-queries", 1, "not tried:\nit failed with 20 queries")
    document.add_unsupported("ajoin-sc1", 1, "braid", "n-way joins")
    document.add_unsupported("ajoin-sc1", 20, "braid", "n-way joins")
    lines = render(document.content).splitlines()
    (braid,) = (line for line in lines if line.split()[:3] == ["astream-sc1", "20", "braid"])
    assert "2,045,931" in braid.split()
    assert braid.endswith("0.90 s / 1.62 s     0.80 s / 1.30 s      -")
    assert any(line.endswith("not tried: it failed with 20 queries") for line in lines)
    (ratio,) = (line for line in lines if line.split()[:3] == ["astream-sc1", "20", "spark-queries"] and " x" in line)
    assert ratio.split()[3:7] == ["19", "x", "0.82", "x"]
    assert lines[-1] == "  ajoin-sc1 with 1, 20 queries on braid: n-way joins"


def test_nothing_measured_is_told() -> None:
    assert render(Document("braid bench", {}, {}, {}).content) == "Nothing was measured."


def test_figures_have_the_digits_that_count() -> None:
    assert [seconds(value) for value in (None, 0.123, 12.34, 123.4)] == ["-", "0.12 s", "12.3 s", "123 s"]
    assert [times(value) for value in (None, 0.5, 1234.5)] == ["-", "0.50 x", "1,234 x"]
    assert one_line("a\n  b") == "a b"
    assert one_line("word " * 50, 10) == "word word…"
