"""Formats of pushed bodies and files, one module each; ``decoding.decode`` picks by content type."""

from braid.sources.formats.decoded import Decoded, MalformedLine
from braid.sources.formats.decoding import CONTENT_TYPES, decode

__all__ = ["CONTENT_TYPES", "Decoded", "MalformedLine", "decode"]
