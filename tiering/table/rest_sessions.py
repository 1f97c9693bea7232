"""Deadlines for PyIceberg's REST client, which has none of its own."""

from __future__ import annotations

from typing import Any, Final

from pyiceberg.catalog.rest import RestCatalog
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

__all__ = ["BoundedRestCatalog"]

_CONNECT_TIMEOUT_S: Final = 5.0
_READ_TIMEOUT_S: Final = 30.0


class BoundedRestCatalog(RestCatalog):
    """A REST catalog whose requests fail after a while instead of hanging."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        for prefix, adapter in list(session.adapters.items()):
            if type(adapter) is HTTPAdapter:  # a request signer's adapter stays
                session.mount(prefix, _DeadlineAdapter())
        return session


class _DeadlineAdapter(HTTPAdapter):
    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        if kwargs.get("timeout") is None:
            kwargs["timeout"] = (_CONNECT_TIMEOUT_S, _READ_TIMEOUT_S)
        return super().send(request, *args, **kwargs)
