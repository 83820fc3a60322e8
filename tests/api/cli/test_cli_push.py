"""`braid push`."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from braid.api.cli.push import csv_pieces, ndjson_pieces
from tests.api.cli.playback import DEADLINE_SECONDS, STREAM, Braid, Playback, Start, answer, problem
from tests.api.cli.test_cli_query import ended, read_until, terminal

EVENTS = "/streams/purchases/events"


@pytest.fixture(autouse=True)
def _at_the_service(service: Playback, monkeypatch: pytest.MonkeyPatch, braid: Braid) -> None:  # noqa: ARG001
    monkeypatch.setenv("BRAID_URL", service.url)


def test_push_fails_where_all_rows_are_rejected(braid: Braid, tmp_path: Path) -> None:
    file = tmp_path / "events.ndjson"
    file.write_text("bad\nworse\n")
    result = braid("push", "purchases", str(file))
    assert (result.exit_code, result.stdout) == (1, "accepted 0, rejected 2\n")
    assert result.stderr == "line 1: not an object\nline 2: not an object\n"


def test_what_is_no_json_is_refused_before_it_is_pushed_unless_someone_said_that_it_is(
    service: Playback, braid: Braid, tmp_path: Path
) -> None:
    file = tmp_path / "events.txt"
    file.write_text("user_id;price\n1;2\n")
    for result in (braid("push", "purchases", str(file)), braid("push", "purchases", input=file.read_text())):
        assert result.exit_code == 2
        assert "it begins with 'user_id;price" in result.stderr
        assert "--format csv" in result.stderr
    assert not service.asked("POST", EVENTS)
    assert braid("push", "purchases", str(file), "--format", "ndjson").stdout == "accepted 0, rejected 2\n"


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
    pushed = {"accepted": 0, "rejected": 0, "errors": [], "missing": ["user_id"], "unknown": ["user", "us"]}
    service.play(answer(pushed))
    assert braid("push", "purchases", str(file)).stderr == (
        "Columns of purchases that the rows lack, and are NULL: user_id. Names in the rows that are no columns: user,"
        " us\n"
    )
    service.play(answer(pushed))
    assert json.loads(braid("push", "purchases", str(file), "--json").stdout) == pushed


def test_columns_are_missing_that_no_piece_of_a_file_has(service: Playback, braid: Braid, tmp_path: Path) -> None:
    first, second = (tmp_path / name for name in ("first.ndjson", "second.ndjson"))
    first.write_text(f'{{"a": "{"x" * 800_000}"}}\n' * 2)
    second.write_text('{"a": 1}\n')
    pushed = {"accepted": 1, "rejected": 0, "errors": []}
    for missing in (["price", "city"], ["city"], ["shop"]):
        service.play(answer({**pushed, "missing": missing, "unknown": ["a"]}))
    assert braid("push", "purchases", str(first), str(second)).stderr == (
        "Columns of purchases that the rows lack, and are NULL: city, shop. Names in the rows that are no columns: a\n"
    )


def test_where_all_rows_are_rejected_the_names_come_first(service: Playback, braid: Braid, tmp_path: Path) -> None:
    file = tmp_path / "events.ndjson"
    file.write_text('{"b": 1}\n')
    faults = [{"line": 1, "detail": "line 1: column 'a' is NOT NULL"}]
    service.play(answer({"accepted": 0, "rejected": 1, "errors": faults, "missing": ["a"], "unknown": ["b"]}))
    service.play(answer({"accepted": 0, "rejected": 1, "errors": faults, "missing": ["a"]}))
    names, fault, _ = braid("push", "purchases", str(file), str(file)).stderr.splitlines()
    assert names.endswith("NULL: a. Names in the rows that are no columns: b")
    assert fault.endswith("line 1: column 'a' is NOT NULL")


def test_names_of_some_rows_are_told_alone(service: Playback, braid: Braid, tmp_path: Path) -> None:
    file = tmp_path / "events.ndjson"
    file.write_text('{"custmer": 1}\n')
    service.play(answer({"accepted": 1, "rejected": 0, "errors": [], "unknown": ["custmer"]}))
    assert braid("push", "purchases", str(file)).stderr == (
        "Some rows have names that are no columns of purchases: custmer\n"
    )


def test_parquet_and_feather_are_pushed_as_arrow_streams(service: Playback, braid: Braid, tmp_path: Path) -> None:
    rows = pa.table({"user_id": [1, 2], "price": [0.5, None]})
    parquet, feathered, arrow = (tmp_path / f"rows.{ending}" for ending in ("parquet", "feather", "arrow"))
    pq.write_table(rows, parquet)
    feather.write_feather(rows, feathered, compression="lz4")
    with pa.ipc.new_file(arrow, rows.schema) as writer:
        writer.write_table(rows)
    for file in (parquet, feathered, arrow):
        service.play(answer({"accepted": 2, "rejected": 0, "errors": []}))
        assert braid("push", "purchases", str(file)).exit_code == 0
        request = service.requests[-1]
        assert request.headers["content-type"] == "application/vnd.apache.arrow.stream"
        assert pa.ipc.open_stream(request.body).read_all().equals(rows)
    parquet.write_bytes(b"PAR1 and nothing")
    refused = braid("push", "purchases", str(parquet))
    assert (refused.exit_code, "must be Parquet or Arrow" in refused.stderr) == (1, True)


def test_push_says_how_many_rows_are_too_far_ahead(service: Playback, braid: Braid, tmp_path: Path) -> None:
    file = tmp_path / "events.json"
    file.write_text("[]")
    service.play(answer({"accepted": 3, "rejected": 0, "errors": [], "ahead": 1}))
    assert braid("push", "purchases", str(file)).stderr == (
        "1 of the accepted rows is further ahead of now than purchases allows (option max_future): queries do not see"
        " them. `braid streams purchases --dead-letters` lists them.\n"
    )


def test_push_says_how_many_rows_were_late(service: Playback, braid: Braid, tmp_path: Path) -> None:
    file = tmp_path / "events.json"
    file.write_text("[]")
    pushed = {"accepted": 3, "rejected": 0, "errors": [], "late": 2}
    service.play(answer(pushed))
    result = braid("push", "purchases", str(file))
    assert result.stdout == "accepted 3, rejected 0\n"
    assert result.stderr == (
        "2 of the accepted rows are late, below the watermark of purchases: queries that run do not see them; a query"
        " that starts at 'earliest' may. `braid streams purchases --dead-letters` lists them.\n"
    )
    service.play(answer(pushed | {"late": 3}))
    assert braid("push", "purchases", str(file)).stderr.endswith("To push a file at most once, give --key.\n")
    service.play(answer(pushed))
    assert json.loads(braid("push", "purchases", str(file), "--json").stdout) == pushed


def test_push_says_that_it_repeats(service: Playback, braid: Braid, tmp_path: Path) -> None:
    file = tmp_path / "events.json"
    file.write_text("[]")
    first = answer({"accepted": 3, "rejected": 0, "errors": []})
    again = answer({"accepted": 3, "rejected": 0, "errors": []})
    again.headers["Idempotent-Replayed"] = "true"
    service.play(again)
    result = braid("push", "purchases", str(file), "--key", "k")
    assert result.stdout == "accepted 3, rejected 0\n"
    assert result.stderr == "They had come with this --key before, and count once.\n"
    service.play(first, again)
    result = braid("push", "purchases", str(file), str(file), "--key", "k")
    assert result.stderr == "3 of the accepted rows had come with this --key before, and count once.\n"
    service.play(again)
    assert json.loads(braid("push", "purchases", str(file), "--key", "k", "--json").stdout)["repeated"] == 3


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


@pytest.mark.parametrize(("form", "names"), [("ndjson", b""), ("csv", b"{a\n")])
def test_a_pipe_is_pushed_as_it_comes(service: Playback, start: Start, form: str, names: bytes) -> None:
    def pushed(count: int) -> bool:
        return len(service.asked("POST", EVENTS)) == count

    process = start("push", "purchases", "--format", form, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(names)
    for number in range(1, 4):
        process.stdin.write(b'{"a": %d}\n' % number)
        process.stdin.flush()
        service.wait_until(partial(pushed, number))
    out, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert [piece.body for piece in service.asked("POST", EVENTS)] == [b'%b{"a": %d}\n' % (names, n) for n in (1, 2, 3)]
    assert (out, err) == (b"accepted %d, rejected 0\n" % (6 if names else 3), b"")  # it counts lines of names, too


def test_the_end_alone_that_is_typed_in_a_terminal_asks_for_no_rows(service: Playback, start: Start) -> None:
    service.play(answer(STREAM), answer({**STREAM, "ended": True}))
    with terminal(80) as (_, terminal_fd):
        status, out, err = ended(start("push", "purchases", "--end", stdin=terminal_fd))
    assert (status, out) == (0, "")
    assert err == "Stream purchases has ended: its last windows close, and it takes no more rows.\n"
    assert service.last().path == "/streams/purchases/watermark"
    assert json.loads(service.last().body) == {"end": True}
    assert not service.asked("POST", EVENTS)


def test_bad_lines_that_are_alike_are_counted_once_some_are_shown(braid: Braid) -> None:
    result = braid("push", "purchases", "--format", "ndjson", input="bad\n" * 50 + "{}\n")
    assert result.stdout == "accepted 1, rejected 50\n"
    *shown, last = result.stderr.splitlines()
    assert shown == [f"line {number}: not an object" for number in range(1, 4)]
    assert last == "… and 47 more; `braid streams purchases --dead-letters` lists what was rejected."


def test_lines_of_later_pieces_are_numbered_in_the_file(
    service: Playback, braid: Braid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("braid.api.cli.push._CHUNK_BYTES", 100)
    file = tmp_path / "events.ndjson"
    file.write_text("{}\n" * 100 + "bad\n")
    assert braid("push", "purchases", str(file)).stderr == "line 101: not an object\n"
    firsts = [int(piece.query.get("first", 1)) for piece in service.asked("POST", EVENTS)]
    lines = [piece.body.count(b"\n") for piece in service.asked("POST", EVENTS)]
    assert firsts == [1 + sum(lines[:number]) for number in range(len(lines))]


def test_a_terminal_is_told_how_to_end_its_rows(service: Playback, start: Start) -> None:
    with terminal(100) as (master_fd, terminal_fd):
        process = start("push", "purchases", stdin=terminal_fd, stdout=terminal_fd, stderr=terminal_fd)
        read_until(master_fd, b"Type rows as ndjson; Ctrl-D")
        os.write(master_fd, b'{"a": 1}\n')
        service.wait_until(lambda: bool(service.asked("POST", EVENTS)))
        os.write(master_fd, b"\x04")
        read_until(master_fd, b"accepted 1, rejected 0")
        assert ended(process)[0] == 0


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


def test_several_files_are_pushed_one_after_the_other(service: Playback, braid: Braid, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.json", "b.ndjson")]
    files[0].write_text('{"a": 0}')
    files[1].write_text('{"a": 1}\nbad\n')
    result = braid("push", "purchases", *map(str, files), "--key", "k")
    sent = [(request.headers["content-type"], request.headers["idempotency-key"]) for request in service.requests]
    assert sent == [("application/json", "k-0"), ("application/x-ndjson", "k-1")]
    assert result.stderr == f"{files[1]}: line 2: not an object\n"
    listed = json.loads(braid("push", "purchases", *map(str, files), "--json").stdout)["errors"]
    assert listed == [{"file": str(files[1]), "line": 2, "detail": "not an object"}]


def test_a_file_that_is_not_there_is_known_before_any_is_pushed(
    service: Playback, braid: Braid, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("user_id\n1\n")
    assert braid("push", "purchases", str(tmp_path / "a.csv"), str(tmp_path / "b.csv")).exit_code == 2
    assert service.requests == []


def test_pieces_of_csv_are_whole_rows_below_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braid.api.cli.push._CHUNK_BYTES", 300)
    rows = [["a\nb", "c"], *([str(n), "x" * (n % 7) + '"\n"' * (n % 3)] for n in range(500)), ["", "y\n" * 400]]
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(rows)
    pieces = [piece.decode() for piece in csv_pieces(io.BytesIO(b"\n\r\n" + written.getvalue().encode()), steady=True)]
    read = [list(csv.reader(io.StringIO(piece))) for piece in pieces]
    assert len(pieces) > 20
    assert all(piece[0] == rows[0] for piece in read)
    assert [row for piece in read for row in piece[1:]] == rows[1:]


def test_a_small_csv_is_one_piece() -> None:
    for text in (b"a\n1\n", b"a\n", b"a", b""):
        assert list(csv_pieces(io.BytesIO(text), steady=False)) == [text]
