"""Where settings come from: a flag, else the environment ``BRAID_<NAME>``, else a TOML file, else the default."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from braid.engine.spark.spark_conf import flattened
from braid.session.settings import KINDS, LIST, TABLE, Settings
from braid.sources.core.errors import NotAllowed

DEFAULT_CONFIG = "braid.toml"


def load_settings(flags: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
    """Merge the four sources of settings; NotAllowed for an unknown key or a value that does not fit.

    A flag that is None was not given. ``config`` (flag, or BRAID_CONFIG) names the TOML file, which must then exist;
    ``braid.toml`` in the working directory is read if present. Variables ``BRAID_…`` that name no setting are left
    alone: other programs use the prefix too (``BRAID_URL``).
    """
    environment = os.environ if environment is None else environment
    given_flags = {name: value for name, value in flags.items() if value is not None}
    config = given_flags.pop("config", None) or environment.get("BRAID_CONFIG") or None
    _check_known(given_flags, "a flag")
    values = _read_file(config)
    for name in KINDS:
        text = environment.get(f"BRAID_{name.upper()}")
        if text is not None:
            values[name] = _read_text(name, text, f"The environment variable BRAID_{name.upper()}")
    for name, value in given_flags.items():
        values[name] = _read_text(name, value, f"The flag {name}") if isinstance(value, str) else value
    for name, value in values.items():
        if KINDS[name] == LIST and isinstance(value, list):
            values[name] = tuple(value)
    return Settings(**values)


def _read_file(config: Any) -> dict[str, Any]:
    path = Path(config or DEFAULT_CONFIG)
    if config is None and not path.exists():
        return {}
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotAllowed(f"The configuration file must be readable; got {str(path)!r}: {error.strerror}.") from error
    except ValueError as error:  # also what is not UTF-8
        raise NotAllowed(f"The configuration file {str(path)!r} must be TOML: {error}.") from error
    _check_known(values, f"the file {str(path)!r}")
    return {name: flattened(value) if KINDS[name] == TABLE else value for name, value in values.items()}


def _check_known(values: Mapping[str, Any], source: str) -> None:
    unknown = sorted(values.keys() - KINDS.keys())
    if unknown:
        raise NotAllowed(
            f"{source[0].upper()}{source[1:]} must set only known settings;"
            f" got {', '.join(map(repr, unknown))}. Known are {', '.join(KINDS)}."
        )


def _read_text(name: str, text: str, source: str) -> Any:
    """Return ``text`` as a value of the setting's type."""
    kind = KINDS[name]
    if kind == "str":
        return text
    if kind == TABLE:
        try:
            return flattened(orjson.loads(text))
        except orjson.JSONDecodeError as error:
            raise NotAllowed(f"{source} must be a JSON object: {error}.") from None
    if kind == LIST:
        return tuple(item.strip() for item in text.split(",") if item.strip())
    try:
        return int(text) if kind == "int" else float(text)
    except ValueError:
        noun = "a whole number" if kind == "int" else "a number"
        raise NotAllowed(f"{source} must be {noun}; got {text!r}.") from None
