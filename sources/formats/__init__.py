"""Formats of pushed bodies: one module each; :func:`sources.formats.decoding.decode` picks one by content type."""

from sources.formats.decoded import Decoded, MalformedLine
from sources.formats.decoding import CONTENT_TYPES, decode

__all__ = ["CONTENT_TYPES", "Decoded", "MalformedLine", "decode"]
