"""Configuration: what is given is what is used, and every fault names its key."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tiering.config import RegistryConfig, TierConfig, TopicConfig, default_config, load_config
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

TOPICS = """
[registry]
url = "https://registry.example:8443/apis/ccompat/v7"
timeout_ms = 700

[defaults]
retention = "forever"
on_error = "suspend"

[topics.orders]
value = "schema_id_prefix"
key = "schema_latest"
key_subject = "ids"
table = "all_orders"
partition_by = ["day(kafka_timestamp)", "bucket(16, customer_id)"]
metadata_columns = ["kafka_timestamp"]

[topics."web.clicks"]
retention = "90d"
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
    for config in (load_config(written(tmp_path, WHOLE + TOPICS)), default_config(tmp_path)):
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
        ("", "onecopy.toml: store: missing"),
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


def test_a_topic_says_only_what_differs_from_the_defaults(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, WHOLE + TOPICS))
    assert config.registry == RegistryConfig(
        url="https://registry.example:8443/apis/ccompat/v7", timeout_ms=700
    )
    assert config.topic("orders") == TopicConfig(
        retention="forever",
        on_error="suspend",
        value="schema_id_prefix",
        key="schema_latest",
        key_subject="ids",
        table="all_orders",
        partition_by=("day(kafka_timestamp)", "bucket(16, customer_id)"),
        metadata_columns=("kafka_timestamp",),
    )
    clicks = config.topic("web.clicks")
    assert clicks == TopicConfig(retention="90d", on_error="suspend")
    assert config.topic("other") == TopicConfig(retention="forever", on_error="suspend")


FAULTS = [
    ("[topics.orders]\nretention = 'forver'", "topics.orders.retention"),
    ("[topics.'a.b']\ntable = 'Big'", 'topics."a.b".table'),
    ("[topics]\norders = { value = 'raw', table = 'x__dlq' }", "topics.orders.table"),
    ("[topics]\n'a.b'.\"table\" = 'x__0123abcd'", 'topics."a.b".table'),
    ("[topics.orders]\nvalue = 'avro'", "topics.orders.value"),
    ("[topics.orders]\nvalue = 'schema_latest'", "topics.orders.value"),
    ("[topics.orders]\nkey = 'schema_id_prefix'", "topics.orders.key"),
    ("[defaults]\nvalue = 'schema_latest'", "defaults.value"),
    ("[defaults]\ntable = 'x'", "defaults.table"),
    ("[defaults]\nsubject_strategy = 'record'", "defaults.subject_strategy"),
    ("[defaults]\nretention = 7\n[topics.orders]\nvalue = 'raw'", "defaults.retention"),
    ("[topics.orders]\npartition_by = [\n 'week(t)',\n]", "topics.orders.partition_by"),
    ("[topics.orders]\npartition_by = 'day(t)'", "topics.orders.partition_by"),
    ("[topics.orders]\nmetadata_columns = ['kafka_offset']", "topics.orders.metadata_columns"),
    ("[topics.orders]\nvalu = 'raw'", "topics.orders.valu"),
    ("[topics.'a b']", 'topics."a b"'),
    ("[topics]\norders = 3", "topics.orders"),
    ("[registry]\nurl = 'registry:8081'", "registry.url"),
    ("[registry]\nurl = 'http://registry:port'", "registry.url"),
    ("[registry]\nurl = 'http://registry:80/?a=1'", "registry.url"),
    ("[registry]\ntimeout_ms = 0", "registry.timeout_ms"),
    ("[topics.a]\nvalue = 'raw'\n[topics.b]\ntable = 'a'", "topics.b.table"),
    ("[topics.a]\ntable = 'one'\n[topics.b]\ntable = 'one'", "topics.b.table"),
    ("[topics.'a.b']\nvalue = 'raw'\n[topics.b]\ntable = 'a__pb'", "topics.b.table"),
]


@pytest.mark.parametrize(("text", "key"), FAULTS)
def test_a_fault_in_a_topic_names_file_line_and_key(tmp_path: Path, text: str, key: str) -> None:
    path = written(tmp_path, WHOLE + text)
    last = key.replace('"', "").rsplit(".", 1)[-1]
    lines = path.read_text().splitlines()
    line = max(i for i, each in enumerate(lines, 1) if last in each)
    if key == "defaults.retention":
        assert lines[line - 1] == "retention = 7"
    with pytest.raises(BadInput) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}:{line}: {key}: "), caught.value


@pytest.mark.parametrize("url", ["http://me:s3cret-pass@registry:8081", "http://s3cret-pass@r/x"])
def test_a_login_in_the_registry_s_url_is_refused_and_not_repeated(
    tmp_path: Path, url: str
) -> None:
    for text in (f"[registry]\nurl = '{url}'", f"[registry]\nurl = '{url[:-1]} '"):
        with pytest.raises(BadInput, match=r"registry\.url") as caught:
            load_config(written(tmp_path, WHOLE + text))
        assert "s3cret" not in str(caught.value)


def test_what_isn_t_a_variable_s_name_is_not_repeated(tmp_path: Path) -> None:
    text = WHOLE + "[registry]\ntoken_variable = 's3cret-token'"
    with pytest.raises(BadInput, match=r"registry\.token_variable: must be the name") as caught:
        load_config(written(tmp_path, text))
    assert "s3cret" not in str(caught.value)


def test_a_missing_key_of_a_table_names_the_table_s_line(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE.replace('uri = "http', 'url = "http'))
    line = path.read_text().splitlines().index("[catalog]") + 1
    with pytest.raises(BadInput) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}:{line}: catalog.uri: missing")


def test_topics_of_other_tables_may_be_named_as_others_are(tmp_path: Path) -> None:
    """A topic may keep the name that it would have anyway."""
    base = default_config(tmp_path)
    topics = {"a.b": TopicConfig(table="a__pb"), "c": TopicConfig(table="d")}
    assert dataclasses.replace(base, topics=topics).topic("c").table == "d"
