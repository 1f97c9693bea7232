"""The one build step, and that wheels carry its jar and source distributions its source."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import tiering.broker_plugin
from tiering import jars
from tiering.broker_plugin import PLUGIN_CLASS, build
from tiering.errors import TransientError

ROOT = Path(tiering.broker_plugin.__file__).parents[2]
CLASS_ENTRY = PLUGIN_CLASS.replace(".", "/") + ".class"
JAVA_17_CLASS_VERSION = 61


def test_same_source_same_bytes(kafka_jars: tuple[Path, ...], tmp_path: Path) -> None:
    first = build.build_jar(kafka_jars, tmp_path / "first.jar")
    second = build.build_jar(kafka_jars, tmp_path / "second.jar")
    assert first.read_bytes() == second.read_bytes()
    assert build.is_current(first)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.jar", "second.jar"]


def test_jar_runs_on_java_17_and_brings_nothing_but_our_classes(
    kafka_jars: tuple[Path, ...], tmp_path: Path
) -> None:
    with zipfile.ZipFile(build.build_jar(kafka_jars, tmp_path / "plugin.jar")) as jar:
        names = jar.namelist()
        version = int.from_bytes(jar.read(CLASS_ENTRY)[6:8], "big")
    assert names[0] == "META-INF/MANIFEST.MF"
    assert all(name.startswith(("META-INF/", "io/onecopy/")) for name in names)
    assert version == JAVA_17_CLASS_VERSION


def test_source_needs_only_the_storage_api(kafka_jars: tuple[Path, ...], tmp_path: Path) -> None:
    allowed = ("kafka-storage-api-", "kafka-clients-")
    few = [jar for jar in kafka_jars if jar.name.startswith(allowed)]
    assert build.is_current(build.build_jar(few, tmp_path / "plugin.jar"))


def test_jar_is_stale_when_the_source_changes(
    kafka_jars: tuple[Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "java"
    source.mkdir()
    (source / "A.java").write_text("class A {}\n")
    monkeypatch.setattr(build, "SOURCE_ROOT", source)
    jar = build.build_jar(kafka_jars, tmp_path / "plugin.jar")
    assert build.is_current(jar)
    (source / "A.java").write_text("class A { int b; }\n")
    assert not build.is_current(jar)
    jar.write_bytes(b"not a jar")
    assert not build.is_current(jar)
    assert not build.is_current(tmp_path / "none.jar")


def test_compiler_errors_are_shown(
    kafka_jars: tuple[Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "A.java").write_text("class A { int b = nowhere; }\n")
    monkeypatch.setattr(build, "SOURCE_ROOT", tmp_path)
    with pytest.raises(build.PluginBuildError, match="nowhere"):
        build.build_jar(kafka_jars, tmp_path / "plugin.jar")
    assert not (tmp_path / "plugin.jar").exists()


def test_without_a_jdk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(build.PluginBuildError, match=r"takes a JDK 17 or newer"):
        build.build_jar([], tmp_path / "plugin.jar")
    (tmp_path / "kafka-storage-api-4.3.1.jar").touch()
    assert build.main(["--classpath", str(tmp_path)]) == 2
    assert "JDK 17" in capsys.readouterr().err


def test_directory_without_kafka(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert build.main(["--classpath", str(tmp_path)]) == 2
    assert "kafka-storage-api" in capsys.readouterr().err


def test_failed_download_names_the_way_around(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable() -> tuple[Path, ...]:
        raise TransientError("the registry can't be reached")

    monkeypatch.delenv("ONECOPY_KAFKA_LIBS", raising=False)
    monkeypatch.setattr(jars, "kafka_jars", unreachable)
    with pytest.raises(build.PluginBuildError, match=r"reached\n.*ONECOPY_KAFKA_LIBS"):
        build.kafka_jars()


def test_wheel_has_the_jar_and_sdist_the_source(
    kafka_jars: tuple[Path, ...], tmp_path: Path
) -> None:
    environment = {**os.environ, "ONECOPY_KAFKA_LIBS": str(kafka_jars[0].parent)}
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
        timeout=180,
    )
    (wheel,) = tmp_path.glob("*.whl")
    (sdist,) = tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        jar = tmp_path / "from-wheel.jar"
        jar.write_bytes(archive.read("tiering/broker_plugin/onecopy-broker-plugin.jar"))
    assert build.is_current(jar)
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    sources = {path.relative_to(ROOT).as_posix() for path in build.SOURCE_ROOT.rglob("*.java")}
    assert sources
    assert sources <= names
    assert {"hatch_build.py", "tiering/broker_plugin/build.py"} <= names
    assert not [name for name in names if name.endswith(".jar")]
