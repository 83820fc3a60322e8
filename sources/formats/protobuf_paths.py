"""What columns read of a message: the way to each of them, and a type of message that has nothing else.

Fields that no column reads are in no type, so that they are passed over, and take no memory. Without them a message of
a megabyte could take gigabytes: an item that takes two bytes has all fields of its type once it is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from braid.sources.core.json_paths import Path
from braid.sources.formats.record_messages import field_of

_BYTES_OF_BYTE, _BYTES_OF_LISTED = 2, 32  # numbers in lists are objects
_BYTES_OF_MESSAGE, _BYTES_OF_FIELD = 200, 100  # of an item, as an object with all its fields
_PACKAGE = "braid"
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Messages that stand for a value which may be missing."""


@dataclass(frozen=True)
class Step:
    """A step into a field: the field itself, an ``item`` of a list, or the value of a map with a ``key``."""

    field: Any
    item: int | None = None
    key: str | None = None


@dataclass(frozen=True)
class Way:
    """The steps from a message to a column, and the field where they end, which may be of many values."""

    steps: tuple[Step, ...]
    field: Any
    is_many: bool


def way_to(message: Any, path: Path) -> Way | None:
    """Return the way that a path leads, None where it leads nowhere; case does not count where only one is meant."""
    steps: list[Step] = []
    at: Any = None
    is_many = False
    for part in path:
        if is_many and is_map(at):
            at = at.message_type.fields_by_number[2]
            steps.append(Step(at, key=str(part)))
            is_many = False
        elif is_many:
            if isinstance(part, str):
                return None
            steps.append(Step(at, item=part))
            is_many = False
        else:
            inside = message if at is None else at.message_type
            name = field_of(list(inside.fields_by_name), part) if inside is not None and isinstance(part, str) else None
            if name is None:
                return None
            at = inside.fields_by_name[name]
            steps.append(Step(at))
            is_many = at.is_repeated
    if not is_many and at is not None and at.message_type is not None and at.message_type.full_name in WRAPPERS:
        at = at.message_type.fields_by_name["value"]
        steps.append(Step(at))
    return Way(tuple(steps), at, is_many)


