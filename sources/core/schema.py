"""Column types, schemas, and the definition of a stream in the catalog."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import pyarrow as pa

from braid.sources.core.computation import Computation, computation_from_json
from braid.sources.core.errors import NotAllowed
from braid.sources.core.json_paths import Path, read_path
from braid.sources.core.watermark_options import WatermarkOptions

INTEGER_KINDS = ("INT", "BIGINT")
NUMERIC_KINDS = ("INT", "BIGINT", "DOUBLE", "DECIMAL")
NESTED_KINDS = ("STRUCT", "ARRAY", "MAP")
ELEMENT, KEY, VALUE = "element", "key", "value"
"""The members of ARRAY and MAP."""
MAX_NESTING = 10
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")

_ARROW: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "JSON": pa.string(),
}


@dataclass(frozen=True)
class ColumnType:
    """A SQL type; ``precision`` and ``scale`` are set for DECIMAL only, ``members`` for what has others in it.

    STRUCT has members by name, ARRAY its ELEMENT, MAP its KEY, a VARCHAR, and its VALUE. A value of JSON is its text.
    ``NULL`` is the type of the literal NULL and fits every other type.
    """

    kind: str
    precision: int = 0
    scale: int = 0
    members: tuple[tuple[str, ColumnType], ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in (*_ARROW, "DECIMAL", "NULL", *NESTED_KINDS):
            known = ", ".join([*_ARROW, "DECIMAL", *NESTED_KINDS])
            raise NotAllowed(f"A column type must be one of {known}; got {self.kind!r}.")
        if self.members:
            self._check_members()
        if self.kind == "DECIMAL" and not (1 <= self.precision <= 38 and 0 <= self.scale <= self.precision):
            raise NotAllowed(
                f"DECIMAL(p, s) must have 1 <= p <= 38 and 0 <= s <= p; got DECIMAL({self.precision}, {self.scale})."
            )

    def _check_members(self) -> None:
        names = [name.lower() for name, _ in self.members]
        if len(set(names)) != len(names):
            raise NotAllowed(f"The members of a STRUCT must have different names (case does not count); got {names!r}.")
        if self.kind == "MAP" and self.members[0][1].kind != "VARCHAR":
            raise NotAllowed(f"The keys of a MAP must be VARCHAR; got {self.members[0][1]}.")
        if any(kind.kind == "JSON" for _, kind in self.members):
            raise NotAllowed(f"A {self.kind} must not have JSON in it. Declare the whole column as JSON.")
        if self.depth > MAX_NESTING:
            raise NotAllowed(f"Types must not be nested more than {MAX_NESTING} deep. Declare the column as JSON.")

    @cached_property
    def depth(self) -> int:
        """How deep types are nested in it: 0 for one without members."""
        return 1 + max(kind.depth for _, kind in self.members) if self.members else 0

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type that carries values of this type; TIMESTAMP is microseconds UTC without a zone."""
        if self.kind == "DECIMAL":
            return pa.decimal128(self.precision, self.scale)
        if self.kind == "NULL":
            return pa.null()
        return self._nested if self.members else _ARROW[self.kind]

    @cached_property
    def _nested(self) -> pa.DataType:
        if self.kind == "STRUCT":
            return pa.struct([pa.field(name, kind.arrow) for name, kind in self.members])
        *_, (_, last) = self.members
        return pa.list_(last.arrow) if self.kind == "ARRAY" else pa.map_(pa.string(), last.arrow)

    def member(self, name: str) -> tuple[str, ColumnType] | None:
        """Return the member of a STRUCT that is called so (case does not count), as declared; None without one."""
        members = self.members if self.kind == "STRUCT" else ()
        return next((member for member in members if member[0].lower() == name.lower()), None)

    @property
    def is_plain(self) -> bool:
        """Whether values can be compared and grouped by: those that have no parts."""
        return not self.members and self.kind != "JSON"

    @property
    def min_bytes(self) -> int:
        """How many bytes a value takes at least, NULL included: that of a text is where it ends."""
        if self.kind == "STRUCT":
            return sum(kind.min_bytes for _, kind in self.members)
        return 4 if self.members or self.kind in ("VARCHAR", "JSON") else self.arrow.bit_width // 8

    def with_replaced(self, old: ColumnType, new: ColumnType) -> ColumnType:
        """Return the type with another one in the place of one that it is, or that is in it."""
        members = tuple((name, kind.with_replaced(old, new)) for name, kind in self.members)
        return new if self == old else replace(self, members=members)

    def has_kind(self, kind: str) -> bool:
        """Whether values are of a kind, or have such in them."""
        return self.kind == kind or any(member.has_kind(kind) for _, member in self.members)

    @property
    def is_numeric(self) -> bool:
        """Whether arithmetic applies."""
        return self.kind in NUMERIC_KINDS

    @property
    def is_integer(self) -> bool:
        """Whether values are whole numbers of at most 64 bits."""
        return self.kind in INTEGER_KINDS

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        if self.kind == "DECIMAL":
            return f"DECIMAL({self.precision},{self.scale})"
        if not self.members:
            return self.kind
        named = self.kind == "STRUCT"
        inner = ", ".join(f"{_shown(name)} {kind}" if named else str(kind) for name, kind in self.members)
        return f"{self.kind}<{inner}>"

    def to_json(self) -> Any:
        """Return ``"INT"``, for DECIMAL ``["DECIMAL", p, s]``, for STRUCT ``["STRUCT", [[name, type], …]]``."""
        if self.members:
            return [self.kind, [[name, kind.to_json()] for name, kind in self.members]]
        return [self.kind, self.precision, self.scale] if self.kind == "DECIMAL" else self.kind

    @classmethod
    def from_json(cls, value: Any) -> ColumnType:
        """Read what :meth:`to_json` wrote."""
        if isinstance(value, str):
            return cls(value)
        if value[0] in NESTED_KINDS:
            return cls(value[0], members=tuple((name, cls.from_json(kind)) for name, kind in value[1]))
        return cls(*value)


