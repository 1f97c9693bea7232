"""The Java parts (Kafka, Iceberg's Spark runtime, ...) by named set, fetched once and verified.

Ivy does the fetching; its jar comes with PySpark's wheel, so Python and Java are all that is
needed. `jars.lock` names every file of a set with its SHA-256: what is fetched or found in the
cache and isn't exactly that is not used.

Environment: ONECOPY_HOME is the cache directory (default: `.cache/onecopy` in the home directory);
ONECOPY_IVY_SETTINGS may name an Ivy settings file, where the default repository can't be reached.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from xml.sax.saxutils import quoteattr

from tiering.errors import BadInput, FatalError, TransientError

__all__ = [
    "JarModule",
    "JarSet",
    "cache_home",
    "class_path",
    "fetch",
    "iceberg_jars",
    "java_command",
    "kafka_jars",
    "load_sets",
    "relock",
    "schema_registry_archive",
]

LOCK_FILE: Final = Path(__file__).with_name("jars.lock")
HOME_VARIABLE: Final = "ONECOPY_HOME"
IVY_SETTINGS_VARIABLE: Final = "ONECOPY_IVY_SETTINGS"
_FETCH_S_MAX: Final = 900.0
_ATTEMPTS: Final = 2  # a download that breaks once is common, twice is an outage
_LOCK_HEADER: Final = """\
# Java parts by set. Edit `modules`; `python -m tiering.jars --relock SET...` writes `files`.
# A module is organisation:name:revision; `alone` leaves its dependencies out; `classifiers` and
# `extension` name other artifacts than the plain jar.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JarModule:
    """One module to resolve.

    Attributes:
        coordinates: organisation, name and revision, joined by colons.
        alone: without its dependencies.
        classifiers: artifacts to take; "" is the plain one.
        extension: of all its artifacts.
    """

    coordinates: str
    alone: bool = False
    classifiers: tuple[str, ...] = ("",)
    extension: str = "jar"

    def to_xml(self) -> str:
        """As an Ivy dependency element."""
        organisation, name, revision = self.coordinates.split(":")
        artifacts = ""
        if self.classifiers != ("",) or self.extension != "jar":
            artifacts = "".join(self._artifact(name, c) for c in self.classifiers)
        return (
            f"<dependency org={quoteattr(organisation)} name={quoteattr(name)} "
            f'rev={quoteattr(revision)} transitive="{str(not self.alone).lower()}">'
            f"{artifacts}</dependency>"
        )

    def _artifact(self, name: str, classifier: str) -> str:
        named = f" m:classifier={quoteattr(classifier)}" if classifier else ""
        extension = quoteattr(self.extension)
        return f'<artifact name={quoteattr(name)} type="jar" ext={extension}{named}/>'

    def to_toml(self) -> str:
        """As an inline table of the lock file."""
        parts = [f'coordinates = "{self.coordinates}"']
        if self.alone:
            parts.append("alone = true")
        if self.classifiers != ("",):
            listed = ", ".join(f'"{c}"' for c in self.classifiers)
            parts.append(f"classifiers = [{listed}]")
        if self.extension != "jar":
            parts.append(f'extension = "{self.extension}"')
        return "{ " + ", ".join(parts) + " }"


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """A named set: the modules to resolve, and the files (name -> SHA-256, hex) that must come."""

    name: str
    modules: tuple[JarModule, ...]
    files: Mapping[str, str]

    @classmethod
    def from_lock(cls, name: str, raw: Mapping[str, object]) -> Self:
        """Build from one table of the lock file."""
        modules: list[JarModule] = []
        listed = raw["modules"]
        assert isinstance(listed, list)  # noqa: S101  # our own package data
        for module in listed:
            classifiers = tuple(module.pop("classifiers", ("",)))
            modules.append(JarModule(classifiers=classifiers, **module))
        files = raw.get("files", {})
        assert isinstance(files, dict)  # noqa: S101
        return cls(name=name, modules=tuple(modules), files=files)

    @property
    def directory_name(self) -> str:
        """Directory in the cache: another lock, another directory."""
        listed = "\n".join(f"{n} {d}" for n, d in sorted(self.files.items()))
        return f"{self.name}-{hashlib.sha256(listed.encode()).hexdigest()[:12]}"

    def to_toml(self) -> str:
        """As tables of the lock file."""
        modules = "".join(f"  {m.to_toml()},\n" for m in self.modules)
        files = "".join(f'"{n}" = "{d}"\n' for n, d in sorted(self.files.items()))
        return f"[{self.name}]\nmodules = [\n{modules}]\n\n[{self.name}.files]\n{files}"


