"""`braid streams`, `braid tables` and `braid push`."""

from __future__ import annotations

import io
import json
import subprocess
from functools import partial
from pathlib import Path

import pytest

from braid.api.cli.streams import ndjson_pieces
from tests.api.cli.playback import DEADLINE_SECONDS, STREAM, Braid, Playback, Start, answer, problem

EVENTS = "/streams/purchases/events"


@pytest.fixture(autouse=True)
def _at_the_service(service: Playback, monkeypatch: pytest.MonkeyPatch, braid: Braid) -> None:  # noqa: ARG001
    monkeypatch.setenv("BRAID_URL", service.url)


def test_the_list_of_streams_shows_clocks_and_counts(braid: Braid) -> None:
    lines = braid("streams").stdout.splitlines()
    assert lines[0].split()[0] == "name"
    assert "columns" not in lines[0].split()
    assert {"clock", "watermark", "tuples"} <= set(lines[0].split())
    assert json.loads(braid("streams", "--json").stdout) == STREAM


def test_one_stream_is_shown_field_by_field(braid: Braid) -> None:
    lines = [" ".join(line.split()) for line in braid("streams", "purchases").stdout.splitlines()]
    assert "watermark 2026-01-01T00:00:02.500000Z" in lines
    assert "clock 2026-01-01T00:00:04Z" in lines
    assert "columns user_id BIGINT, time TIMESTAMP" in lines
    assert json.loads(braid("streams", "purchases", "--json").stdout) == STREAM
    assert braid("streams", "sales").exit_code == 1


def test_tables_are_listed(braid: Braid) -> None:
    assert braid("tables").stdout.splitlines()[1].split() == ["packs", "3", "gem_pack", "INT"]


def test_a_table_is_refreshed(braid: Braid) -> None:
    assert braid("refresh", "packs").stdout == "table packs is refreshed; 2 queries use it\n"
    assert braid("refresh", "packs", "--wait", "0").stdout == "table packs waits for the next batch; 2 queries use it\n"
    assert json.loads(braid("refresh", "packs", "--json").stdout)["refreshing"] is False
    refused = braid("refresh", "busy")
    assert refused.exit_code == 1
    assert "must be readable" in refused.stderr


def test_push_fails_where_all_rows_are_rejected(service: Playback, braid: Braid, tmp_path: Path) -> None:
    file = tmp_path / "events.ndjson"
    file.write_text("bad\nworse\n")
    result = braid("push", "purchases", str(file))
    assert (result.exit_code, result.stdout) == (1, "accepted 0, rejected 2\n")
    assert result.stderr == "line 1: not an object\nline 2: not an object\n"
    service.play(answer({"accepted": 0, "rejected": 1, "errors": [{"line": 1, "detail": "line 1: must be JSON: no"}]}))
    result = braid("push", "purchases", str(file))
    assert result.stderr.endswith("Are these no JSON objects, one a line? Then say what they are: --format csv, …\n")


def test_push_takes_the_format_that_a_file_ends_with(service: Playback, braid: Braid, tmp_path: Path) -> None:
    file = tmp_path / "events.csv"
    file.write_text("a,b\n1,2\n")
    braid("push", "purchases", str(file))
    assert service.requests[-1].headers["content-type"] == "text/csv"


def test_push_names_rows_of_csv_as_dead_letters_do(braid: Braid, tmp_path: Path) -> None:
    file = tmp_path / "events.csv"
    file.write_text("bad\n")
    assert braid("push", "purchases", str(file)).stderr == "row 1: not an object\n"


def test_push_names_the_columns_that_csv_lacks(service: Playback, braid: Braid, tmp_path: Path) -> None:
    file = tmp_path / "events.csv"
    file.write_text("user,time\n")
    pushed = {"accepted": 0, "rejected": 0, "errors": [], "missing": ["user_id"]}
    service.play(answer(pushed))
    assert braid("push", "purchases", str(file)).stderr == (
        "purchases has columns that are not in the first line, and are NULL: user_id\n"
    )
    service.play(answer(pushed))
    assert json.loads(braid("push", "purchases", str(file), "--json").stdout) == pushed


def test_an_ended_stream_has_no_watermark(service: Playback, braid: Braid) -> None:
    service.play(answer({"streams": [STREAM | {"ended": True, "watermark": "9999-12-31T23:59:59.999999Z"}]}))
    listed = braid("streams").stdout
    assert "ended" in listed
    assert "9999" not in listed
    service.play(answer(STREAM | {"ended": True, "watermark": "9999-12-31T23:59:59.999999Z"}))
    lines = braid("streams", "purchases").stdout.splitlines()
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


def test_push_says_how_many_rows_were_late(service: Playback, braid: Braid, tmp_path: Path) -> None:
    file = tmp_path / "events.json"
    file.write_text("[]")
    pushed = {"accepted": 3, "rejected": 0, "errors": [], "late": 2}
    service.play(answer(pushed))
    result = braid("push", "purchases", str(file))
    assert result.stdout == "accepted 3, rejected 0\n"
    assert result.stderr == (
        "2 of the accepted rows are late, below the watermark of purchases: queries that run do not see them. `braid"
        " streams purchases --dead-letters` lists them.\n"
    )
    service.play(answer(pushed))
    assert json.loads(braid("push", "purchases", str(file), "--json").stdout) == pushed


