"""The tier's configuration: read once at the edge, checked at once, handed on as values."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from urllib.parse import parse_qsl, urlsplit

from tiering.errors import BadInput
from tiering.redaction import redact
from tiering.segments import check_topic_name

__all__ = [
    "EngineConfig",
    "ServiceConfig",
    "TierConfig",
    "TopicConfig",
    "default_config",
    "load_config",
    "retention_ms",
]

_CATALOG_URIS: Final = ("sqlite:", "http://", "https://")
_DURATION: Final = re.compile(r"(?P<count>[1-9]\d{0,5})(?P<unit>[smhd])")
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NAMESPACE: Final = re.compile(r"[a-z_][a-z0-9_]{0,127}")
MIB: Final = 1024 * 1024
_C = TypeVar("_C")


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
            raise BadInput(f"service.port: {self.port} is not a port (0 to 65535)")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise BadInput("service.tls_cert and service.tls_key: give both or neither")


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
                raise BadInput(f"engine.{name}: {getattr(self, name)} is below {low}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What is set for one topic, or for all that have nothing of their own.

    Attributes:
        retention: which rows leave the table. `kafka`: those that the broker deletes; `forever`:
            none; a duration (`12h`, `90d`): those that the broker has deleted and whose
            timestamps are older than that.
    """

    retention: str = "kafka"

    def __post_init__(self) -> None:
        retention_ms(self.retention)


def retention_ms(retention: str) -> int | None:
    """A retention as milliseconds that rows outlive the broker's delete; None: forever.

    `kafka` is 0. Raises BadInput for what is none of the three forms.
    """
    if retention in ("kafka", "forever"):
        return 0 if retention == "kafka" else None
    match = _DURATION.fullmatch(retention)
    if match is None:
        raise BadInput(
            f"retention: {retention!r} is neither kafka nor forever nor a duration such as 12h, 90d"
        )
    return int(match["count"]) * _UNIT_MS[match["unit"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TierConfig:
    """Everything that `onecopy serve` needs.

    Attributes:
        store: URL of the object store: a directory, file:///..., or s3://bucket/prefix?endpoint=...
        warehouse: location below which tables are created; `<store>/warehouse` by default.
        catalog_name: the catalog's name; engines that share an SQLite catalog must use the same.
        catalog: PyIceberg catalog properties (uri, type, ...).
        namespace: the Iceberg namespace of all topic tables.
        defaults: settings of topics that have none of their own.
        topics: settings by topic name.
    """

    store: str
    warehouse: str
    catalog_name: str = "onecopy"
    catalog: Mapping[str, str]
    namespace: str = "kafka"
    service: ServiceConfig = field(default_factory=ServiceConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    defaults: TopicConfig = field(default_factory=TopicConfig)
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)

    def topic(self, name: str) -> TopicConfig:
        """The settings of a topic."""
        return self.topics.get(name, self.defaults)

    def __post_init__(self) -> None:
        if not self.store:
            raise BadInput("store: missing; give a directory or an s3:// URL")
        if not _NAMESPACE.fullmatch(self.namespace):
            raise BadInput(
                f"namespace: {self.namespace!r} must be lower-case letters, digits and '_', "
                "not starting with a digit"
            )
        for topic in self.topics:
            check_topic_name(topic)
        if "uri" not in self.catalog:
            raise BadInput("catalog.uri: missing; give sqlite:///FILE or a REST catalog's URL")
        if "type" not in self.catalog and not self.catalog["uri"].startswith(_CATALOG_URIS):
            uri = redact(self.catalog["uri"], self.catalog)
            raise BadInput(
                f"catalog.uri: {uri}: give sqlite:///FILE or a REST catalog's URL; another kind "
                "needs catalog.type"
            )

    def to_json(self) -> str:
        """Encode for a child process; inverse: `from_json`."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Inverse of `to_json`."""
        return _build(cls, json.loads(text), "")

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
    """Read a TOML file; every fault is a BadInput that names file and key."""
    try:
        raw = tomllib.loads(path.read_text())
    except OSError as error:
        raise BadInput(f"{path}: can't be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not TOML: {error}") from error
    for key in ("store", "warehouse"):
        if isinstance(raw.get(key), str) and raw[key]:
            raw[key] = _absolute(raw[key])
    if isinstance(raw.get("store"), str):
        raw.setdefault("warehouse", warehouse_of(raw["store"]))
    try:
        return _build(TierConfig, raw, "")
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error


def _build(kind: type[_C], raw: object, where: str) -> _C:
    """Make a config dataclass from plain values; unknown and missing keys are errors."""
    if not isinstance(raw, Mapping):
        raise BadInput(f"{where.rstrip('.')}: must be a table of keys")
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    for key in raw:
        if key not in known:
            raise BadInput(f"{where}{key}: unknown key; known are {', '.join(known)}")
    nested = {"service": ServiceConfig, "engine": EngineConfig, "defaults": TopicConfig}
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if key in nested:
            values[key] = _build(nested[key], value, f"{where}{key}.")
        elif key == "topics":
            values[key] = _topics(value, f"{where}{key}.")
        else:
            values[key] = _checked(value, str(known[key].type), where + key)
    try:
        return kind(**values)
    except TypeError as error:
        raise BadInput(f"{where or 'config: '}{error}") from error


def _topics(raw: object, where: str) -> dict[str, TopicConfig]:
    if not isinstance(raw, Mapping):
        raise BadInput(f"{where.rstrip('.')}: must be a table of topics")
    return {str(name): _build(TopicConfig, own, f"{where}{name}.") for name, own in raw.items()}


def _checked(value: object, annotation: str, where: str) -> object:
    if annotation.startswith("Mapping"):
        if not isinstance(value, Mapping) or not all(isinstance(v, str) for v in value.values()):
            raise BadInput(f"{where}: must be a table of strings")
        return dict(value)
    expected = {"str": str, "int": int, "bool": bool}[annotation]
    if type(value) is not expected:
        raise BadInput(f"{where}: must be {annotation}, not {value!r}")
    return value
