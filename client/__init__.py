"""Speak to a running Braid service from Python: `Client`, `AsyncClient`, and handles of queries."""

from braid.client.async_client import AsyncClient
from braid.client.client import Client
from braid.client.errors import BraidError, QueryFailed, Refused, Unreachable
from braid.client.http import DEFAULT_URL, checked_url
from braid.client.messages import MEDIA_TYPES, SAMPLE_TYPES, QueryFields, ResultPage, query_body
from braid.client.query import AsyncQuery, Query
from braid.client.table import Table

__all__ = [
    "DEFAULT_URL",
    "MEDIA_TYPES",
    "SAMPLE_TYPES",
    "AsyncClient",
    "AsyncQuery",
    "BraidError",
    "Client",
    "Query",
    "QueryFailed",
    "QueryFields",
    "Refused",
    "ResultPage",
    "Table",
    "Unreachable",
    "checked_url",
    "query_body",
]