def load_sets(lock_file: Path = LOCK_FILE) -> dict[str, JarSet]:
    """All sets of the lock file by name."""
    raw = tomllib.loads(lock_file.read_text())
    return {name: JarSet.from_lock(name, table) for name, table in raw.items()}


def cache_home() -> Path:
    """The directory below which fetched parts are kept."""
    named = os.environ.get(HOME_VARIABLE)
    return Path(named).resolve() if named else Path.home() / ".cache" / "onecopy"


def kafka_jars() -> tuple[Path, ...]:
    """Kafka's broker and tools, with LocalTieredStorage and a logging binding."""
    return fetch("kafka")


def iceberg_jars(*, with_aws: bool = False) -> tuple[Path, ...]:
    """Iceberg's Spark runtime and the SQLite driver; `with_aws` adds Iceberg's S3 client."""
    return fetch("iceberg") + (fetch("iceberg-aws") if with_aws else ())


def schema_registry_archive() -> Path:
    """Apicurio's schema registry: a tar.gz with a jar to run and its libraries."""
    (archive,) = fetch("schema-registry")
    return archive


def class_path(jars: Iterable[Path]) -> str:
    """As `java -cp` takes it."""
    return os.pathsep.join(map(str, jars))


def fetch(name: str, *, home: Path | None = None, lock_file: Path = LOCK_FILE) -> tuple[Path, ...]:
    """The verified files of a set, sorted by name; fetched first when they aren't there.

    Safe against other processes that fetch at the same time. BadInput for an unknown set;
    TransientError when Java, Ivy or the network fails; FatalError when a file's digest differs.
    """
    return _fetch(name, home or cache_home(), lock_file)


@functools.cache
def _fetch(name: str, home: Path, lock_file: Path) -> tuple[Path, ...]:
    sets = load_sets(lock_file)
    if name not in sets:
        raise BadInput(f"no set of jars is called {name!r}; known are {', '.join(sorted(sets))}")
    wanted = sets[name]
    directory = home / "jars" / wanted.directory_name
    if _faults(directory, wanted.files):
        with _locked(home / "jars"):
            # Another process may have fetched it while this one waited.
            if _faults(directory, wanted.files):
                _fill(directory, wanted)
    return tuple(directory / file for file in sorted(wanted.files))


def java_command() -> str:
    """The `java` to run: JAVA_HOME's, else the one on PATH; TransientError without any."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found is None:
        raise TransientError("no Java found: install a JDK 17 or newer and put it on PATH")
    return found


def relock(names: Sequence[str], *, lock_file: Path = LOCK_FILE) -> None:
    """Resolve sets again and write their files' digests into the lock file."""
    sets = load_sets(lock_file)
    for name in names:
        with tempfile.TemporaryDirectory(prefix="onecopy-relock-") as scratch:
            found = _resolve(sets[name], Path(scratch))
            files = {p.name: _sha256(p) for p in sorted(found.iterdir())}
        sets[name] = JarSet(name=name, modules=sets[name].modules, files=files)
    lock_file.write_text("\n".join([_LOCK_HEADER, *(s.to_toml() for s in sets.values())]))


def _fill(directory: Path, wanted: JarSet) -> None:
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=directory.parent) as scratch:
        if sys.stderr.isatty():  # a person is looking, and it takes a minute
            sys.stderr.write(f"fetching {len(wanted.files)} Java parts (set {wanted.name}) ...\n")
        found = _resolve(wanted, Path(scratch))
        faults = _faults(found, wanted.files)
        if faults:
            raise FatalError(
                f"Java parts of set {wanted.name!r} are not those of {LOCK_FILE.name}: "
                f"{'; '.join(faults)}. Nothing of it was kept."
            )
        shutil.rmtree(directory, ignore_errors=True)  # left over, and not what the lock says
        found.rename(directory)