def _shown(name: str) -> str:
    """Return the name of a member as SQL has it."""
    return name if _PLAIN_NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'


BOOLEAN = ColumnType("BOOLEAN")
INT = ColumnType("INT")
BIGINT = ColumnType("BIGINT")
DOUBLE = ColumnType("DOUBLE")
VARCHAR = ColumnType("VARCHAR")
DATE = ColumnType("DATE")
TIMESTAMP = ColumnType("TIMESTAMP")
JSON = ColumnType("JSON")
NULL = ColumnType("NULL")


def array_of(element: ColumnType) -> ColumnType:
    """Return the type of arrays."""
    return ColumnType("ARRAY", members=((ELEMENT, element),))


def map_of(key: ColumnType, value: ColumnType) -> ColumnType:
    """Return the type of maps."""
    return ColumnType("MAP", members=((KEY, key), (VALUE, value)))


@dataclass(frozen=True)
class Field:
    """A named, typed column; of one that is ``not_null``, NULL makes a tuple malformed.

    ``time_format`` says how times are written, see :mod:`braid.sources.formats.time_formats`; nothing is RFC 3339.
    ``source`` is a path (:mod:`braid.sources.core.json_paths`) where the column is not simply called as it is. A column
    that is ``computed``, or the time of ``arrival``, is not among those that an input has.
    """

    name: str
    type: ColumnType
    not_null: bool = False
    time_format: str = ""
    source: str = ""
    computed: Computation | None = None
    arrival: bool = False

    @cached_property
    def path(self) -> Path:
        """Where an input has the column: a name, and for what is in an object there, further steps."""
        return read_path(self.source) if self.source else (self.name,)

    @property
    def input_name(self) -> str:
        """What an input calls the column, or what the column is in."""
        return str(self.path[0])

    @property
    def is_written_time(self) -> bool:
        """Whether inputs have times here."""
        return self.type.kind == "TIMESTAMP" and self.computed is None and not self.arrival

    def describe(self) -> dict[str, Any]:
        """Return name and type as descriptions of streams and tables show them, and what else was declared."""
        computed = {} if self.computed is None else {"computed": self.computed.text}
        return {"name": self.name, "type": str(self.type), **self._more(), **computed}

    def to_json(self) -> list[Any]:
        """Return ``[name, type]``, and a third element where more was declared."""
        more = self._more() | ({} if self.computed is None else {"computed": self.computed.to_json()})
        return [self.name, self.type.to_json(), *([more] if more else [])]

    def _more(self) -> dict[str, Any]:
        more = {
            "not_null": self.not_null,
            "time_format": self.time_format,
            "source": self.source,
            "arrival": self.arrival,
        }
        return {name: value for name, value in more.items() if value}

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> Field:
        """Read what :meth:`to_json` wrote."""
        name, kind, *more = value
        attributes = dict(more[0]) if more else {}
        if "computed" in attributes:
            attributes["computed"] = computation_from_json(attributes["computed"])
        return cls(name, ColumnType.from_json(kind), **attributes)


