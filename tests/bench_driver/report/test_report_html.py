"""The page has all sections, needs nothing else, is small, and shows texts as they are."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from braid.bench_driver.report.document import Document
from braid.bench_driver.report.html import render_page
from tests.bench_driver.report.made_up_rows import SYSTEMS, made_up_row

VOID = {"meta", "br", "path", "use", "rect"}


def full_document(workloads: tuple[str, ...], counts: tuple[int, ...], rounds: int) -> Document:
    """Return a report of all systems, one of which failed and one of which is unsupported."""
    settings = {"seed": 4, "rounds": rounds, "quick": False, "seconds": None}
    machine = {"processor": "Made up 3000", "cores": 4, "load_before": [0.1, 0.1, 0.1]}
    document = Document("braid bench --peers spark,flink", settings, machine, {"pyspark": "4.3.0", "java": None})
    for workload in workloads:
        for queries in counts:
            for number in range(1, rounds + 1):
                for system in SYSTEMS:
                    document.add_row({**made_up_row(system, workload, queries), "round": number})
    document.add_failure(workloads[0], 5000, "flink-jobs", 1, "not tried: it <b>failed</b>")
    document.add_unsupported("ajoin-sc1", 20, "spark-fused", "multiple streams & windows")
    return document


class Outline(HTMLParser):
    """Collects ids, headings and links, and checks that tags close."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.open: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src"):
                self.targets.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def outline(page: str) -> Outline:
    parsed = Outline()
    parsed.feed(page)
    assert parsed.open == []
    return parsed


@pytest.fixture(scope="module")
def page() -> str:
    return render_page(full_document(("astream-sc1", "rovio-join"), (1, 20, 100, 1000), 2).content)


@pytest.mark.parametrize(
    "words",
    [
        "Throughput against number of queries",
        "Overall throughput against number of queries",
        "Event-time latency over time",
        "Deployment latency",
        "Queue length over time",
        "Pull interval over time",
        "How the sustainable rates were found",
        "Unsupported",
        "Failures",
        "Machine and versions",
        "Settings and seeds",
        "Definitions",
        "Made up 3000",
        "4.3.0",
        "local[2]",
        "own generator",
        "ajoin-sc1 with 20 queries on spark-fused: multiple streams &amp; windows",
        "not tried: it &lt;b&gt;failed&lt;/b&gt;",
    ],
)
def test_everything_is_on_the_page(page: str, words: str) -> None:
    assert words in page.replace("&#34;", '"')


def test_the_page_needs_nothing_else(page: str) -> None:
    assert "http" not in page
    assert "@import" not in page
    assert "<script" not in page
    parsed = outline(page)
    assert all(target.startswith("#") for target in parsed.targets)
    # every reference inside the page leads somewhere
    assert {target[1:] for target in parsed.targets} <= set(parsed.ids)
    assert set(re.findall(r"url\(#([^)]*)\)", page)) <= set(parsed.ids)


def test_every_workload_has_its_plots_with_names_for_those_who_do_not_see_them(page: str) -> None:
    assert outline(page).tags.count("svg") == 2 * 6
    labels = re.findall(r'<svg role="img" aria-label="([^"]+)"', page)
    assert len(labels) == 2 * 6


def test_colours_are_the_pages(page: str) -> None:
    drawings = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert "var(--series-1)" in drawings
    assert set(re.findall(r"#[0-9a-f]{6}\b", drawings)) <= {"#000000"}
    for number in range(1, 9):
        assert page.count(f"--series-{number}:") == 2  # light and dark


def test_a_big_report_is_below_three_megabytes(page: str) -> None:
    # it grows with its workloads, of which this one has two
    assert 3 * len(page.encode()) < 3_000_000, "a report of six workloads"


def test_one_number_of_queries_gives_bars() -> None:
    page = render_page(full_document(("rovio-join",), (1,), 3).content)
    assert "<h3>Throughput</h3>" in page
    assert "against number of queries" not in page
    assert "Overall throughput" not in page


def test_a_long_reason_is_short_first_and_whole_behind_it() -> None:
    document = Document("braid bench x", {}, {"cores": 2}, {})
    reason = "ended by itself:\n" + "\n".join(f"  at frame {number}" for number in range(100)) + "\nCaused by: <it>"
    document.add_failure("x", 1, "spark-queries", 1, reason)
    page = render_page(document.content)
    outline(page)
    assert "<summary>ended by itself: at frame 0 at frame 1" in page
    assert page.count("Caused by: &lt;it&gt;</pre>") == 1
    assert page.count("at frame 50") == 1


def test_a_fluctuating_rate_is_shown() -> None:
    document = full_document(("fluctuating",), (1,), 1)
    assert "Rate offered" not in render_page(document.content)
    document.content["results"][0]["series"]["rate"] = [[0.0, 84.0], [30.0, 84.0], [30.0, 28.0], [60.0, 28.0]]
    assert "Rate offered over time" in render_page(document.content)


def test_a_report_without_figures_is_a_page() -> None:
    document = Document("braid bench x", {"quick": True}, {"cores": 2, "load_before": [3.0]}, {})
    page = render_page(document.content)
    assert "Nothing was measured." in page
    assert "A quick run" in page
    assert "The machine was busy" in page
    document.add_failure("x", 1, "braid", 1, "did not start")
    assert "did not start" in render_page(document.content)


def test_a_row_with_nothing_but_a_rate_is_shown() -> None:
    nothing = dict.fromkeys(
        ("event_time_latency_seconds", "processing_time_latency_seconds", "deployment_latency_seconds")
    )
    document = Document("braid bench x", {}, {"cores": 2}, {})
    document.add_row(made_up_row("braid", "a-workload-of-another-version", 1, **nothing, series={}, steps=[]))
    page = render_page(document.content)
    outline(page)
    assert page.count("<svg") == 1
