"""The tier service: durable uploads, bounded reads and deletes of segments over HTTP."""

from tiering.service.app import build_app
from tiering.service.limits import DEFAULT_SERVICE_LIMITS, ServiceLimits
from tiering.service.server import ServiceServer, read_token, run

__all__ = [
    "DEFAULT_SERVICE_LIMITS",
    "ServiceLimits",
    "ServiceServer",
    "build_app",
    "read_token",
    "run",
]
