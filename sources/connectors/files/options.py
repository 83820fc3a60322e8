"""What a CREATE STREAM says about a folder of files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from braid.sources.core.errors import NotAllowed
from braid.sources.core.names import did_you_mean
from braid.sources.core.watermark_options import COMMON_OPTIONS
from braid.sources.formats.csv_document import check_delimiter

FORMATS = ("json", "csv", "parquet")
_OPTIONS = {
    "json": ("path", "replay_speed", "bounded"),
    "csv": ("path", "replay_speed", "bounded", "delimiter", "header"),
    "parquet": ("path", "replay_speed", "bounded"),
}
_SWITCH = {"true": True, "false": False}


@dataclass(frozen=True)
class FileOptions:
    """``path`` is as given; ``replay_speed`` is seconds of event time a second, None for as fast as possible.

    ``bounded``: the files that lie there at first are all, and the stream ends after the last of them.
    """

    path: str
    format: str
    delimiter: str = ","
    header: bool = True
    replay_speed: float | None = None
    bounded: bool = False

    def __post_init__(self) -> None:
        if not self.path:
            raise NotAllowed("Connector 'file' needs a folder. Add path = 'FOLDER' to WITH.")
        check_delimiter(self.delimiter)
        if self.replay_speed is not None and not (math.isfinite(self.replay_speed) and self.replay_speed > 0):
            raise NotAllowed(f"Option 'replay_speed' must be a number above 0; got {self.replay_speed}.")


def read_options(format: str, options: Mapping[str, str]) -> FileOptions:
    """Read what stands in WITH; NotAllowed says what is supported instead."""
    format = format or FORMATS[0]
    unknown = sorted(set(options) - set(_OPTIONS[format]))
    if unknown:
        known = ", ".join(map(repr, _OPTIONS[format]))
        raise NotAllowed(
            f"Connector 'file' with format {format!r} has no option {', '.join(map(repr, unknown))}. It has {known}."
            f"{did_you_mean(unknown[0], (*_OPTIONS[format], *COMMON_OPTIONS))}"
        )
    switches = {"header": "true", "bounded": "false"}
    for name, default in switches.items():
        switches[name] = options.get(name, default).lower()
        if switches[name] not in _SWITCH:
            raise NotAllowed(f"Option {name!r} must be 'true' or 'false'; got {options[name]!r}.")
    speed = options.get("replay_speed")
    try:
        replay_speed = None if speed is None else float(speed)
    except ValueError:
        raise NotAllowed(f"Option 'replay_speed' must be a number above 0; got {speed!r}.") from None
    return FileOptions(
        options.get("path", ""),
        format,
        options.get("delimiter", ","),
        _SWITCH[switches["header"]],
        replay_speed,
        _SWITCH[switches["bounded"]],
    )
