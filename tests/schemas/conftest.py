"""The registry that the tests of this package share."""

from registry_server import schema_registry

__all__ = ["schema_registry"]
