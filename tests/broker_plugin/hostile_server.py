"""A TCP server whose every connection does what the test says: the service at its worst."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

__all__ = ["Connection", "HostileServer", "Request", "Upload", "parse_upload"]

RECEIVE_BYTES = 65536
CONNECTION_SECONDS_MAX = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The head of one HTTP request; header names in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]

    @property
    def content_length(self) -> int:
        """Bytes that the body has."""
        return int(self.headers.get("content-length", "0"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A PUT's body taken apart: manifest, parts by name, and the digest of what came before it."""

    manifest: dict[str, object]
    parts: dict[str, bytes]
    trailer: bytes
    sha256: str


def parse_upload(body: bytes) -> Upload:
    """Take a whole body apart, trusting it."""
    (length,) = struct.unpack_from(">I", body)
    manifest = json.loads(body[4 : 4 + length])
    at = 4 + length
    parts = {}
    for part in manifest["parts"]:
        parts[part["name"]] = body[at : at + part["size"]]
        at += part["size"]
    digest = hashlib.sha256(body[:at])
    assert body[at:] == digest.digest()
    return Upload(manifest=manifest, parts=parts, trailer=body[at:], sha256=digest.hexdigest())


class Connection:
    """One accepted connection: read requests, write anything."""

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.sock = sock
        self.number = number
        self._buffer = b""

    def read_request(self) -> Request | None:
        """The next request's head, or None at the end of the connection."""
        while b"\r\n\r\n" not in self._buffer:
            chunk = self.sock.recv(RECEIVE_BYTES)
            if not chunk:
                return None
            self._buffer += chunk
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        line, *rest = head.decode().split("\r\n")
        method, target, _ = line.split(" ")
        pairs = (header.split(":", 1) for header in rest)
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        return Request(method=method, target=target, headers=headers)

    def go_on(self) -> None:
        """Let the client send its body."""
        self.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")

    def read_body(self, size: int) -> bytes:
        """Exactly `size` bytes."""
        while len(self._buffer) < size:
            chunk = self.sock.recv(RECEIVE_BYTES)
            if not chunk:
                raise ConnectionError("the client went away")
            self._buffer += chunk
        body, self._buffer = self._buffer[:size], self._buffer[size:]
        return body

    def respond(
        self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        """A whole, well-formed answer."""
        fields = {"Content-Length": str(len(body)), **(headers or {})}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.sock.sendall(f"HTTP/1.1 {status} Because\r\n{lines}\r\n".encode() + body)

    def refuse(self, status: int, code: str) -> None:
        """An error as the service words it."""
        body = json.dumps({"error": code, "message": f"scripted {code}"}).encode()
        self.respond(status, body)

    def wait_for_end(self) -> None:
        """Until the client closes; what it still sends is thrown away."""
        while self.sock.recv(RECEIVE_BYTES):
            pass

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


class HostileServer:
    """Listens on a free loopback port and runs `script` for every connection in a thread."""

    def __init__(
        self, script: Callable[[Connection], None], tls: ssl.SSLContext | None = None
    ) -> None:
        self._script = script
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.accepted = 0
        self.failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        thread = threading.Thread(target=self._accept, daemon=True)
        thread.start()
        self._threads.append(thread)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # shutdown() wakes the thread that accepts; close() alone would not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(timeout=5)
        if kind is None and self.failures:
            raise self.failures[0]

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.settimeout(CONNECTION_SECONDS_MAX)
            self.accepted += 1
            self._sockets.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock, self.accepted), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket, number: int) -> None:
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)  # takes the old one over
                self._sockets.append(sock)
            self._script(Connection(sock, number))
        except OSError:
            pass  # the client, or the test's end, closed it: part of most scripts
        except BaseException as error:  # noqa: BLE001 - raised again in the test's thread
            self.failures.append(error)
        finally:
            sock.close()
