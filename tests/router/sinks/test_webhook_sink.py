"""Rows posted to a URL, signed, and what its answers mean."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from router.sinks import webhook
from router.sinks.sink import Deliverer, Sink, SinkDown, SinkRefused, Subject
from sources.errors import NotAllowed, NotReady
from tests.kit.service import free_port
from tests.kit.webhook import Receiver, receiving
from tests.router.sinks.subjects import SELECTION, rows_of, selected, subject


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


@contextmanager
def opened(url: str, of: Subject, **options: str) -> Iterator[Sink]:
    said = {"url": url, **options}
    webhook.validate(said, of.query, "")
    with closing(webhook.connect(said, Deliverer("test"))) as destination:
        yield destination.open(of, said)


def test_rows_are_signed_json(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAID_SECRET_HOOK", "whsec_" + base64.b64encode(b"key").decode())
    monkeypatch.setenv("BRAID_SECRET_TOKEN", "Bearer t")
    mine = subject()
    with opened(receiver.url, mine, secret="secret:hook", **{"header.Authorization": "secret:token"}) as sink:
        sink.write(rows_of(mine, selected(3), 7))
    ((headers, body),) = receiver.posted
    said = json.loads(body)
    assert (said["query"], said["name"], said["ids"]) == ("q-1", "mine", ["7-0", "7-1", "7-2"])
    assert [row["n"] for row in said["rows"]] == [0, 1, 2]
    assert headers["authorization"] == "Bearer t"
    assert headers["webhook-id"] == f"{mine.delivery}-7-0"
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    signature = base64.b64encode(hmac.digest(b"key", signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{signature}"


@pytest.mark.parametrize(
    ("answer", "means"),
    [(500, SinkDown), (503, SinkDown), (429, SinkDown), (408, SinkDown), (404, SinkRefused), (302, SinkRefused)],
)
def test_what_an_answer_means(receiver: Receiver, answer: int, means: type[Exception]) -> None:
    receiver.answer = (answer, {"retry-after": "7", "location": receiver.url})
    mine = subject()
    with opened(receiver.url, mine) as sink, pytest.raises(means, match=str(answer)) as raised:
        sink.write(rows_of(mine, selected(1), 1))
    if isinstance(raised.value, SinkDown):
        assert raised.value.retry_after == 7.0


def test_nobody_there_is_down() -> None:
    mine = subject()
    nobody = f"http://127.0.0.1:{free_port()}"
    with opened(nobody, mine) as sink, pytest.raises(SinkDown, match="must answer"):
        sink.write(rows_of(mine, selected(1), 1))


def test_a_secret_that_is_not_there_is_named(receiver: Receiver) -> None:
    with (
        pytest.raises(NotReady, match="BRAID_SECRET_NOWHERE"),
        opened(receiver.url, subject(), secret="secret:nowhere"),
    ):
        pass


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "must have the option 'url'"),
        ({"url": "ftp://h"}, "http://"),
        ({"url": "http://u:p@h"}, "without a password"),
        ({"url": "http://h", "secret": "plain"}, "must be a reference"),
        ({"url": "http://h", "head": "x"}, "got 'head'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(NotAllowed, match=said):
        webhook.validate(options, SELECTION, "")
