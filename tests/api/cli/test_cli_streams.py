"""`braid streams`, `braid tables` and `braid refresh`."""

from __future__ import annotations

import json

import pytest

from tests.api.cli.playback import STREAM, Braid, Playback, answer


@pytest.fixture(autouse=True)
def _at_the_service(service: Playback, monkeypatch: pytest.MonkeyPatch, braid: Braid) -> None:  # noqa: ARG001
    monkeypatch.setenv("BRAID_URL", service.url)


def test_the_list_of_streams_shows_clocks_and_counts(braid: Braid) -> None:
    lines = braid("streams").stdout.splitlines()
    assert lines[0].split()[0] == "name"
    assert "columns" not in lines[0].split()
    assert {"clock", "watermark", "tuples"} <= set(lines[0].split())
    assert json.loads(braid("streams", "--json").stdout) == STREAM


def test_an_input_that_was_malformed_again_when_the_past_was_read_is_listed_once(
    service: Playback, braid: Braid
) -> None:
    letter = {
        "reason": "malformed",
        "detail": "row 1",
        "received_at": "2026-01-01T00:00:00Z",
        "tuple": None,
        "raw": "x",
    }
    rows = [letter | {"query": query, "detail": f"row {n}"} for n, query in enumerate((None, "q-1", "q-2"))]
    rows += [letter | {"raw": "y", "query": None}]
    page = answer({"rows": rows, "cursor": "1"})
    service.play(page, answer({"rows": [], "cursor": "1"}), page, answer({"rows": [], "cursor": "1"}))
    shown = [line.split() for line in braid("streams", "purchases", "--dead-letters").stdout.splitlines()]
    assert [line[-1] for line in shown] == ["row", "x", "y"]
    assert len(braid("streams", "purchases", "--dead-letters", "--json").stdout.splitlines()) == len(rows)


def test_one_stream_is_shown_field_by_field(braid: Braid) -> None:
    lines = [" ".join(line.split()) for line in braid("streams", "purchases").stdout.splitlines()]
    assert "watermark 2026-01-01T00:00:02.500000Z" in lines
    assert "clock 2026-01-01T00:00:04Z" in lines
    assert lines[lines.index("columns") :] == ["columns", "name type", "user_id BIGINT", "time TIMESTAMP"]
    assert json.loads(braid("streams", "purchases", "--json").stdout) == STREAM
    assert braid("streams", "sales").exit_code == 1


def test_tables_are_listed(braid: Braid) -> None:
    assert braid("tables").stdout.splitlines()[1].split() == ["packs", "3", "-", "gem_pack", "INT"]


def test_one_table_is_shown_field_by_field(braid: Braid) -> None:
    lines = [" ".join(line.split()) for line in braid("tables", "packs").stdout.splitlines()]
    assert lines == ["name packs", "queries 3", "refreshed_at -", "", "columns", "name type", "gem_pack INT"]


def test_a_table_is_refreshed(braid: Braid) -> None:
    assert braid("refresh", "packs").stdout == "table packs is refreshed; 2 queries use it\n"
    assert braid("refresh", "packs", "--wait", "0").stdout == "table packs waits for the next batch; 2 queries use it\n"
    assert json.loads(braid("refresh", "packs", "--json").stdout)["refreshing"] is False
    refused = braid("refresh", "busy")
    assert refused.exit_code == 1
    assert "must be readable" in refused.stderr


def test_an_ended_stream_has_no_watermark(service: Playback, braid: Braid) -> None:
    service.play(answer({"streams": [STREAM | {"ended": True, "watermark": "9999-12-31T23:59:59.999999Z"}]}))
    listed = braid("streams").stdout
    assert "ended" in listed
    assert "9999" not in listed
    for words in (["streams", "purchases"], ["sql", "DESCRIBE purchases"]):
        service.play(answer(STREAM | {"ended": True, "watermark": "9999-12-31T23:59:59.999999Z"}))
        lines = braid(*words).stdout.splitlines()
        assert ["watermark", "ended"] in [line.split() for line in lines]


def test_dead_letters_are_printed_page_by_page(service: Playback, braid: Braid) -> None:
    late = {"reason": "late", "detail": "too late", "received_at": "2026-01-01T00:00:09Z", "query": None}
    bad = late | {"query": "q-1", "reason": "malformed", "detail": "line 2: not an object", "tuple": None, "raw": "bad"}
    pages = [{"rows": [late | {"tuple": {"a": 1}, "raw": None}], "cursor": "c1"}, {"rows": [bad], "cursor": "c2"}]
    service.play(*map(answer, [*pages, {"rows": [], "cursor": "c2"}]))
    printed = [line.split() for line in braid("streams", "purchases", "--dead-letters").stdout.splitlines()]
    assert printed[0] == ["received_at", "reason", "detail", "row"]
    assert printed[1] == ["2026-01-01T00:00:09Z", "late", "too", "late", '{"a":', "1}"]
    assert printed[-1] == ["2026-01-01T00:00:09Z", "malformed,", "q-1", "line", "2:", "not", "an", "object", "bad"]
    assert [request.query.get("after") for request in service.requests[-3:]] == [None, "c1", "c2"]
    gap = {"rows": [], "cursor": "c1", "gap": {"detail": "some are missing"}}
    service.play(*map(answer, [gap, {"rows": [bad], "cursor": "c2"}, {"rows": [], "cursor": "c2"}]))
    result = braid("streams", "purchases", "--dead-letters", "--json")
    assert (json.loads(result.stdout), result.stderr) == (bad, "some are missing\n")
    service.play(answer({"rows": [], "cursor": "c0"}))
    assert braid("streams", "purchases", "--dead-letters").stderr == "no row of purchases was late or malformed\n"
    assert braid("streams", "--dead-letters").exit_code == 2
    service.play(answer({"rows": [bad, bad], "cursor": "c2"}))
    assert len(braid("streams", "purchases", "--dead-letters", "--json", "--limit", "2").stdout.splitlines()) == 2
    assert service.requests[-1].query["limit"] == "2"
    assert "--dead-letters" in braid("streams", "purchases", "--limit", "2").stderr
