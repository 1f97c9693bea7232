"""The tier's catalog as Spark settings."""

from __future__ import annotations

from typing import Final

from tiering.config import TierConfig
from tiering.errors import BadInput

__all__ = ["catalog_settings"]

_SQLITE: Final = "sqlite:///"


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
