"""Compare answers with what the OpenAPI document says of their calls."""

from __future__ import annotations

import re
from typing import Any

import jsonschema_rs
import orjson
from httpx import Response

Json = dict[str, Any]


class Description:
    """An OpenAPI document, whose objects have the fields that it names, and no others."""

    def __init__(self, document: Json) -> None:
        self.document = document
        self._components = {"schemas": {name: _closed(s) for name, s in document["components"]["schemas"].items()}}
        # those with fewer parameters first: /queries/validate is no {id}
        paths = sorted(document["paths"], key=lambda path: path.count("{"))
        self._paths = [(re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))), path) for path in paths]
        self._validators: dict[bytes, Any] = {}

    def check(self, response: Response) -> None:
        """Fail for an answer of a described call that has another status, media type or body than the document says.

        A body is read only where it is JSON.
        """
        path, method = response.request.url.path, response.request.method.lower()
        template = next((template for pattern, template in self._paths if pattern.fullmatch(path)), "")
        call = self.document["paths"].get(template, {}).get(method)
        if call is None or response.status_code == 500:
            return
        said = f"{method.upper()} {path} answered {response.status_code}"
        answer = call["responses"].get(str(response.status_code))
        assert answer is not None, f"{said}, which is not described"
        media_type = response.headers.get("content-type", "").partition(";")[0]
        content = answer.get("content", {})
        assert media_type in content or (not content and not media_type), f"{said} as {media_type!r}"
        if media_type.endswith(("/json", "+json")):
            response.read()
            error = self.error(content[media_type]["schema"], response.json())
            assert error is None, f"{said} with {response.text[:1000]}: {error}"

    def error(self, schema: Json, value: Any) -> str | None:
        """Return why a value does not fit a schema of the document, None when it fits."""
        text = orjson.dumps(schema)
        if text not in self._validators:
            whole = {**schema, "components": self._components}
            self._validators[text] = jsonschema_rs.validator_for(whole, validate_formats=True)
        errors = self._validators[text].iter_errors(value)
        return "; ".join(f"{error.instance_path}: {error.message[:500]}" for error in errors) or None


def _closed(schema: Json) -> Json:
    return schema if "properties" not in schema else {"additionalProperties": False, **schema}
