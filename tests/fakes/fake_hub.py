"""A small hub on loopback that can fail in several ways, and huggingface_hub in this process as its client."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import huggingface_hub.file_download
import pytest

PAGE = b"<!DOCTYPE html><html><body>Please log in to this network.</body></html>"
COMMIT = "5" * 40
SMALL = 4096
"""Bytes up to which a file has git's checksum alone, and is sent by the hub itself."""


@dataclass
class FakeHub:
    """What is published, what is wrong with it, and what was asked.

    repositories: name -> path -> content. cut: path -> bytes after which each connection ends. changed: path -> what is
    sent in place of the content. refuse: path -> the status that is sent. pages: every answer is a proxy's page. gated:
    the repositories that need a token. tokens: host and token of each request that had one.
    """

    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    commits: dict[str, str] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)
    changed: dict[str, bytes] = field(default_factory=dict)
    pages: bool = False
    refuse: dict[str, int] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    tokens: set[tuple[str, str]] = field(default_factory=set)
    address: str = ""

    def publish(self, name: str, folder: Path) -> None:
        """A repository with the files of a folder."""
        files = (path for path in sorted(folder.rglob("*")) if path.is_file())
        self.repositories[name] = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}

    def commit(self, name: str) -> str:
        return self.commits.get(name, COMMIT)

    def downloads(self) -> list[tuple[str, str | None]]:
        """Path and range of each request for a file's content; one that was sent to another host counts once."""
        return list(dict.fromkeys(one for one in self.asked if "/resolve/" in one[0]))


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """The hub at `hub.address` until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            hub.asked.append((path, self.headers["Range"]))
            host = self.headers["Host"].partition(":")[0]
            if self.headers["Authorization"]:
                hub.tokens.add((host, self.headers["Authorization"]))
            name = "/".join(path.removeprefix("/api/models").split("/")[1:3])
            if hub.pages:
                self._send(200, PAGE, "text/html")
            elif name in hub.gated and not self.headers["Authorization"]:
                self._send(401, b"{}", "application/json", {"X-Error-Code": "GatedRepo"})
            elif name not in hub.repositories:
                self._send(404, b"{}", "application/json", {"X-Error-Code": "RepoNotFound"})
            elif path.startswith("/api/models/"):
                self._list(name)
            elif host == "127.0.0.1" and len(hub.repositories[name][path.split("/", 5)[5]]) > SMALL:
                # Large files lie on another host, as the hub's do.
                elsewhere = hub.address.replace("127.0.0.1", "localhost") + path
                self._send(302, b"", "text/plain", {"Location": elsewhere})
            else:
                self._content(name, path.split("/", 5)[5])

        def _list(self, name: str) -> None:
            files = [
                {
                    "rfilename": path,
                    "size": len(content),
                    "blobId": hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest(),
                    **({"lfs": _lfs(content)} if len(content) > SMALL else {}),
                }
                for path, content in hub.repositories[name].items()
            ]
            answer = {"id": name, "sha": hub.commit(name), "siblings": files}
            self._send(200, json.dumps(answer).encode(), "application/json")

        def _content(self, name: str, path: str) -> None:
            if path in hub.refuse:
                return self._send(hub.refuse[path], b"", "text/plain")
            content = hub.changed.get(path, hub.repositories[name][path])
            start = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").partition("-")[0])
            headers = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
            end = start + hub.cut.get(path, len(content))
            self._send(206 if start else 200, content[start:], "application/octet-stream", headers, content[start:end])

        def _send(
            self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None, sent: bytes | None = None
        ) -> None:
            self.send_response(status)
            for key, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body if sent is None else sent)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _lfs(content: bytes) -> dict[str, object]:
    return {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}


@contextmanager
def hub_of(hub: FakeHub, home: Path) -> Iterator[FakeHub]:
    """Serves the hub and makes it the hub; no token of the user's is read."""
    with serving(hub), pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface_hub.constants, "ENDPOINT", hub.address)
        form = "/{repo_id}/resolve/{revision}/{filename}"
        patch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.address + form)
        patch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(home / "token"))
        patch.setattr(huggingface_hub.file_download, "time", SimpleNamespace(sleep=lambda _: None))
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            patch.delenv(name, raising=False)
        patch.setenv("NO_PROXY", "127.0.0.1,localhost")
        patch.setenv("XDG_DATA_HOME", str(home / "data"))
        huggingface_hub.close_session()
        try:
            yield hub
        finally:
            huggingface_hub.close_session()
