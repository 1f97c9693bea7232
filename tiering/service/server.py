"""Runs the tier service under uvicorn: listening, TLS, the ready file."""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import socket
import ssl
from pathlib import Path

import uvicorn

from segment_reader import whole_batches
from tiering.errors import BadInput, TransientError
from tiering.service.app import build_app
from tiering.service.limits import DEFAULT_SERVICE_LIMITS, ServiceLimits
from tiering.service.table_views import LoadTable
from tiering.store.conditional import check_conditional_writes
from tiering.store.objects import ObjectStore

__all__ = ["ServiceServer", "read_token", "run"]

_TOKEN_BYTES_MAX = 4096
_BACKLOG = 1024
_log = logging.getLogger("onecopy.service")


class ServiceServer(uvicorn.Server):
    """A server on a socket bound at once; writes the ready file when it takes requests.

    From another thread: `serve_until_stopped` there, `stop()` here.
    """

    def __init__(
        self,
        store: ObjectStore,
        token: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        ready_file: Path | None = None,
        tls_cert: Path | None = None,
        tls_key: Path | None = None,
        allow_plain: bool = False,
        limits: ServiceLimits = DEFAULT_SERVICE_LIMITS,
        load_table: LoadTable | None = None,
    ) -> None:
        if (tls_cert is None) != (tls_key is None):
            raise BadInput("TLS needs both a certificate and its key")
        if tls_cert is None and not allow_plain and not _is_loopback(host):
            raise BadInput(
                f"{host} is not a loopback address: give a TLS certificate and key, or say that "
                "the network between the brokers and this service is trusted"
            )
        if tls_cert is not None and tls_key is not None:
            _check_tls(tls_cert, tls_key)
        super().__init__(
            uvicorn.Config(
                build_app(store, token, limits, load_table=load_table),
                http="httptools",
                log_config=None,
                log_level="warning",  # what the server itself says at each start is noise here
                access_log=False,
                server_header=False,
                ws="none",
                lifespan="on",
                timeout_keep_alive=limits.keep_alive_s,
                timeout_graceful_shutdown=5,
                ssl_certfile=tls_cert,
                ssl_keyfile=tls_key,
            )
        )
        self._ready_file = ready_file
        self._socket = _listen(host, port)
        bound_host, bound_port = self._socket.getsockname()[:2]
        shown = f"[{bound_host}]" if ":" in bound_host else bound_host
        self.url = f"{'https' if tls_cert else 'http'}://{shown}:{bound_port}"

    def serve_until_stopped(self) -> None:
        """Serve in this thread until `stop`, SIGTERM or SIGINT."""
        try:
            super().run(sockets=[self._socket])
        finally:
            self._socket.close()

    def close(self) -> None:
        """Give back the port of a server that was never started."""
        self._socket.close()

    def stop(self) -> None:
        """Ask the server to end; requests under way have a few seconds."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to take requests, then tell who waits for it."""
        # Loads the compiled scan now: a broker gives up on a read after half a second.
        whole_batches(b"", 0, name="warm-up")
        await super().startup(sockets)
        if self.started and not self.should_exit:
            _log.info("serving at %s", self.url)
            if self._ready_file is not None:
                write_ready_file(self._ready_file, self.url)


def run(
    store: ObjectStore,
    token: str,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    ready_file: Path | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    allow_plain: bool = False,
    limits: ServiceLimits = DEFAULT_SERVICE_LIMITS,
    load_table: LoadTable | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; port 0 takes a free one, which the ready file tells.

    Raises BadInput for a setup that can't or shouldn't be served, FatalError for a store that
    ignores conditions. A store that doesn't answer yet is waited for while serving.
    """
    try:
        check_conditional_writes(store.put_if, store.url)
    except TransientError as error:
        _log.warning("the store doesn't answer yet: %s", error)
    ServiceServer(
        store,
        token,
        host=host,
        port=port,
        ready_file=ready_file,
        tls_cert=tls_cert,
        tls_key=tls_key,
        allow_plain=allow_plain,
        limits=limits,
        load_table=load_table,
    ).serve_until_stopped()


def read_token(path: Path) -> str:
    """The token in a file, without the white space around it; raises BadInput."""
    try:
        data = path.read_bytes()[:_TOKEN_BYTES_MAX]
    except OSError as error:
        raise BadInput(f"token file {path}: {error.strerror}") from error
    return data.decode("ascii", errors="replace").strip()


def write_ready_file(path: Path, url: str) -> None:
    """Write {url, pid} so that it is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps({"url": url, "pid": os.getpid()}), encoding="utf-8")
    temporary.replace(path)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_tls(cert: Path, key: Path) -> None:
    """Raises BadInput for files that can't be served with."""
    for path in (cert, key):
        if not os.access(path, os.R_OK):
            raise BadInput(f"TLS: {path}: no such file, or it can't be read")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
    except (OSError, ValueError) as error:
        raise BadInput(f"TLS: {cert} and {key}: not a certificate and its key: {error}") from error


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise BadInput(f"can't listen on {host}:{port}: {error.strerror}") from error
    return listener
