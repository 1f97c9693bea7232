"""What can be checked of docker/ without a container engine: it parses, all it names exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tiering.cli import main
from tiering.config import load_config

DOCKER = Path(__file__).parents[1] / "docker"
ROOT = DOCKER.parent


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((DOCKER / "compose.yaml").read_text()))


def test_the_configuration_is_one_that_serve_takes() -> None:
    config = load_config(DOCKER / "onecopy.toml")
    assert config.store.startswith("s3://onecopy/tier")
    assert config.service.allow_plain


def test_service_and_broker_share_a_token(compose: dict[str, Any]) -> None:
    config = load_config(DOCKER / "onecopy.toml")
    broker = compose["services"]["kafka"]
    assert broker["environment"]["KAFKA_RSM_CONFIG_ONECOPY_TOKEN_FILE"] == config.service.token_file
    secret = Path(config.service.token_file).name
    assert secret in broker["secrets"]
    assert secret in compose["services"]["onecopy"]["secrets"]
    assert f"{compose['secrets'][secret]['environment']}=" in (DOCKER / "env.example").read_text()


def test_every_volume_and_dependency_is_declared(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert set(service.get("depends_on", ())) <= set(compose["services"]), name
        assert set(service.get("secrets", ())) <= set(compose["secrets"]), name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DOCKER / source).exists(), volume
            else:
                assert source in compose["volumes"], volume


def test_every_command_of_ours_exists(
    compose: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    ours = [s for s in compose["services"].values() if s["image"] == "onecopy" and "command" in s]
    assert ours
    for service in ours:
        command, *options = service["command"]
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0
        told = capsys.readouterr().out
        for option in options:
            if option.startswith("--"):
                assert option in told, f"{command} {option}"


def test_every_path_that_the_image_copies_exists() -> None:
    for line in (DOCKER / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY "):
            *sources, _ = line.split()[1:]
            for source in sources:
                assert (ROOT / source).exists(), source


def test_the_plug_in_knows_every_key_the_broker_is_given(compose: dict[str, Any]) -> None:
    java = "".join(p.read_text() for p in (ROOT / "tiering/broker_plugin/java").rglob("*.java"))
    keys = [k for k in compose["services"]["kafka"]["environment"] if k.startswith("KAFKA_RSM_")]
    assert keys
    for key in keys:
        name = key.removeprefix("KAFKA_RSM_CONFIG_").lower().replace("_", ".")
        assert f'"{name}"' in java, name


def test_the_broker_gets_the_plug_in_s_class(compose: dict[str, Any]) -> None:
    name = compose["services"]["kafka"]["environment"][
        "KAFKA_REMOTE_LOG_STORAGE_MANAGER_CLASS_NAME"
    ]
    source = ROOT / "tiering/broker_plugin/java" / (name.replace(".", "/") + ".java")
    assert source.exists()


def test_the_broker_keeps_its_logs_in_its_volume(compose: dict[str, Any]) -> None:
    broker = compose["services"]["kafka"]
    mounts = [volume.split(":")[1] for volume in broker["volumes"]]
    assert broker["environment"]["KAFKA_LOG_DIRS"] in mounts


def test_no_secret_is_written_down(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for key, value in (service.get("environment") or {}).items():
            if re.search("SECRET|PASSWORD|ACCESS_KEY", key):
                assert str(value).startswith("${"), key
    for line in (DOCKER / "env.example").read_text().splitlines():
        assert line.startswith("#") or line.endswith("=")
