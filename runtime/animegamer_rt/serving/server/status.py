"""The server's state, and the fields of `welcome` and `status`."""

from __future__ import annotations

import time
from typing import Any

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import RANDOM_WEIGHTS, ReaderWords
from animegamer_rt.bundle.roles import PICTURE_ROLES
from animegamer_rt.serving.store.store import Store
from animegamer_rt.serving.wire.client_errors import without_folders
from animegamer_rt.serving.wire.codec import CLIENT_LIMITS, MAJOR
from animegamer_rt.serving.wire.schema import VERSION
from animegamer_rt.state.game import HOURS, MAX_INSTRUCTION_CHARACTERS
from animegamer_rt.version import __version__

from .core import ServerCore
from .options import ServeOptions
from .sockets import ServerSockets
from .workers import Workers

_FURTHEST = ("busy", "ready", "starting", "restarting", "failed", "stopped")
CAPABILITIES = ("export", "replay", "branch", "rewind", "clip", "jpeg", "mp4")


class ServerStatus:
    """Reads each figure on demand."""

    def __init__(
        self,
        options: ServeOptions,
        bundle: Bundle,
        sockets: ServerSockets,
        store: Store,
        workers: Workers,
        core: ServerCore,
    ) -> None:
        self._options, self._sockets, self._store = options, sockets, store
        self._workers, self._core = workers, core
        self._started = time.monotonic()
        self.bundle, self.plan = bundle, options.plan or bundle.default_plan

    @property
    def connections(self) -> int:
        """Clients connected now, including this one."""
        return self._sockets.connections

    @property
    def starts_from_pictures(self) -> bool:
        """Whether the bundle and its engines can start a game from a picture."""
        return not self._options.engines.simulated and set(PICTURE_ROLES) <= set(self.bundle.manifest.parts)

    def welcome(self, minor: int = 0) -> dict[str, Any]:
        """The fields of `welcome`, for a client of this minor version."""
        manifest, options = self.bundle.manifest, self._options
        size = manifest.geometry
        return {
            "version": MAJOR,
            "server": f"animegamer-rt {__version__}",
            "protocol": VERSION,
            "bundle": {
                "name": manifest.name,
                "fingerprint": self.bundle.fingerprint,
                "plan": self.plan,
                "height": size.height,
                "width": size.width,
                "frames": size.frames,
                "fps": float(size.fps),
                "random_weights": manifest.origin == RANDOM_WEIGHTS or options.engines.simulated,
                **_words(manifest.reader),
            },
            "capabilities": [
                *(what for what in CAPABILITIES if what != "export" or options.ray is None),
                *(["picture"] if self.starts_from_pictures and minor >= 2 else []),
            ],
            "limits": {
                "text_characters": MAX_INSTRUCTION_CHARACTERS,
                "header_bytes": CLIENT_LIMITS.header_bytes,
                "turns_a_minute": options.turns_per_minute,
                "sessions": options.sessions,
                "queue": options.queue,
            },
            "state": self._core.dispatch.state,
        }

    def status(self) -> dict[str, Any]:
        """The fields of `status`. Raises StoreError."""
        return {
            "version": __version__,
            "protocol": VERSION,
            "state": self._core.dispatch.state,
            "bundle": self.bundle.manifest.name,
            "plan": self.plan,
            "uptime_s": time.monotonic() - self._started,
            "turns_done": self._core.dispatch.times.turns_done,
            "sessions": self._store.count(),
            "connections": self.connections,
            "queue": len(self._core.queue.waiting),
            "running": len(self._core.queue.running),
            "worker": self._worker(),
            "seconds": self._core.dispatch.times.medians(),
        }

    def _worker(self) -> dict[str, Any]:
        """The field `worker`: with several, the best state, their sums, and no process id."""
        workers = self._workers.all
        memory = [worker.resident_mib for worker in workers if worker.resident_mib is not None]
        known = {
            "state": min((worker.state for worker in workers), key=_FURTHEST.index),
            "restarts": sum(worker.restarts for worker in workers),
            "pid": workers[0].pid if len(workers) == 1 else None,
            "last_error": without_folders(self._workers.last_error) or None,
            "resident_mib": sum(memory) if memory else None,
        }
        return {name: value for name, value in known.items() if value is not None}


def _words(words: ReaderWords | None) -> dict[str, list[str]]:
    """The fields of `welcome.bundle` with the words of a bundle with a reader."""
    if words is None:
        return {}
    return {
        "people": list(words.people),
        "motions": list(words.motions),
        "places": list(words.places),
        "hours": list(HOURS),
        "clothes": list(words.clothes),
        "manners": list(words.manners),
    }
