"""The archive of the classes that Spark's JVM loads: with it the JVM starts in half the time.

Java calls it application class-data sharing. The archive is a file beside the installed packages, and belongs to one
Java and one set of jars: a JVM that does not fit reads its classes from the jars, as it does where there is no archive.
"""

from __future__ import annotations

import sys
from pathlib import Path

PATH = Path(sys.prefix) / "share" / "braid" / "spark-classes.jsa"

_QUIET = ("-Xlog:cds=error", "-Xlog:class+path=error")  # else a JVM says on standard output what does not fit


def writing_options(path: Path) -> str:
    """Return the options of a JVM that archives its classes when it ends."""
    return " ".join((f'"-XX:ArchiveClassesAtExit={path}"', *_QUIET))  # a path may have spaces


def reading_options(path: Path = PATH) -> str:
    """Return the options of a JVM that takes its classes from the archive, or nothing where there is none."""
    return " ".join((f'"-XX:SharedArchiveFile={path}"', *_QUIET)) if path.exists() else ""
