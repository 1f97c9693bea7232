"""`onecopy read`, as a person and as a script use it."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from offset_tables import EPOCH_MS, TOPIC, append, make_catalog, make_table, offsets_of, record

from tiering.cli import main

ROWS = 1000


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration file for a tier of one topic with one partition."""
    directory = tmp_path_factory.mktemp("tier")
    table = make_table(make_catalog(directory))
    append(table, [(0, o) for o in range(ROWS)], {0: ROWS})
    path = directory / "tier.toml"
    path.write_text(f'store = "{directory}"\n[catalog]\nuri = "sqlite:///{directory}/catalog.db"\n')
    return path


def read(config: Path, *arguments: str) -> int:
    return main(["read", TOPIC, "--partition", "0", "--config", str(config), *arguments])


def test_json(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert read(config, "--offset", "7", "--max", "50", "--json") == 0
    got = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for offset, raw in zip(range(7, 57), got, strict=True):
        expected = record(0, offset)
        assert raw == {
            "topic": TOPIC,
            "partition": 0,
            "offset": offset,
            "timestamp_ms": expected.timestamp_ms,
            "timestamp_type": expected.timestamp_type,
            "leader_epoch": expected.leader_epoch,
            "key": None if expected.key is None else expected.key.decode(),
            "value": None if expected.value is None else expected.value.decode(),
            "headers": [
                {"key": k, "value": None if v is None else v.decode()} for k, v in expected.headers
            ],
        }


def test_lines(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert read(config, "--offset", "995") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["995", "996", "997", "998", "999"]


def test_timestamp(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for moment in (str(EPOCH_MS + 2000), "2023-11-14T22:13:22Z"):
        assert read(config, "--timestamp", moment, "--json", "--max", "1") == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0])["timestamp_ms"] >= EPOCH_MS + 2000


def test_arrow(config: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.arrows"
    assert read(config, "--offset", "10", "--max", "33", "--arrow", str(file)) == 0
    with pa.OSFile(str(file)) as source, pa.ipc.open_stream(source) as stream:
        assert offsets_of(iter(stream)) == list(range(10, 43))


def test_beyond_the_end(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert read(config, "--offset", "100000") == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["read", "other", "--partition", "0"], "namespace kafka has orders"),
        (["read", TOPIC, "--partition", "9"], "no partition 9 in its table; it has: 0"),
        (
            ["read", TOPIC, "--partition", "0", "--arrow", "/no/such/dir/x"],
            "--arrow /no/such/dir/x: ",
        ),
    ],
)
def test_bad_input(
    config: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    assert main([*arguments, "--config", str(config)]) == 2
    assert reason in capsys.readouterr().err


def test_bytes_that_are_no_text() -> None:
    from tiering.cli.read import _encoded

    assert _encoded("key", b"\xff\x00") == {"key_base64": base64.b64encode(b"\xff\x00").decode()}
    assert _encoded("key", b"") == {"key": ""}
    assert _encoded("key", None) == {"key": None}


@pytest.mark.parametrize(("form", "wanted"), [("--json", 20), ("--arrow=-", 100)])
def test_closed_pipe(config: Path, form: str, wanted: int) -> None:
    """A reader that has had enough is no error, and no traceback."""
    command = [sys.executable, "-c", "import sys; from tiering.cli import main; sys.exit(main())"]
    command += ["read", TOPIC, "--partition", "0", "--config", str(config), form]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert len(process.stdout.read(wanted)) == wanted
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""
