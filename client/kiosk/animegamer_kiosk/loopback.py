"""HTTP to programs on this machine. Proxies of the environment are for other machines."""

from __future__ import annotations

from http.client import HTTPResponse
from typing import cast
from urllib.request import ProxyHandler, build_opener

_opener = build_opener(ProxyHandler({}))


def open_local(port: int, path: str, timeout_s: float) -> HTTPResponse:
    """GET from a port of 127.0.0.1. Raises OSError; HTTPError for a status that is not of success."""
    return cast(HTTPResponse, _opener.open(f"http://127.0.0.1:{port}{path}", timeout=timeout_s))
