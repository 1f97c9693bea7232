"""`onecopy config check`: what is shown is what the tier would use; no secret is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tiering.cli import main
from tiering.config import default_config

TEXT = """
store = "s3://lake/tier"

[catalog]
uri = "http://127.0.0.1:8181"
token = "s3cret-catalog"

[registry]
url = "http://127.0.0.1:8081"

[defaults]
on_error = "raw"

[topics."web.clicks"]
partition_by = ["day( kafka_timestamp )"]

[topics.orders]
table = "all_orders"
metadata_columns = []
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "onecopy.toml"
    path.write_text(TEXT)
    return path


def test_json_has_each_topic_s_effective_settings(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONECOPY_REGISTRY_TOKEN", "s3cret-token")
    assert main(["config", "check", "--config", str(path), "--json"]) == 0
    out = capsys.readouterr().out
    assert "s3cret" not in out
    shown = json.loads(out)
    assert shown["registry"]["credentials"] == "token"
    assert shown["warehouse"] == "s3://lake/tier/warehouse"
    clicks, orders = shown["topics"]["web.clicks"], shown["topics"]["orders"]
    assert (clicks["table"], orders["table"]) == ("web__pclicks", "all_orders")
    assert clicks["on_error"] == orders["on_error"] == shown["defaults"]["on_error"] == "raw"
    assert clicks["partition_by"] == ["day( kafka_timestamp )"]
    assert orders["metadata_columns"] == []
    assert clicks["metadata_columns"] == shown["defaults"]["metadata_columns"] != []


def test_people_get_a_table(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert "s3cret" not in out
    assert "http://127.0.0.1:8081 (credentials: none)" in out
    for word in ("web__pclicks", "all_orders", "day(kafka_timestamp)", "(all others)"):
        assert word in out


def test_the_configuration_of_a_tier_in_a_directory_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tiering.local.tier_stack import CONFIG_FILE

    (tmp_path / CONFIG_FILE).write_text(default_config(tmp_path).to_json())
    assert main(["config", "check", "--dir", str(tmp_path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["registry"]["url"] == ""
    assert shown["topics"] == {}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"raw"', '"rwa"', ":12: defaults.on_error: 'rwa' is none of dlq, suspend, raw"),
        ("kafka_timestamp )", "", ":15: topics.\"web.clicks\".partition_by: 'day( ' is no"),
    ],
)
def test_a_fault_is_one_line_with_its_place(
    path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, told: str
) -> None:
    path.write_text(TEXT.replace(old, new))
    assert main(["config", "check", "--config", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"onecopy: {path}{told}")
    assert said.count("\n") == 1


def test_half_a_login_is_found_before_the_tier_is_started(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONECOPY_REGISTRY_USER", "tier")
    assert main(["config", "check", "--config", str(path)]) == 2
    assert "set both or neither" in capsys.readouterr().err
