"""The command line: usage, exit codes, one line per error, and `up` from start to Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests
from kit_processes import alive, descendants
from native_segments import Segment, in_batches, some_records
from polling import eventually

from tiering.cli import COMMANDS, main
from tiering.cli.output import readable_bytes
from tiering.errors import FatalError
from tiering.heartbeat import HEARTBEAT_KEY
from tiering.store import open_store

ONECOPY = [sys.executable, "-m", "tiering.cli"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert f"onecopy {command}" in told
    assert "Exit codes" in told


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert all(f"  {name} " in told for name in COMMANDS)


def test_no_command_shows_the_help_and_is_a_usage_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == 2
    assert "commands:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["frobnicate"], "frobnicate"),
        (["up", "--nonsense"], "--nonsense"),
        (["up", "--kafka-property", "novalue"], "KEY=VALUE"),
        (["up", "--kafka-port", "99999"], "not a port"),
        (["read", "t"], "--partition"),
        (["read", "t", "--partition", "-1"], "--partition"),
        (["read", "t", "--partition", "0", "--offset", "x"], "whole number"),
        (["read", "t", "--partition", "0", "--timestamp", "soon"], "ISO 8601"),
        (["read", "t", "--partition", "0", "--offset", "1", "--timestamp", "1"], "not allowed"),
        (["doctor"], "BOOTSTRAP"),
        (["demo", "--records", "1"], "1,000 or more"),
        (["status", "--dir", "a", "--config", "b"], "not allowed"),
    ],
)
def test_usage_errors_exit_with_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("command", ["up", "serve"])
def test_a_directory_that_cannot_be_made_is_bad_input(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert main([command, "--dir", str(file)]) == 2
    assert (
        capsys.readouterr().err == f"onecopy: {file}: can't be used as a directory: File exists\n"
    )


@pytest.mark.parametrize("arguments", [["status"], ["read", "t", "--partition", "0"]])
def test_a_directory_without_a_tier_is_bad_input(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--dir", str(tmp_path)]) == 2
    told = capsys.readouterr()
    assert told.err.startswith("onecopy: no tier in")
    assert told.err.count("\n") == 1
    assert told.out == ""


def test_a_faulty_configuration_names_file_and_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "onecopy.toml"
    config.write_text('store = "x"\nspeed = "high"\n[catalog]\nuri = "sqlite:///x.db"\n')
    assert main(["serve", "--config", str(config)]) == 2
    told = capsys.readouterr().err
    assert str(config) in told
    assert "speed" in told


def test_serve_takes_a_file_or_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--config", "x.toml", "--store", "y"]) == 2
    assert "not both" in capsys.readouterr().err


def test_status_of_an_empty_tier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "onecopy.toml"
    config.write_text(
        f'store = "{tmp_path}/store"\n[catalog]\nuri = "sqlite:///{tmp_path}/catalog.db"\n'
    )
    assert main(["status", "--config", str(config), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"engine_seen_at_ms": None, "topics": []}
    assert main(["status", "--config", str(config)]) == 0
    assert "no segments yet" in capsys.readouterr().out


def test_status_tells_what_became_of_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "onecopy.toml"
    config.write_text(
        f'store = "{tmp_path}/store"\n[catalog]\nuri = "sqlite:///{tmp_path}/catalog.db"\n'
    )
    store = open_store(str(tmp_path / "store"))
    for topic in ("orders", "plain"):
        Segment(batches=in_batches(some_records(0, 5), 5), topic=topic).store(store)
    values = {"typed_rows": 200, "raw_rows": 25, "bad_records": {"truncated": 3}}
    beat = {"at_ms": 1, "problems": {"plain": "waits"}, "values": {"orders": values}}
    store.put(HEARTBEAT_KEY, json.dumps(beat).encode())
    assert main(["status", "--config", str(config), "--json"]) == 0
    orders, plain = json.loads(capsys.readouterr().out)["topics"]
    assert orders["values"] == {**values, "raw_share": 0.125}
    assert (plain["values"], plain["problem"]) == (None, "waits")
    assert main(["status", "--config", str(config)]) == 0
    told = capsys.readouterr().out
    assert "25 (12.5%)" in told
    assert "3 truncated" in told


@pytest.mark.parametrize(("debug", "lines"), [(False, 1), (True, 3)])
def test_an_unexpected_error_is_one_line_unless_debugging(
    debug: bool,
    lines: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from tiering.cli import status

    def fail(options: object) -> int:
        raise FatalError("table x: something is wrong")

    monkeypatch.setattr(status, "run", fail)
    if debug:
        monkeypatch.setenv("ONECOPY_DEBUG", "1")
    else:
        monkeypatch.delenv("ONECOPY_DEBUG", raising=False)
    assert main(["status"]) == 1
    told = capsys.readouterr().err
    assert ("Traceback" in told) is debug
    assert told.count("\n") >= lines


def test_plugin_path_prints_jar_and_properties(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plugin-path", "--json", "--copy-to", str(tmp_path), "--url", "http://h:1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert Path(told["jar"]).parent == tmp_path
    assert Path(told["jar"]).is_file()
    assert told["properties"]["rsm.config.onecopy.url"] == "http://h:1"
    assert told["properties"]["remote.log.storage.manager.class.path"] == told["jar"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["plugin-path", "--url", "nonsense"], "--url nonsense: give http"),
        (["demo", "--report", "/dev/null/x/report.json"], "--report /dev/null/x/report.json: "),
        (["serve", "--catalog-uri", "foo://x"], "catalog.uri: foo://x: give sqlite"),
    ],
)
def test_values_that_cannot_work_are_bad_input(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1


def test_a_reader_that_has_had_enough_is_no_error() -> None:
    code = "import sys; from tiering.cli import main; sys.exit(main(['plugin-path']))"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 0


def test_sizes_for_people() -> None:
    assert readable_bytes(0) == "0 B"
    assert readable_bytes(1536) == "1.5 KiB"
    assert readable_bytes(5 * 1024**4) == "5.0 TiB"


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_up_says_where_everything_is_and_leaves_no_process(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    up = subprocess.Popen(
        [*ONECOPY, "up", "--dir", str(tmp_path), "--with-registry", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert up.stdout is not None
        told = json.loads(up.stdout.readline())
        assert requests.get(f"{told['registry']}/subjects", timeout=10).json() == []
        assert {"bootstrap_servers", "service_url", "catalog", "namespace", "warehouse"} <= set(
            told
        )
        assert {"name", "uri", "warehouse"} <= set(told["catalog"])
        started = descendants(up.pid)
        assert len(started) >= 4
        up.send_signal(number)
        assert up.wait(60) == code
    finally:
        up.kill()
        up.wait()
        up.stdout.close()
    eventually(lambda: not [pid for pid in started if alive(pid)], 20)
