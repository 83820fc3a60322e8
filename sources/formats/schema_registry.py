"""A schema registry: schemas of writers by their ids; they never change, so a process asks for each once.

The client is not Confluent's, which connects by itself to wherever a name leads, whatever
:mod:`braid.sources.core.outgoing` allows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlsplit

import httpx

from braid.sources.core.errors import NotAllowed, NotReady
from braid.sources.core.http_client import http_client
from braid.sources.core.outgoing import EVERYWHERE, Outgoing
from braid.sources.core.secret import reveal
from braid.sources.formats.avro_schema import AvroSchema, read_referring
from braid.sources.formats.protobuf_schema import ProtobufSchema, read_proto

ANSWER_SECONDS = 2.0
ASK_AGAIN_SECONDS = 10.0  # for a schema that was not there
MAX_MISSING = 10_000
MAX_REFERENCES = 100
T = TypeVar("T")


@dataclass(frozen=True)
class SchemaKind(Generic[T]):
    """A language of schemas: what a registry calls it, what others do, and what reads a schema.

    ``read`` has a text and the schemas that it refers to, each with the name by which it does so, before it those that
    it refers to itself; they are asked for as they are taken. It raises NotAllowed where they cannot be used.
    """

    type: str
    name: str
    read: Callable[[str, Iterable[tuple[str, str]]], T]


AVRO: SchemaKind[AvroSchema] = SchemaKind("AVRO", "Avro", read_referring)
PROTOBUF: SchemaKind[ProtobufSchema] = SchemaKind("PROTOBUF", "Protobuf", read_proto)
JSON: SchemaKind[bool] = SchemaKind("JSON", "JSON Schema", lambda *_: True)  # messages are not validated
_KNOWN: dict[tuple[str, str, int], Any] = {}


class SchemaRegistry(Generic[T]):
    """The schemas of one kind.

    ``user_info`` is ``user:password``, or a reference to a secret with that; empty where none is needed. A registry
    that is not among ``outgoing`` is not called: NotReady says so.
    """

    def __init__(self, kind: SchemaKind[T], url: str, user_info: str = "", outgoing: Outgoing = EVERYWHERE) -> None:
        self._kind = kind
        self._url = url.rstrip("/")
        self._user_info = user_info
        self._outgoing = outgoing
        self._client: httpx.Client | None = None
        self._missing: dict[int, float] = {}

    def schema(self, number: int) -> T | str:
        """Return the schema with an id, or why it cannot be used; NotReady when the registry does not answer."""
        key = (self._kind.type, self._url, number)
        if key in _KNOWN:
            return _KNOWN[key]
        if time.monotonic() < self._missing.get(number, 0.0):
            return _not_there(number)
        answer = self._ask(f"/schemas/ids/{number}")
        if answer is None:
            if len(self._missing) >= MAX_MISSING:
                self._missing = {}
            self._missing[number] = time.monotonic() + ASK_AGAIN_SECONDS
            return _not_there(number)
        _KNOWN[key] = self._read(answer, number)
        return _KNOWN[key]

    def _read(self, answer: dict[str, Any], number: int) -> T | str:
        kind = answer.get("schemaType", AVRO.type)
        if kind != self._kind.type:
            return (
                f" must be written with a schema in {self._kind.name}; schema {number} of the registry is in"
                f" {str(kind)[:100]}"
            )
        try:
            return self._kind.read(str(answer["schema"]), self._referenced(answer, set()))
        except (NotAllowed, KeyError, TypeError, ValueError) as problem:
            return f" must be written with a schema that can be read; of schema {number} in the registry: {problem}"

    def _referenced(self, answer: dict[str, Any], seen: set[tuple[str, int]]) -> Iterator[tuple[str, str]]:
        """Yield the names and texts of schemas that one refers to; before each those that it refers to itself."""
        for reference in answer.get("references") or ():
            subject, version = str(reference["subject"]), int(reference["version"])
            if (subject, version) in seen:
                continue
            seen.add((subject, version))
            if len(seen) > MAX_REFERENCES:
                raise NotAllowed(f"A schema must have at most {MAX_REFERENCES} references.")
            referenced = self._ask(f"/subjects/{quote(subject, safe='')}/versions/{version}")
            if referenced is None:
                raise NotAllowed(f"Version {version} of subject {subject!r} must be in the registry; it is not.")
            yield from self._referenced(referenced, seen)
            yield str(reference.get("name", "")), str(referenced["schema"])

    def _ask(self, path: str) -> dict[str, Any] | None:
        """Return what the registry says, None when it has no such thing."""
        if self._client is None:
            user, _, password = reveal(self._user_info).partition(":")
            auth = (user, password) if user else None
            self._client = http_client(self._outgoing, ANSWER_SECONDS, auth=auth)
        try:
            answer = self._client.get(self._url + path)
            if answer.status_code == httpx.codes.NOT_FOUND:
                return None
            answer.raise_for_status()
            document = answer.json()
        except (httpx.HTTPError, ValueError, NotAllowed) as problem:
            raise self._unusable(str(problem).splitlines()[0] if str(problem) else type(problem).__name__) from None
        if not isinstance(document, dict):
            raise self._unusable("it answers something else than a schema")
        return document

    def _unusable(self, why: str) -> NotReady:
        return NotReady(
            f"The schema registry at {self._url} must say which schema messages were written with: {why}. When it"
            " answers the stream goes on where it was; or drop the stream."
        )


def check_url(url: str, option: str) -> None:
    """Raise NotAllowed unless an option holds the address of a registry."""
    if "@" in url:
        raise NotAllowed(f"Option {option!r} must have no user and password, so that they are not kept.")
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise NotAllowed(f"Option {option!r} must be like 'http://HOST:PORT'; got {url!r}.")


def _not_there(number: int) -> str:
    return f" must be written with a schema that the registry has; it has none with the id {number}"
