"""An HTTP server that answers as registries do on bad days, and keeps what it was asked."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[[BaseHTTPRequestHandler], None]


def saying(status: int, body: str = "", **headers: str) -> Answer:
    """Answer with this."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        data = body.encode()
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    return answer


def breaking_off(request: BaseHTTPRequestHandler) -> None:
    """Promise more than comes."""
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    request.wfile.write(b'{"schema":')


@dataclass
class OddRegistry:
    """What it does next: the first answer is given once, the last one for ever."""

    url: str
    answers: list[Answer] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)  # path, Authorization
    closing: threading.Event = field(default_factory=threading.Event)

    def silent(self, request: BaseHTTPRequestHandler) -> None:
        """Say nothing until the end."""
        self.closing.wait(60)

    def trickling(self, request: BaseHTTPRequestHandler) -> None:
        """A byte now and then: each wait is short, all of them are long."""
        request.send_response(200)
        request.send_header("Content-Length", "100000")
        request.end_headers()
        while not self.closing.wait(0.05):
            try:
                request.wfile.write(b" ")
            except OSError:
                return


@contextmanager
def run_odd_registry(*answers: Answer, tls: ssl.SSLContext | None = None) -> Iterator[OddRegistry]:
    """On loopback; gone afterwards."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            odd.asked.append((self.path, self.headers.get("Authorization", "")))
            answer = odd.answers.pop(0) if len(odd.answers) > 1 else odd.answers[0]
            answer(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            pass  # clients that go away are what this is for

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    scheme = "https" if tls else "http"
    odd = OddRegistry(url=f"{scheme}://127.0.0.1:{server.server_address[1]}/api")
    odd.answers.extend(answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield odd
    finally:
        odd.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()
