"""Files of Parquet and Arrow as the Arrow streams that a service takes."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import feather

from braid.client.frames import bodies_of


def arrow_pieces(body: bytes) -> Iterator[bytes]:
    """Yield an Arrow stream as it is, and files of Parquet and Arrow (Feather) as such streams."""
    try:
        if body.startswith(b"PAR1"):
            yield from bodies_of(pq.read_table(pa.BufferReader(body)))
        elif body.startswith((b"ARROW1", b"FEA1")):
            yield from bodies_of(feather.read_table(pa.BufferReader(body)))
        else:
            yield body
    except pa.ArrowException as problem:
        raise click.ClickException(f"the file must be Parquet or Arrow: {problem}") from None
