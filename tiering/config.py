"""The tier's configuration: read once at the edge, checked at once, handed on as values."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qsl, urlsplit

from tiering.errors import BadInput
from tiering.redaction import redact
from tiering.segments import check_topic_name
from tiering.settings import BadSetting, build
from tiering.toml_lines import line_of
from tiering.topic_config import TopicConfig, check_table_names, retention_ms

__all__ = [
    "EngineConfig",
    "RegistryConfig",
    "ServiceConfig",
    "TierConfig",
    "TopicConfig",
    "default_config",
    "load_config",
    "retention_ms",
]

_CATALOG_URIS: Final = ("sqlite:", "http://", "https://")
_NAMESPACE: Final = re.compile(r"[a-z_][a-z0-9_]{0,127}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """Where the HTTP service listens. Port 0 asks the system for a free one.

    `allow_plain` lets it listen beyond loopback without TLS; the token then travels in clear.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token_file: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    allow_plain: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise BadSetting(("port",), f"{self.port} is not a port (0 to 65535)")
        if bool(self.tls_cert) != bool(self.tls_key):
            given = "tls_cert" if self.tls_cert else "tls_key"
            raise BadSetting((given,), "tls_cert and tls_key: give both or neither")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How the engine works.

    Attributes:
        cycle_interval_ms: pause between two looks at the ledger when nothing was to do.
        cycle_bytes_max: native bytes that one cycle takes at most.
        split_bytes: segments larger than this become several tasks and files.
        spark_master: where the conversion job runs.
        spark_conf: further Spark settings, passed on as they are.
        retire_grace_ms: how long a proven segment's native log is kept before table and side
            file become the only copy.
    """

    cycle_interval_ms: int = 200
    cycle_bytes_max: int = 4096 * MIB
    split_bytes: int = 256 * MIB
    spark_master: str = "local[*]"
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    retire_grace_ms: int = 3_600_000

    def __post_init__(self) -> None:
        lowest = {"cycle_interval_ms": 10, "cycle_bytes_max": 1, "split_bytes": MIB}
        for name, low in {**lowest, "retire_grace_ms": 0}.items():
            if getattr(self, name) < low:
                raise BadSetting((name,), f"{getattr(self, name)} is below {low}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConfig:
    """The schema registry (any that has Confluent's API), and where its credentials are.

    Attributes:
        url: with the API's path, if it has one; empty: there is no registry.
        user_variable, password_variable: environment variables with a login (HTTP Basic).
        token_variable: environment variable with a bearer token, which goes before a login.
        ca_file: certificates to trust, instead of the system's.
        timeout_ms: for a connection, and for an answer.
    """

    url: str = ""
    user_variable: str = "ONECOPY_REGISTRY_USER"
    password_variable: str = "ONECOPY_REGISTRY_PASSWORD"  # noqa: S105 - where it is
    token_variable: str = "ONECOPY_REGISTRY_TOKEN"  # noqa: S105 - where it is
    ca_file: str = ""
    timeout_ms: int = 5_000

    def __post_init__(self) -> None:
        if self.url:
            _check_registry_url(self.url)
        for name in ("user_variable", "password_variable", "token_variable"):
            if not _VARIABLE.fullmatch(getattr(self, name)):
                # Not quoted: it may be the secret itself.
                raise BadSetting((name,), "must be the name of an environment variable")
        if not 100 <= self.timeout_ms <= 120_000:
            raise BadSetting(("timeout_ms",), f"{self.timeout_ms} is not in 100..120000")


def _check_registry_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number
        good = False
    if not good or any(char.isspace() for char in url):
        raise BadSetting(("url",), f"{redact(url, {})}: give http://HOST:PORT/PATH or https://...")
    if parts.username is not None or parts.password is not None:
        raise BadSetting(
            ("url",),
            "holds a login: put it into ONECOPY_REGISTRY_USER and ONECOPY_REGISTRY_PASSWORD, or "
            "name other variables in user_variable and password_variable",
        )
    if parts.query or parts.fragment:
        raise BadSetting(("url",), "must end with its path: no '?' and no '#'")


@dataclass(frozen=True, slots=True, kw_only=True)
class TierConfig:
    """Everything that `onecopy serve` needs.

    Attributes:
        store: URL of the object store: a directory, file:///..., or s3://bucket/prefix?endpoint=...
        warehouse: location below which tables are created; `<store>/warehouse` by default.
        catalog_name: the catalog's name; engines that share an SQLite catalog must use the same.
        catalog: PyIceberg catalog properties (uri, type, ...).
        namespace: the Iceberg namespace of all topic tables.
        registry: where the schemas of values and keys are.
        defaults: settings of topics that have none of their own.
        topics: settings by topic name. In a file they say only what differs from the defaults.
    """

    store: str
    warehouse: str
    catalog_name: str = "onecopy"
    catalog: Mapping[str, str]
    namespace: str = "kafka"
    service: ServiceConfig = field(default_factory=ServiceConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    registry: RegistryConfig = field(default_factory=RegistryConfig)
    defaults: TopicConfig = field(default_factory=TopicConfig)
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)

    def topic(self, name: str) -> TopicConfig:
        """The settings of a topic."""
        return self.topics.get(name, self.defaults)

    def __post_init__(self) -> None:
        if not self.store:
            raise BadSetting(("store",), "missing; give a directory or an s3:// URL")
        if not _NAMESPACE.fullmatch(self.namespace):
            raise BadSetting(
                ("namespace",),
                f"{self.namespace!r} must be lower-case letters, digits and '_', "
                "not starting with a digit",
            )
        self._check_catalog()
        self._check_topics()

    def _check_catalog(self) -> None:
        if "uri" not in self.catalog:
            raise BadSetting(
                ("catalog", "uri"), "missing; give sqlite:///FILE or a REST catalog's URL"
            )
        if "type" not in self.catalog and not self.catalog["uri"].startswith(_CATALOG_URIS):
            uri = redact(self.catalog["uri"], self.catalog)
            raise BadSetting(
                ("catalog", "uri"),
                f"{uri}: give sqlite:///FILE or a REST catalog's URL; another kind needs "
                "catalog.type",
            )

    def _check_topics(self) -> None:
        for topic in self.topics:
            try:
                check_topic_name(topic)
            except BadInput as error:
                raise BadSetting(("topics", topic), str(error)) from None
        if self.defaults.table:
            raise BadSetting(("defaults", "table"), "only one topic can have it: set it there")
        for path, own in self._all_topic_configs():
            if own.needs_registry and not self.registry.url:
                part = "value" if own.value.startswith("schema_") else "key"
                mode = own.value if part == "value" else own.key
                raise BadSetting((*path, part), f"{mode} needs a registry: set registry.url")
        try:
            check_table_names(self.topics)
        except BadSetting as error:
            raise error.below("topics") from None

    def _all_topic_configs(self) -> Iterator[tuple[tuple[str, ...], TopicConfig]]:
        yield ("defaults",), self.defaults
        for topic, own in self.topics.items():
            yield ("topics", topic), own

    def to_json(self) -> str:
        """Encode for a child process; inverse: `from_json`."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Inverse of `to_json`."""
        return build(cls, json.loads(text))

    def catalog_properties(self) -> dict[str, str]:
        """PyIceberg's properties for this catalog, with its warehouse.

        An S3 warehouse is reached by the endpoint and region that the store's URL names, unless
        the catalog has its own.
        """
        query = dict(parse_qsl(urlsplit(self.store).query))
        s3 = {f"s3.{key}": query[key] for key in ("endpoint", "region") if key in query}
        return {"warehouse": self.warehouse, **s3, **self.catalog}


def default_config(
    directory: Path,
    *,
    store: str | None = None,
    catalog_uri: str | None = None,
    warehouse: str | None = None,
    namespace: str = "kafka",
    service: ServiceConfig | None = None,
    engine: EngineConfig | None = None,
    registry: RegistryConfig | None = None,
) -> TierConfig:
    """The configuration of a tier that lives in `directory`, unless told otherwise.

    Store: `<directory>/store`; catalog: SQLite in `<directory>/catalog.db`; token:
    `<directory>/token`.
    """
    store = _absolute(store or str(directory / "store"))
    service = service or ServiceConfig(token_file=str(directory / "token"))
    catalog = {"uri": catalog_uri or f"sqlite:///{directory / 'catalog.db'}"}
    if catalog["uri"].startswith(("http://", "https://")):
        catalog["type"] = "rest"
    return TierConfig(
        store=store,
        warehouse=_absolute(warehouse) if warehouse else warehouse_of(store),
        catalog=catalog,
        namespace=namespace,
        service=service,
        engine=engine or EngineConfig(),
        registry=registry or RegistryConfig(),
    )


def warehouse_of(store: str) -> str:
    """`<store>/warehouse`, a sibling of native/ and ledger/ (the store's query part left off)."""
    return store.partition("?")[0].rstrip("/") + "/warehouse"


def _absolute(place: str) -> str:
    """A local path as an absolute one: tables remember where their files are, from anywhere.

    Raises BadInput for a path that means another place where it is taken for a URL.
    """
    if "://" in place:
        return place
    path = str(Path(place).absolute())
    if "%" in path or "?" in path:
        raise BadInput(f"{path}: choose a directory without '%' and '?': tables name it in URLs")
    return path


def load_config(path: Path) -> TierConfig:
    """Read a TOML file; every fault is a BadInput that names file, line and key."""
    try:
        text = path.read_text()
        raw = tomllib.loads(text)
    except OSError as error:
        raise BadInput(f"{path}: can't be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not TOML: {error}") from error
    try:
        return build(TierConfig, _completed(raw))
    except BadSetting as error:
        line = line_of(text, error.path)
        raise BadInput(f"{path}{f':{line}' if line else ''}: {error}") from error
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error


def _completed(raw: dict[str, Any]) -> dict[str, Any]:
    """What the file means: places from the root on, and each topic with the defaults' settings."""
    for key in ("store", "warehouse"):
        if isinstance(raw.get(key), str) and raw[key]:
            raw[key] = _absolute(raw[key])
    if isinstance(raw.get("store"), str):
        raw.setdefault("warehouse", warehouse_of(raw["store"]))
    topics, defaults = raw.get("topics"), raw.get("defaults", {})
    if isinstance(topics, dict) and isinstance(defaults, dict):
        raw["topics"] = {
            topic: {**defaults, **own} if isinstance(own, dict) else own
            for topic, own in topics.items()
        }
    return raw
