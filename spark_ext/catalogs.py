"""The tier's catalog in Spark: its settings, and sessions that know it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from spark_ext.session import SessionOptions, open_session
from tiering.config import TierConfig
from tiering.errors import BadInput
from tiering.jars import fetch
from tiering.redaction import is_secret

__all__ = ["catalog_settings", "open_sql_session"]

_SQLITE: Final = "sqlite:///"
_BUSY_MS: Final = 30_000
_REDACTED: Final = r"(?i)secret|passw|token|access.?key|credential|auth|header\."


def open_sql_session(
    config: TierConfig, *, app_name: str, master: str = "local[*]", conf: Mapping[str, str]
) -> SparkSession:
    """A session with SQL on the tier's tables; close it with `stop_spark`.

    What the catalog's configuration holds of secrets (a REST catalog's token) is set on the
    session once it runs: so it is in no command line, and Spark's event log redacts it.
    Raises BadInput for a catalog that Spark can't open, TransientError when Spark doesn't start.
    """
    with_aws = config.warehouse.startswith("s3://")
    options = SessionOptions(
        master=master,
        app_name=app_name,
        conf={"spark.redaction.regex": _REDACTED, **catalog_settings(config), **conf},
        with_iceberg=True,
        jars=fetch("iceberg-aws") if with_aws else (),
    )
    session = open_session(options)
    for key, value in config.catalog.items():
        if is_secret(key):
            session.conf.set(f"spark.sql.catalog.{config.catalog_name}.{key}", value)
    return session


def catalog_settings(config: TierConfig) -> dict[str, str]:
    """Settings under which Spark knows the tier's catalog by `config.catalog_name`.

    An SQLite catalog is opened through Iceberg's JdbcCatalog on the same file, a REST catalog as
    what it is. Credentials of an S3 warehouse come from the environment. Raises BadInput for a
    catalog that Spark can't open.
    """
    prefix = f"spark.sql.catalog.{config.catalog_name}"
    uri = config.catalog["uri"]
    settings = {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.warehouse": config.warehouse,
    }
    if uri.startswith(_SQLITE):
        settings |= {
            f"{prefix}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            f"{prefix}.uri": f"jdbc:sqlite:{uri.removeprefix(_SQLITE).partition('?')[0]}",
            f"{prefix}.jdbc.schema-version": "V1",
            f"{prefix}.jdbc.busy_timeout": str(_BUSY_MS),
        }
    elif uri.startswith(("http://", "https://")):
        settings |= {f"{prefix}.type": "rest", f"{prefix}.uri": uri}
    else:
        raise BadInput(f"catalog.uri: {uri} is neither sqlite:///FILE nor an http(s) URL")
    if config.warehouse.startswith("s3://"):
        properties = config.catalog_properties()
        settings |= {
            f"{prefix}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            f"{prefix}.s3.path-style-access": "true",
            f"{prefix}.client.region": properties.get("s3.region", "us-east-1"),
        }
        if "s3.endpoint" in properties:
            settings[f"{prefix}.s3.endpoint"] = properties["s3.endpoint"]
    return settings