def is_map(field: Any) -> bool:
    """Whether a field is a map."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def attribute(field: Any) -> str:
    """Return what a field is called in the type of :func:`narrowed`."""
    return f"f{field.number}"


@dataclass(frozen=True)
class Narrowed:
    """A type of message, and what bounds the memory of one.

    A byte takes at most ``of_byte``, messages within it left out. ``costs`` maps what such a one begins with to the
    most that it takes, and is empty where there cannot be many.
    """

    type: Any
    of_byte: int
    costs: Mapping[bytes, int]

    def size(self, record: bytes) -> int:
        """Return a bound of the bytes that a message takes as objects."""
        size = self.of_byte * len(record)
        for begin, cost in self.costs.items():
            size += record.count(begin) * cost
        return size

    def min_bytes(self, size: int) -> int:
        """Return how many bytes a message must have at least to take ``size`` once it is decoded."""
        return size // (self.of_byte + max(self.costs.values(), default=0) // 2)  # a message within takes two at least


def narrowed(message: Any, ways: Sequence[Way]) -> Narrowed:
    """Return the type that has of a message what some ways lead to."""
    wanted = _Wanted()
    for way in ways:
        at = wanted
        for step in way.steps:
            if step.key is not None:
                at.inner.setdefault(1, _Wanted())
            if step.item is None:
                at = at.inner.setdefault(step.field.number, _Wanted())
        at.is_whole = True
    types = _Types()
    name = types.add(message, wanted)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(types.made().SerializeToString())
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    return Narrowed(made, _BYTES_OF_LISTED if types.has_lists else _BYTES_OF_BYTE, types.costs())


@dataclass
class _Wanted:
    """What is wanted of a message: all of it, or fields by their numbers."""

    inner: dict[int, _Wanted] = field(default_factory=dict)
    is_whole: bool = False


class _Types:
    """A file with types of messages that are read like others, and have only some of their fields.

    All is optional there, as in proto2; which fields have presence is known from the type that was declared. Texts are
    bytes, which become columns without being text before. Enums are numbers. Fields that are not wanted are there where
    they end another one of their oneof.
    """

    def __init__(self) -> None:
        self._file = FileDescriptorProto(name="braid.proto", package=_PACKAGE)
        self._whole: dict[str, str] = {}
        self._pending: list[tuple[DescriptorProto, Any, _Wanted]] = []

    def add(self, message: Any, wanted: _Wanted) -> str:
        """Return the full name that the type will have."""
        if wanted.is_whole and message.full_name in self._whole:
            return self._whole[message.full_name]
        made = self._file.message_type.add(name=f"M{len(self._file.message_type)}")
        name = f"{_PACKAGE}.{made.name}"
        if wanted.is_whole:
            self._whole[message.full_name] = name
        self._pending.append((made, message, wanted))
        return name

    def made(self) -> FileDescriptorProto:
        """Return the file, once all types were added."""
        while self._pending:
            self._fill(*self._pending.pop())
        return self._file

    @property
    def has_lists(self) -> bool:
        """Whether some field has many values that are no messages."""
        fields = (inner for made in self._file.message_type for inner in made.field if not inner.type_name)
        return any(inner.label == FieldDescriptorProto.LABEL_REPEATED for inner in fields)

    def costs(self) -> dict[bytes, int]:
        """Return what :class:`Narrowed` has."""
        sizes = {
            f".{_PACKAGE}.{made.name}": _BYTES_OF_MESSAGE + _BYTES_OF_FIELD * len(made.field)
            for made in self._file.message_type
        }
        fields = [inner for made in self._file.message_type for inner in made.field if inner.type_name]
        costs: dict[bytes, int] = {}
        if any(inner.label == FieldDescriptorProto.LABEL_REPEATED for inner in fields):
            for inner in fields:
                for begin in _begins(inner):
                    costs[begin] = max(costs.get(begin, 0), sizes[inner.type_name])
        return costs

    def _fill(self, made: DescriptorProto, message: Any, wanted: _Wanted) -> None:
        oneofs: dict[str, int] = {}
        for declared in message.fields:
            inner = _Wanted(is_whole=True) if wanted.is_whole else wanted.inner.get(declared.number)
            others = [] if declared.containing_oneof is None else list(declared.containing_oneof.fields)
            if inner is None and not any(other.number in wanted.inner for other in others):
                continue
            added = self._add_field(made, declared, inner)
            if len(others) > 1:
                name = declared.containing_oneof.name
                if name not in oneofs:
                    oneofs[name] = len(made.oneof_decl)
                    made.oneof_decl.add(name=f"o{oneofs[name]}")
                added.oneof_index = oneofs[name]

    def _add_field(self, made: DescriptorProto, declared: Any, inner: _Wanted | None) -> FieldDescriptorProto:
        label = FieldDescriptorProto.LABEL_REPEATED if declared.is_repeated else FieldDescriptorProto.LABEL_OPTIONAL
        added = made.field.add(name=attribute(declared), number=declared.number, label=label, type=declared.type)
        if declared.type == FieldDescriptorProto.TYPE_STRING:
            added.type = FieldDescriptorProto.TYPE_BYTES
        elif declared.type == FieldDescriptorProto.TYPE_ENUM:
            added.type = FieldDescriptorProto.TYPE_INT32
        elif declared.type == FieldDescriptorProto.TYPE_MESSAGE and inner is None:
            added.type = FieldDescriptorProto.TYPE_BYTES
        elif declared.message_type is not None:
            added.type_name = f".{self.add(declared.message_type, inner or _Wanted())}"
        return added


def _begins(field: FieldDescriptorProto) -> list[bytes]:
    """Return the bytes that messages of a field begin with, and those of a beginning in more bytes than it needs."""
    kind = 3 if field.type == FieldDescriptorProto.TYPE_GROUP else 2
    number = field.number << 3 | kind
    begin = bytearray()
    while number > 0x7F:
        begin.append(number & 0x7F | 0x80)
        number >>= 7
    return [bytes(begin) + bytes([number]), bytes(begin) + bytes([number | 0x80])]
