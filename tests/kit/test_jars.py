"""The Java parts: locked, verified, fetched once, refused when they aren't what the lock says."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tiering import jars
from tiering.errors import BadInput, FatalError, TransientError

GOOD = b"the right jar"


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """A lock file with one set of one file."""
    path = tmp_path / "jars.lock"
    path.write_text(
        '[parts]\nmodules = [{ coordinates = "org.example:part:1.0", alone = true }]\n'
        f'[parts.files]\n"part-1.0.jar" = "{hashlib.sha256(GOOD).hexdigest()}"\n'
    )
    return path


class Resolver:
    """Stands in for Ivy: delivers these bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.calls = 0

    def __call__(self, wanted: jars.JarSet, scratch: Path) -> Path:
        self.calls += 1
        found = scratch / "found"
        found.mkdir()
        (found / "part-1.0.jar").write_bytes(self.data)
        return found


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    resolver = Resolver(GOOD)
    monkeypatch.setattr(jars, "_resolve", resolver)
    return resolver


def fetch_afresh(lock: Path, home: Path) -> tuple[Path, ...]:
    """As another process would: what this one has verified already doesn't count."""
    jars._fetch.cache_clear()
    return jars.fetch("parts", home=home, lock_file=lock)


def test_every_file_of_the_lock_has_a_digest_and_no_set_is_empty() -> None:
    sets = jars.load_sets()
    assert {"kafka", "iceberg", "iceberg-aws"} <= sets.keys()
    for wanted in sets.values():
        assert wanted.files, wanted.name
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in wanted.files.values())
    assert "://" not in jars.LOCK_FILE.read_text()


def test_the_lock_reads_back_as_it_is_written() -> None:
    import tomllib

    for name, wanted in jars.load_sets().items():
        raw = tomllib.loads(wanted.to_toml())[name]
        assert jars.JarSet.from_lock(name, raw) == wanted


def test_kafka_s_jars_are_all_there(kafka_jars: tuple[Path, ...]) -> None:
    names = {path.name for path in kafka_jars}
    assert {
        "kafka_2.13-4.3.1.jar",
        "kafka-tools-4.3.1.jar",
        "kafka-storage-4.3.1-test.jar",
    } <= names
    assert all(path.is_file() for path in kafka_jars)


def test_a_set_is_fetched_once(lock: Path, tmp_path: Path, resolver: Resolver) -> None:
    first = fetch_afresh(lock, tmp_path)
    assert [p.read_bytes() for p in first] == [GOOD]
    assert fetch_afresh(lock, tmp_path) == first
    assert resolver.calls == 1


def test_a_fetched_jar_with_other_bytes_is_refused(
    lock: Path, tmp_path: Path, resolver: Resolver
) -> None:
    resolver.data = b"something else"
    with pytest.raises(FatalError, match=r"part-1\.0\.jar has another SHA-256"):
        fetch_afresh(lock, tmp_path)
    assert not list((tmp_path / "jars").glob("parts-*"))
    assert not list((tmp_path / "jars").glob(".fetch-*"))


@pytest.mark.parametrize("damage", ["altered", "removed", "added"])
def test_a_cached_set_that_was_tampered_with_is_fetched_again(
    lock: Path, tmp_path: Path, resolver: Resolver, damage: str
) -> None:
    (jar,) = fetch_afresh(lock, tmp_path)
    if damage == "altered":
        jar.write_bytes(b"tampered")
    elif damage == "removed":
        jar.unlink()
    else:
        (jar.parent / "extra.jar").write_bytes(b"more")
    assert [p.read_bytes() for p in fetch_afresh(lock, tmp_path)] == [GOOD]
    assert [p.name for p in jar.parent.iterdir()] == ["part-1.0.jar"]
    assert resolver.calls == 2


def test_those_who_fetch_at_the_same_time_wait_for_one(
    lock: Path, tmp_path: Path, resolver: Resolver
) -> None:
    jars._fetch.cache_clear()
    threads = [
        threading.Thread(
            target=jars.fetch, args=("parts",), kwargs={"home": home, "lock_file": lock}
        )
        for home in [tmp_path, tmp_path / "." / "x" / ".."] * 4
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert resolver.calls == 1


def test_an_unknown_set_is_bad_input(lock: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="known are parts"):
        jars.fetch("nothing", home=tmp_path, lock_file=lock)


def test_what_ivy_can_t_find_is_told_with_the_command(
    lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real Ivy, with an empty directory as its only repository: no network."""
    settings = tmp_path / "settings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="here"/><resolvers><filesystem name="here">'
        f'<artifact pattern="{tmp_path}/repository/[artifact]-[revision].[ext]"/>'
        "</filesystem></resolvers></ivysettings>"
    )
    monkeypatch.setenv(jars.IVY_SETTINGS_VARIABLE, str(settings))
    monkeypatch.setattr(jars, "_ATTEMPTS", 1)
    with pytest.raises(TransientError) as told:
        fetch_afresh(lock, tmp_path)
    message = str(told.value)
    assert "-retrieve" in message
    assert "org.example#part;1.0" in message
    assert jars.IVY_SETTINGS_VARIABLE in message
    assert not list((tmp_path / "jars").glob("parts-*"))


def test_without_java_the_error_says_what_to_install(
    lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(TransientError, match="install a JDK"):
        fetch_afresh(lock, tmp_path)


def test_ivy_is_found_without_importing_pyspark() -> None:
    code = "import sys; from tiering import jars; jars._ivy_jar(); print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_cache_s_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ONECOPY_HOME", str(tmp_path))
    assert jars.cache_home() == tmp_path
    monkeypatch.delenv("ONECOPY_HOME")
    monkeypatch.delenv("HOME", raising=False)
    assert jars.cache_home().parts[-2:] == (".cache", "onecopy")
