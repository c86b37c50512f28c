"""The web gateway: a process that serves the page and speaks WebSocket to browsers, as a client of the server."""

from __future__ import annotations
