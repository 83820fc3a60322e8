"""Rows posted to a URL, signed, and what its answers mean."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager

import httpx
import pytest

from braid.router.sinks import webhook
from braid.router.sinks.http import HttpPlace, retry_after
from braid.router.sinks.sink import DelivererIdentity, RowsRefused, Sink, SinkDown, SinkRefused, Subject
from braid.sources.core.confinement import OPEN
from braid.sources.core.errors import NotAllowed, NotReady
from tests.kit.service import free_port
from tests.kit.webhook import Receiver, receiving
from tests.router.sinks.subjects import SELECTION, rows_of, selected, subject


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


@contextmanager
def opened(url: str, of: Subject, **options: str) -> Iterator[Sink]:
    all_options = {"url": url, **options}
    webhook.validate(all_options, of.query, OPEN)
    with closing(webhook.connect(all_options, DelivererIdentity("test"))) as destination:
        yield destination.open(of, all_options)


def test_rows_are_signed_json(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAID_SECRET_HOOK", "whsec_" + base64.b64encode(b"key").decode())
    monkeypatch.setenv("BRAID_SECRET_TOKEN", "Bearer t")
    query = subject()
    with opened(receiver.url, query, secret="secret:hook", **{"header.Authorization": "secret:token"}) as sink:
        sink.write(rows_of(query, selected(3), 7))
    ((headers, body),) = receiver.posted
    message = json.loads(body)
    assert (message["query"], message["name"], message["ids"]) == (
        "q-1",
        "mine",
        [f"{query.delivery_id}-7-{row}" for row in range(3)],
    )
    assert [row["n"] for row in message["rows"]] == [0, 1, 2]
    assert headers["authorization"] == "Bearer t"
    assert headers["webhook-id"] == f"{query.delivery_id}-7-0-7-2"
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    signature = base64.b64encode(hmac.digest(b"key", signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{signature}"


def test_a_message_has_the_id_of_its_rows_and_no_others(receiver: Receiver) -> None:
    query, other_query = subject(), subject()
    for of, count in ((query, 3), (query, 4), (query, 3), (other_query, 3)):
        with opened(receiver.url, of) as sink:
            sink.write(rows_of(of, selected(count), 7))
    ids = [headers["webhook-id"] for headers, _ in receiver.posted]
    assert ids[0] == ids[2]
    assert len(set(ids)) == 3
    assert len({row_id for row_id, _ in receiver.rows}) == 7


HIDDEN = "swordfish-17"


@pytest.mark.parametrize(
    ("answer", "means"),
    [
        (500, SinkDown),
        (503, SinkDown),
        (429, SinkDown),
        (425, SinkDown),
        (408, SinkDown),
        (400, RowsRefused),
        (413, RowsRefused),
        (422, RowsRefused),
        (401, SinkRefused),
        (404, SinkRefused),
        (302, SinkRefused),
    ],
)
def test_what_an_answer_means(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, answer: int, means: type[Exception]
) -> None:
    monkeypatch.setenv("BRAID_SECRET_TOKEN", HIDDEN)
    receiver.answer = (answer, {"retry-after": "7", "location": receiver.url})
    query = subject()
    with (
        opened(receiver.url, query, **{"header.Authorization": "Bearer secret:token"}) as sink,
        pytest.raises(means, match=str(answer)) as raised,
    ):
        sink.write(rows_of(query, selected(1), 1))
    assert HIDDEN not in "".join(traceback.format_exception(raised.value))
    if isinstance(raised.value, SinkDown):
        assert raised.value.retry_after == 7.0


def test_an_answer_that_shows_a_secret_is_not_shown_whole() -> None:
    with httpx.Client() as client:
        message = HttpPlace(client, "http://h", {}, (HIDDEN,)).says(httpx.Response(400, text="x" * 295 + HIDDEN))
    assert "x***" in message
    assert HIDDEN[:3] not in message


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("301", 300.0), ("999999999", 300.0), ("9" * 5000, None), ("Wed, 21 Oct 2026 07:28:00 GMT", None)],
)
def test_what_asks_to_wait_is_heard_within_reason(header: str, seconds: float | None) -> None:
    retry_seconds = retry_after(httpx.Response(503, headers={"retry-after": header}))
    assert SinkDown("it is busy", retry_seconds).retry_after == seconds


@pytest.mark.parametrize(("url", "header"), [("http://h\n/", "a"), ("gopher://h", "a"), ("", "ü"), ("", "a\n")])
def test_what_cannot_be_sent_is_refused_and_not_shown(receiver: Receiver, url: str, header: str) -> None:
    with httpx.Client() as client, pytest.raises(SinkRefused) as raised:
        HttpPlace(client, url or receiver.url, {"authorization": HIDDEN + header}, (HIDDEN + header,)).post(b"")
    assert HIDDEN not in "".join(traceback.format_exception(raised.value))


def test_nobody_there_is_down() -> None:
    query = subject()
    nobody = f"http://127.0.0.1:{free_port()}"
    with opened(nobody, query) as sink, pytest.raises(SinkDown, match="must answer"):
        sink.write(rows_of(query, selected(1), 1))


def test_a_secret_that_is_not_there_is_named(receiver: Receiver) -> None:
    with (
        pytest.raises(NotReady, match="BRAID_SECRET_NOWHERE"),
        opened(receiver.url, subject(), secret="secret:nowhere"),
    ):
        pass


def test_a_secret_that_is_no_text_is_refused_and_not_shown(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    for bad in ("whsec_!!!", "a\nb", "whsec_abc"):
        monkeypatch.setenv("BRAID_SECRET_X", bad)
        with pytest.raises((NotReady, SinkRefused)) as raised, opened(receiver.url, subject(), secret="secret:x"):
            pass
        assert bad not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    ("name", "value", "sent"),
    [
        ("authorization", "secret:x", "abc"),
        ("Authorization", "Bearer secret:x", "Bearer abc"),
        ("Cookie", "session=secret:x", "session=abc"),
        ("X-Note", "plain text", "plain text"),
        ("X-Note", "no-secret:at-all", "no-secret:at-all"),
        ("Content-Type", "text/plain", "application/json"),
    ],
)
def test_headers_are_sent_with_what_they_refer_to(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, name: str, value: str, sent: str
) -> None:
    monkeypatch.setenv("BRAID_SECRET_X", "abc\n")
    query = subject()
    with opened(receiver.url, query, **{f"header.{name}": value}) as sink:
        sink.write(rows_of(query, selected(1), 1))
    assert receiver.posted[0][0][name.lower()] == sent


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs the option 'url'"),
        ({"url": "ftp://h"}, "http://"),
        ({"url": "http://u:p@h"}, "without a user and a password"),
        ({"url": "http://h", "secret": "plain"}, "must be a reference"),
        ({"url": "http://h", "head": "x"}, "has no option 'head'"),
        ({"url": "http://h:99999"}, "must be http"),
        ({"url": "http://h:0"}, "must be http"),
        ({"url": "http://h:port"}, "must be http"),
        ({"url": "http://[h"}, "must be http"),
        ({"url": "http://h/a b"}, "must be http"),
        ({"url": "http://h/\n"}, "must be http"),
        ({"url": " http://h"}, "must be http"),
        ({"url": "http://"}, "must be http"),
        ({"url": "http://h", "header.": "x"}, "must name a header"),
        ({"url": "http://h", "header.a b": "x"}, "must name a header"),
        *(
            ({"url": "http://h", f"header.{name}": "x"}, "must name a header that does not frame the request")
            for name in ("Host", "content-length", "Transfer-Encoding", "CONNECTION", "Upgrade")
        ),
        ({"url": "http://h", "header.a\n": "x"}, "must name a header"),
        ({"url": "http://h", "header.a": "x\r\ny: z"}, "printable ASCII"),
        ({"url": "http://h", "header.a": "ü"}, "printable ASCII"),
        ({"url": "http://h", "header.authorization": "Bearer abc"}, "must be a reference"),
        ({"url": "http://h", "header.COOKIE": "abc"}, "must be a reference"),
        ({"url": "http://h", "header.X-Api-Key": "abc"}, "must be a reference"),
        ({"url": "http://h", "header.X-Shop-Token": "abc"}, "must be a reference"),
        ({"url": "http://user@h"}, "without a user and a password"),
        ({"url": "secret:a b"}, "a name of letters"),
        ({"url": "http://h", "header.a": "Bearer secret:a b"}, "a name of letters"),
        ({"url": "http://h", "header.a": "secret:a secret:b"}, "a name of letters"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(NotAllowed, match=message):
        webhook.validate(options, SELECTION, OPEN)


def test_a_url_may_be_a_secret(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAID_SECRET_HOOK_URL", receiver.url + "/T0/abc")
    query = subject()
    with opened("secret:hook_url", query) as sink:
        sink.write(rows_of(query, selected(1), 1))
        receiver.answer = (400, {})
        with pytest.raises(SinkRefused, match=r"^secret:hook_url answered 400"):
            sink.write(rows_of(query, selected(1), 2))
    assert len(receiver.rows) == 1
    monkeypatch.setenv("BRAID_SECRET_HOOK_URL", f"http://127.0.0.1:{free_port()}/T0/abc")
    with opened("secret:hook_url", query) as sink, pytest.raises(SinkDown) as raised:
        sink.write(rows_of(query, selected(1), 3))
    assert "T0" not in str(raised.value)
    monkeypatch.setenv("BRAID_SECRET_HOOK_URL", "ftp://h")
    with pytest.raises(NotAllowed, match="must be http"), opened("secret:hook_url", query):
        pass