def _faults(directory: Path, files: Mapping[str, str]) -> list[str]:
    """What differs from the lock, empty when all is right."""
    try:
        present = {p.name for p in directory.iterdir()}
    except FileNotFoundError:
        return ["nothing there"]
    faults = [f"{n} is missing" for n in sorted(files.keys() - present)]
    faults += [f"{n} is not in the lock" for n in sorted(present - files.keys())]
    faults += [
        f"{n} has another SHA-256"
        for n in sorted(files.keys() & present)
        if _sha256(directory / n) != files[n]
    ]
    return faults


def _resolve(wanted: JarSet, scratch: Path) -> Path:
    """Run Ivy; returns a directory with the files. Ivy's own cache lives in `scratch` only."""
    ivy_file, found = scratch / "ivy.xml", scratch / "found"
    ivy_file.write_text(_ivy_module(wanted.modules))
    command = [
        *(java_command(), "-jar", str(_ivy_jar())),
        *("-ivy", str(ivy_file), "-cache", str(scratch / "cache"), "-confs", "default"),
        *("-types", "jar", "bundle"),
        *("-retrieve", f"{found}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    settings = os.environ.get(IVY_SETTINGS_VARIABLE)
    if settings:
        command += ["-settings", settings]
    said = ""
    for _ in range(_ATTEMPTS):
        done, said = _run(command)
        if done and found.is_dir():
            return found
    raise TransientError(
        f"Java parts of set {wanted.name!r} could not be fetched.\n"
        f"  command: {' '.join(command)}\n{_telling_lines(said)}\n"
        "  Check the network (a proxy is given to Java through JAVA_TOOL_OPTIONS), or name an Ivy "
        f"settings file with a repository you can reach in {IVY_SETTINGS_VARIABLE}."
    )


def _run(command: Sequence[str]) -> tuple[bool, str]:
    """Whether the command succeeded, and all it said."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_FETCH_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, f"no result after {_FETCH_S_MAX:.0f} s"
    return done.returncode == 0, done.stdout


def _telling_lines(said: str) -> str:
    lines = [line.strip() for line in said.splitlines()]
    telling = [
        x for x in lines if any(w in x for w in ("FAILED", "not found", "xception", "ERROR"))
    ]
    return "\n".join(f"  {line}" for line in (telling or lines)[:12])


def _ivy_jar() -> Path:
    # find_spec doesn't import: only spark_ext imports PySpark.
    spec = importlib.util.find_spec("pyspark")
    for place in (spec.submodule_search_locations or []) if spec else []:
        for jar in sorted(Path(place, "jars").glob("ivy-*.jar")):
            return jar
    raise FatalError("Ivy's jar was not found in the pyspark package: install pyspark again")


# The name of an XML namespace, not an address: nothing is ever fetched from it.
_CLASSIFIER_NAMESPACE: Final = "http://ant.apache.org/ivy/" + "maven"


def _ivy_module(modules: Iterable[JarModule]) -> str:
    return (
        f'<ivy-module version="2.0" xmlns:m="{_CLASSIFIER_NAMESPACE}">'
        '<info organisation="io.onecopy" module="jars"/>'
        '<configurations defaultconfmapping="default->default"><conf name="default"/>'
        f"</configurations><dependencies>{''.join(m.to_xml() for m in modules)}</dependencies>"
        "</ivy-module>"
    )


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the cache's lock, which ends with the process that holds it."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _main() -> None:
    import argparse

    parser = argparse.ArgumentParser(prog="python -m tiering.jars", description=__doc__)
    parser.add_argument("sets", nargs="+", metavar="SET")
    parser.add_argument("--relock", action="store_true", help="write what comes into jars.lock")
    options = parser.parse_args()
    if options.relock:
        relock(options.sets)
    for name in options.sets:
        for path in fetch(name):
            sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    _main()