@dataclass(frozen=True)
class Schema:
    """Columns whose names differ; case does not count."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        names = [f.name.lower() for f in self.fields]
        if len(set(names)) != len(names):
            raise NotAllowed(f"Column names must differ (case does not count); got {names!r}.")

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in declared order."""
        return tuple(f.name for f in self.fields)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of batches with these columns."""
        return pa.schema([pa.field(f.name, f.type.arrow) for f in self.fields])

    def field(self, name: str) -> Field:
        """Return the field called ``name`` (case does not count); KeyError when there is none."""
        for f in self.fields:
            if f.name.lower() == name.lower():
                return f
        raise KeyError(name)

    def with_time_format(self, time_format: str) -> Self:
        """Return the columns with times written in this format, see :mod:`braid.sources.formats.time_formats`."""
        fields = (replace(f, time_format=time_format) if f.is_written_time else f for f in self.fields)
        return replace(self, fields=tuple(fields))

    @cached_property
    def read(self) -> tuple[Field, ...]:
        """The columns that are read from inputs, in declared order; the others are computed from them."""
        return tuple(f for f in self.fields if f.computed is None)

    @cached_property
    def required(self) -> Mapping[str, str]:
        """The columns that must not be NULL, and why each must not."""
        return {f.name: "is NOT NULL, and must not be NULL or missing" for f in self.fields if f.not_null}


@dataclass(frozen=True)
class StreamSchema(Schema):
    """The columns of a stream, which of them is the event time, and how late tuples may come (microseconds).

    ``metadata`` has the columns that do not come from the values of messages, with what they hold instead; ``hidden``
    those that ``*`` leaves out.
    """

    event_time: str
    lateness_us: int
    metadata: tuple[tuple[str, str], ...] = ()
    hidden: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.field(self.event_time).type != TIMESTAMP:
            raise NotAllowed(f"The column with LATENESS must be a TIMESTAMP; {self.event_time!r} is not.")
        if self.lateness_us < 0:
            raise NotAllowed(f"LATENESS must not be negative; got {self.lateness_us} microseconds.")

    @cached_property
    def required(self) -> Mapping[str, str]:
        """The event time, and the other columns that must not be NULL."""
        field = self.field(self.event_time)
        rule = "is the event time and must not be NULL or missing"
        if field.computed is not None:
            rule = f"is the event time, computed as {field.computed.text}, and must not be NULL"
        return {**super().required, field.name: rule}

    @property
    def of_values(self) -> Schema:
        """The columns that the values of messages tell; where there is metadata, those computed come after it."""
        if not self.metadata:
            return self
        metadata_names = {name.lower() for name, _ in self.metadata}
        return self._of(f for f in self.read if f.name.lower() not in metadata_names)

    @cached_property
    def stored(self) -> Schema:
        """The columns that are known without the time of arrival."""
        return self._of(f for f in self.fields if not f.arrival) if any(f.arrival for f in self.fields) else self

    def _of(self, fields: Iterable[Field]) -> Schema:
        """Return some of the columns, with the event time if it is among them."""
        schema = Schema(tuple(fields))
        is_timed = self.event_time.lower() in (name.lower() for name in schema.names)
        return StreamSchema(schema.fields, self.event_time, self.lateness_us) if is_timed else schema

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for the changelog."""
        more = {"metadata": [list(pair) for pair in self.metadata], "hidden": list(self.hidden)}
        value = {"fields": fields_to_json(self.fields), "event_time": self.event_time, "lateness_us": self.lateness_us}
        return value | {name: names for name, names in more.items() if names}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> StreamSchema:
        """Read what :meth:`to_json` wrote."""
        metadata, hidden = tuple(map(tuple, value.get("metadata", ()))), tuple(value.get("hidden", ()))
        return cls(fields_from_json(value["fields"]), value["event_time"], value["lateness_us"], metadata, hidden)


def fields_to_json(fields: Sequence[Field]) -> list[list[Any]]:
    """Return the JSON forms of columns."""
    return [f.to_json() for f in fields]


def fields_from_json(value: Sequence[Sequence[Any]]) -> tuple[Field, ...]:
    """Read what :func:`fields_to_json` wrote."""
    return tuple(map(Field.from_json, value))


@dataclass(frozen=True)
class StreamDefinition:
    """A stream in the catalog.

    ``id`` differs between two streams that bear the same name one after the other;
    folders and offsets use it. ``options`` are the connector's, ``watermark`` those that every stream has.
    ``created_us`` is microseconds since 1970 (the generator's origin of time).
    """

    id: str
    name: str
    schema: StreamSchema
    connector: str
    format: str
    options: dict[str, str] = field(default_factory=dict)
    sql: str = ""
    created_us: int = 0
    watermark: WatermarkOptions = field(default_factory=WatermarkOptions)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form for the changelog."""
        value = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return value | {"schema": self.schema.to_json(), "watermark": self.watermark.to_json()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> StreamDefinition:
        """Read what :meth:`to_json` wrote."""
        watermark = WatermarkOptions.from_json(value.get("watermark", {}))
        return cls(**{**value, "schema": StreamSchema.from_json(value["schema"]), "watermark": watermark})
