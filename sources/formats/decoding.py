"""Decode the body of a push by its content type."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable

from braid.sources.core.errors import MalformedRequest
from braid.sources.core.schema import Schema
from braid.sources.formats.arrow_stream import decode_arrow_stream
from braid.sources.formats.csv_body import decode_csv_body
from braid.sources.formats.decoded import Decoded
from braid.sources.formats.json_document import decode_json
from braid.sources.formats.limits import BODY, DecodingLimits
from braid.sources.formats.names_of_bodies import with_odd_names
from braid.sources.formats.ndjson import decode_ndjson, read_carefully

Decoder = Callable[[bytes, Schema, DecodingLimits], Decoded]

_DECODERS: dict[str, Decoder] = {
    "application/x-ndjson": decode_ndjson,
    "application/json": decode_json,
    "application/vnd.apache.arrow.stream": decode_arrow_stream,
    "text/csv": decode_csv_body,
}
CONTENT_TYPES = tuple(_DECODERS)


def decode(body: bytes, content_type: str, schema: Schema, limits: DecodingLimits = BODY) -> Decoded:
    """Decode ``body`` into tuples of ``schema`` and malformed inputs.

    Raises MalformedRequest when the content type is unknown, the body cannot be read at all, or too much of it is
    malformed, and TooLarge when it brings more than the limits allow; nothing else, whatever the bytes.
    """
    kind, *parameters = (part.strip().lower() for part in content_type.split(";"))
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise MalformedRequest(
            f"The content type (header Content-Type) must be one of {', '.join(CONTENT_TYPES)}; got {content_type!r}."
        )
    if decoder is decode_csv_body and "header=absent" in parameters:
        raise MalformedRequest("CSV must begin with a record of the names of its columns; header=absent is not taken.")
    if decoder is decode_arrow_stream:
        return decoder(body, schema, limits)
    body = body.removeprefix(BOM_UTF8)
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as problem:
            if decoder is decode_ndjson:
                return read_carefully(body, schema, limits)  # which tells the lines that are not UTF-8
            if decoder is decode_csv_body:
                return decoder(body, schema, limits)  # likewise
            raise MalformedRequest(f"The body must be UTF-8; byte {problem.start + 1} is not.") from None
    if decoder is decode_ndjson and body[:64].lstrip()[:1] == b"[" and body[-64:].rstrip()[-1:] == b"]":
        raise MalformedRequest(
            "NDJSON must be one JSON object a line, got a JSON array. Send the array as application/json (braid push"
            " --format json)."
        )
    decoded = decoder(body, schema, limits)
    return decoded if decoder is decode_csv_body else with_odd_names(decoded, schema, body, decoder is decode_json)
