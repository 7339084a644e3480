"""The live view: a page whose blocks come from a process that follows the run's files. For this machine's user only.

It is bound to 127.0.0.1 and answers only requests for that address, so that no web page can read it by DNS rebinding.
"""

import gzip
import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol
from urllib.parse import unquote, urlsplit

from verl_ext.core.errors import SignalError
from verl_ext.report.page import PLOTLY, Page, plotly_block, render

HOST = "127.0.0.1"


class Source(Protocol):
    """Source of a live page."""

    def refresh(self) -> int:
        """Read new data; the number changes exactly if the page does."""
        ...

    def page(self) -> Page:
        """The page as of the last `refresh`."""
        ...


def make_server(source: Source, port: int = 0) -> ThreadingHTTPServer:
    """A server ready for `serve_forever`; port 0 picks a free one (`server_address[1]`)."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            own = {f"{HOST}:{self.server.server_port}", f"localhost:{self.server.server_port}"}  # pyright: ignore[reportAttributeAccessIssue]
            if self.headers.get("Host") not in own:
                self._answer(HTTPStatus.FORBIDDEN, "text/plain", "wrong host")
                return
            path = unquote(urlsplit(self.path).path)
            with lock:
                try:
                    self._answer(*_find(source, path))
                except SignalError as error:
                    self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", str(error))

        def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
            body = text.encode("utf-8")
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            if kind == "text/html" and "gzip" in self.headers.get("Accept-Encoding", ""):
                body = gzip.compress(body)
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Silent, because a page polls every two seconds."""

    return ThreadingHTTPServer((HOST, port), Handler)


def _find(source: Source, path: str) -> tuple[HTTPStatus, str, str]:
    """Status, content type and text for an address."""
    if path == "/":
        version = source.refresh()
        return HTTPStatus.OK, "text/html", render(source.page(), live_version=version)
    if path == "/version":
        return HTTPStatus.OK, "application/json", json.dumps(source.refresh())
    name = path.removeprefix("/block/")
    if name == PLOTLY:
        return HTTPStatus.OK, "text/plain", plotly_block()
    if name in source.page().blocks:
        return HTTPStatus.OK, "text/plain", source.page().blocks[name]
    return HTTPStatus.NOT_FOUND, "text/plain", f"there is no {path} here"


def serve(source: Source, port: int = 0) -> None:
    """Serve until Ctrl+C."""
    with make_server(source, port) as server:
        print(f"live view: http://{HOST}:{server.server_address[1]}/  (Ctrl+C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