def test_push_counts_what_was_accepted_and_names_bad_lines(service: Playback, braid: Braid, tmp_path: Path) -> None:
    file = tmp_path / "events.ndjson"
    file.write_text('{"a": 1}\nbad\n{"a": 2}')
    result = braid("push", "purchases", str(file))
    assert result.exit_code == 0
    assert result.stdout == "accepted 2, rejected 1\n"
    assert result.stderr == "line 2: not an object\n"
    assert b"".join(request.body for request in service.asked("POST", EVENTS)) == file.read_bytes()
    assert json.loads(braid("push", "purchases", str(file), "--json").stdout) == {
        "accepted": 2,
        "rejected": 1,
        "errors": [{"line": 2, "detail": "not an object"}],
    }


def test_a_big_file_is_pushed_in_pieces_of_whole_lines(service: Playback, braid: Braid, tmp_path: Path) -> None:
    lines = ['{"a": "' + "x" * 1000 + '"}'] * 2500
    lines[2400] = "bad"
    file = tmp_path / "events.ndjson"
    file.write_text("\n".join(lines) + "\n")
    result = braid("push", "purchases", str(file), "--key", "k")
    assert result.stdout == "accepted 2499, rejected 1\n"
    assert result.stderr == "line 2401: not an object\n"
    pieces = service.asked("POST", EVENTS)
    assert len(pieces) > 1
    assert all(piece.body.endswith(b"\n") for piece in pieces)
    assert b"".join(piece.body for piece in pieces) == file.read_bytes()
    keys = [piece.headers["idempotency-key"] for piece in pieces]
    assert keys == [f"k-{number}" for number in range(len(pieces))]


def test_a_pipe_is_pushed_as_it_comes(service: Playback, start: Start) -> None:
    def pushed(count: int) -> bool:
        return len(service.asked("POST", EVENTS)) == count

    process = start("push", "purchases", stdin=subprocess.PIPE)
    assert process.stdin is not None
    for number in range(1, 4):
        process.stdin.write(b'{"a": %d}\n' % number)
        process.stdin.flush()
        service.wait_until(partial(pushed, number))
    out, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert (out, err) == (b"accepted 3, rejected 0\n", b"")


@pytest.mark.parametrize(("form", "media_type"), [("json", "json"), ("arrow", "vnd.apache.arrow.stream")])
def test_other_formats_are_pushed_in_one_piece(service: Playback, braid: Braid, form: str, media_type: str) -> None:
    body = b"{" + bytes(3 << 20)
    assert braid("push", "purchases", "--format", form, input=body).exit_code == 0
    assert service.last().body == body
    assert service.last().headers["content-type"] == f"application/{media_type}"


def test_a_refused_piece_says_how_far_it_came(service: Playback, braid: Braid, tmp_path: Path) -> None:
    file = tmp_path / "events.ndjson"
    file.write_text(('{"a": "' + "x" * 1000 + '"}\n') * 2500)
    service.play(
        answer({"accepted": 1000, "rejected": 0, "errors": []}),
        problem(429, "Too Many Requests", "slow down"),
    )
    result = braid("push", "purchases", str(file))
    assert result.exit_code == 1
    assert result.stdout == ""
    lines = service.requests[0].body.count(b"\n")
    assert result.stderr.startswith(f"Up to line {lines}: accepted 1000, rejected 0. Then:\n")
    assert "429 Too Many Requests" in result.stderr


def test_pushing_nothing_still_needs_a_stream(braid: Braid) -> None:
    assert braid("push", "purchases", input="").stdout == "accepted 0, rejected 0\n"
    assert braid("push", "sales", input="").exit_code == 1
    assert braid("push", "sales", input="{}\n").exit_code == 1


def test_pieces_are_cut_alike_whenever_they_must_be() -> None:
    body = b"".join(b'{"n": %d}\n' % number for number in range(300_000)) + b'{"last": 1}'

    class Slow(io.RawIOBase):
        """Gives a few bytes at a time, as a pipe may."""

        def __init__(self) -> None:
            self.at = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            piece = body[self.at : self.at + min(len(buffer), 7919)]
            buffer[: len(piece)] = piece
            self.at += len(piece)
            return len(piece)

    from_file = list(ndjson_pieces(io.BytesIO(body), steady=True))
    assert list(ndjson_pieces(io.BufferedReader(Slow()), steady=True)) == from_file
    assert b"".join(from_file) == body
    as_it_comes = list(ndjson_pieces(io.BufferedReader(Slow()), steady=False))
    assert len(as_it_comes) > len(from_file)
    assert b"".join(as_it_comes) == body
    assert all(piece.endswith(b"\n") for piece in as_it_comes[:-1])
