"""Configuration: what is given is what is used, and every fault names its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiering.config import TierConfig, default_config, load_config
from tiering.errors import BadInput

WHOLE = """
store = "s3://lake/tier?endpoint=http://127.0.0.1:9000"
namespace = "streams"
catalog_name = "prod"

[catalog]
type = "rest"
uri = "http://127.0.0.1:8181"

[service]
host = "127.0.0.1"
port = 8099
token_file = "/etc/onecopy/token"

[engine]
cycle_interval_ms = 500
spark_master = "spark://127.0.0.1:7077"
spark_conf = { "spark.executor.memory" = "4g" }
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "onecopy.toml"
    path.write_text(text)
    return path


def test_a_file_gives_what_it_says(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, WHOLE))
    assert config.warehouse == "s3://lake/tier/warehouse"
    assert config.catalog_properties() == {
        "warehouse": "s3://lake/tier/warehouse",
        "s3.endpoint": "http://127.0.0.1:9000",
        "type": "rest",
        "uri": "http://127.0.0.1:8181",
    }
    assert config.service.port == 8099
    assert config.engine.spark_conf == {"spark.executor.memory": "4g"}


def test_json_for_a_child_process_gives_the_same_configuration(tmp_path: Path) -> None:
    for config in (load_config(written(tmp_path, WHOLE)), default_config(tmp_path)):
        assert TierConfig.from_json(config.to_json()) == config


def test_the_default_lives_in_one_directory(tmp_path: Path) -> None:
    config = default_config(tmp_path)
    assert config.store == str(tmp_path / "store")
    assert config.warehouse == str(tmp_path / "store" / "warehouse")
    assert config.catalog["uri"] == f"sqlite:///{tmp_path / 'catalog.db'}"


def test_relative_places_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table keeps its location, and is read from other directories."""
    monkeypatch.chdir(tmp_path)
    text = WHOLE.replace("s3://lake/tier?endpoint=http://127.0.0.1:9000", "./tier")
    for config in (default_config(tmp_path, store="tier"), load_config(written(tmp_path, text))):
        assert config.store == str(tmp_path / "tier")
        assert config.warehouse == str(tmp_path / "tier" / "warehouse")
    elsewhere = default_config(tmp_path, store="tier", warehouse="tables")
    assert elsewhere.warehouse == str(tmp_path / "tables")


@pytest.mark.parametrize("name", ["a%20b", "a?b"])
def test_a_directory_that_urls_cannot_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="choose a directory without"):
        default_config(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "warehouse"),
        (WHOLE + "\nworkers = 3\n", "engine.workers: unknown key; known are cycle_interval_ms"),
        ("stroe = 'x'\n" + WHOLE, "stroe: unknown key"),
        (WHOLE.replace("port = 8099", 'port = "8099"'), "service.port: must be int"),
        (WHOLE.replace("port = 8099", "port = 80990"), "service.port: 80990 is not a port"),
        (WHOLE.replace("streams", "Streams"), "namespace: 'Streams' must be lower-case"),
        (WHOLE.replace('uri = "http', 'url = "http'), "catalog.uri: missing"),
        (WHOLE.replace("= 500", "= 5"), "engine.cycle_interval_ms: 5 is below 10"),
        (WHOLE.replace("port = 8099", 'tls_cert = "a.pem"'), "give both or neither"),
        ("store = [", "not TOML"),
    ],
)
def test_a_fault_names_file_and_key(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        load_config(written(tmp_path, text))
    assert str(tmp_path / "onecopy.toml") in str(caught.value)
    assert told in str(caught.value)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        load_config(tmp_path / "none.toml")
