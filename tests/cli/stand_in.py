"""A stand-in for a paid chat API: a real HTTP server that speaks enough of OpenAI's protocol."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

MODEL = "openai:stand-in"


class StandIn(ThreadingHTTPServer):
    """Answers every request in the same way, and keeps what it was asked."""

    daemon_threads = True

    def __init__(self, status: int, says: str, wait: threading.Event | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.says = says
        self.wait = wait
        self.asked: list[dict[str, Any]] = []


class _Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.asked.append(json.loads(self.rfile.read(length)))
        if self.server.wait is not None:
            self.server.wait.wait(60)
        self._answer(json.dumps(self._body()).encode())

    def _body(self) -> dict[str, Any]:
        if self.server.status != 200:
            return {"error": {"message": self.server.says, "type": "stand_in"}}
        message = {"role": "assistant", "content": self.server.says}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": "stand-in",
            "choices": [choice],
        }

    def _answer(self, body: bytes) -> None:
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the tests' output is not its place."""


@contextmanager
def stand_in(
    monkeypatch: pytest.MonkeyPatch,
    says: str,
    status: int = 200,
    wait: threading.Event | None = None,
) -> Iterator[StandIn]:
    """The server, with the environment that makes `MODEL` go to it."""
    server = StandIn(status, says, wait)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
