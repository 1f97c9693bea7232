"""Build the broker plug-in's jar from its Java source: `python -m tiering.broker_plugin.build`.

Only the standard library is needed at import, because the wheel's build hook runs this file where
nothing else is installed. The same source makes the same jar, byte for byte: entries are sorted
and carry no time. The jar names the digest of its source, so that "is it current?" doesn't depend
on file times, which installers don't keep.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["JAR", "JAVA_RELEASE", "PluginBuildError", "build_jar", "is_current", "kafka_jars"]

SOURCE_ROOT: Final = Path(__file__).parent / "java"
JAR: Final = Path(__file__).parent / "onecopy-broker-plugin.jar"
JAVA_RELEASE: Final = 17  # the oldest Java that Kafka 4 brokers run on

_LIBS_VARIABLE: Final = "ONECOPY_KAFKA_LIBS"
_DIGEST_ENTRY: Final = "META-INF/onecopy-source.sha256"
_MANIFEST: Final = (
    "Manifest-Version: 1.0\r\n"
    "Implementation-Title: Onecopy broker plug-in\r\n"
    f"Build-Jdk-Spec: {JAVA_RELEASE}\r\n"
    "\r\n"
)
_ENTRY_TIME: Final = (1980, 1, 1, 0, 0, 0)  # the earliest a zip can hold
_COMPILE_SECONDS_MAX: Final = 300


class PluginBuildError(RuntimeError):
    """The jar can't be built here: says what is missing and how to get it."""


def source_digest() -> str:
    """SHA-256 (hex) over the names and contents of the Java source, and the Java release."""
    digest = hashlib.sha256(f"release {JAVA_RELEASE}\n".encode())
    for path in _sources():
        content = path.read_bytes()
        name = path.relative_to(SOURCE_ROOT).as_posix()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def is_current(jar: Path) -> bool:
    """Whether `jar` exists and was built from the source as it is now."""
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.read(_DIGEST_ENTRY).decode() == source_digest()
    except (OSError, KeyError, zipfile.BadZipFile):
        return False


def kafka_jars(directory: Path | None = None) -> tuple[Path, ...]:
    """Kafka's jars to compile against: those in `directory`, else the project's own download.

    The environment's ONECOPY_KAFKA_LIBS names a directory for builds without a network or
    without this project's dependencies. Raises PluginBuildError.
    """
    if directory is None and (named := os.environ.get(_LIBS_VARIABLE)):
        directory = Path(named)
    if directory is None:
        return _downloaded_jars()
    found = tuple(sorted(directory.glob("*.jar")))
    if not any(path.name.startswith("kafka-storage-api-") for path in found):
        raise PluginBuildError(
            f"{directory} holds no kafka-storage-api-*.jar: name the libs directory of Kafka 4.3"
        )
    return found


def _downloaded_jars() -> tuple[Path, ...]:
    from tiering import jars  # only here: a build from a named directory needs nothing else
    from tiering.errors import TieringError

    try:
        return tuple(jars.kafka_jars())
    except TieringError as error:
        raise PluginBuildError(
            f"{error}\nTo build with a Kafka that is already here, set {_LIBS_VARIABLE} to the "
            "libs directory of Kafka 4.3"
        ) from error


def build_jar(classpath: Sequence[Path], jar: Path = JAR) -> Path:
    """Compile the Java source against `classpath` and write `jar` (atomically); return it.

    Raises PluginBuildError without a JDK, or with the compiler's own messages.
    """
    digest = source_digest()  # before compiling: source edited meanwhile makes the jar stale
    with tempfile.TemporaryDirectory(prefix="onecopy-plugin-") as scratch:
        classes = Path(scratch)
        _compile(classpath, classes)
        entries = {
            path.relative_to(classes).as_posix(): path.read_bytes()
            for path in classes.rglob("*.class")
        }
    entries[_DIGEST_ENTRY] = digest.encode()
    _write_jar(jar, entries)
    return jar


def _sources() -> list[Path]:
    found = sorted(SOURCE_ROOT.rglob("*.java"))
    if not found:
        raise PluginBuildError(f"no Java source below {SOURCE_ROOT}: the installation is broken")
    return found


def _compile(classpath: Sequence[Path], classes: Path) -> None:
    command = [
        _javac(),
        *("--release", str(JAVA_RELEASE)),
        *("-encoding", "UTF-8"),
        "-proc:none",
        *("-classpath", os.pathsep.join(map(str, classpath))),
        *("-d", str(classes)),
        *map(str, _sources()),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_COMPILE_SECONDS_MAX, check=False
    )
    if done.returncode != 0:
        raise PluginBuildError(f"javac failed:\n{done.stdout}{done.stderr}")


def _javac() -> str:
    home = os.environ.get("JAVA_HOME")
    beside = shutil.which("javac", path=str(Path(home) / "bin")) if home else None
    found = beside or shutil.which("javac")
    if found is None:
        raise PluginBuildError(
            "no javac in JAVA_HOME or on PATH: the broker plug-in is compiled from source, which "
            f"takes a JDK {JAVA_RELEASE} or newer (a Java runtime alone isn't enough)"
        )
    return found


def _write_jar(jar: Path, entries: dict[str, bytes]) -> None:
    handle, name = tempfile.mkstemp(dir=jar.parent, prefix=jar.name, suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            # The manifest must come first for java.util.jar to find it.
            _add(archive, "META-INF/MANIFEST.MF", _MANIFEST.encode())
            for entry in sorted(entries):
                _add(archive, entry, entries[entry])
        temporary.chmod(0o644)
        temporary.replace(jar)
    finally:
        temporary.unlink(missing_ok=True)


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, date_time=_ENTRY_TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3  # Unix, wherever it is built
    info.external_attr = 0o644 << 16
    archive.writestr(info, content)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the jar; exit code 0, or 2 with a message."""
    parser = argparse.ArgumentParser(
        prog="python -m tiering.broker_plugin.build", description="Build the broker plug-in's jar."
    )
    parser.add_argument(
        "--classpath",
        type=Path,
        metavar="DIR",
        help="directory with Kafka's jars (default: the ones Onecopy downloads)",
    )
    options = parser.parse_args(arguments)
    try:
        jar = build_jar(kafka_jars(options.classpath))
    except PluginBuildError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{jar}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
