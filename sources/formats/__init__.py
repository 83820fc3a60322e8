"""Formats of pushed bodies and files, one module each; `sources.formats.decoding.decode` picks by content type."""

from sources.formats.decoded import Decoded, MalformedLine
from sources.formats.decoding import CONTENT_TYPES, decode

__all__ = ["CONTENT_TYPES", "Decoded", "MalformedLine", "decode"]
