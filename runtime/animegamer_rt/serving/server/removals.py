"""Turns that were stored but never done: they are removed, at once or as soon as the disk can be written again.

Knows the store. Until a turn is removed it is hidden: its player was told that it did not count.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from animegamer_rt.errors import StoreError
from animegamer_rt.serving.store import Store, StoredSession
from animegamer_rt.state.game import CharacterState

log = logging.getLogger(__name__)


class TurnRemovals:
    """The turns that are still to be removed: for each session, the turn that it goes back to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._back_to: dict[str, int] = {}

    def remove(self, session: str, turn: int) -> None:
        """Remove a session's last turn, now or later."""
        self._back_to[session] = turn - 1
        try:
            self.finish(session)
        except StoreError as error:
            log.error("a turn that was not done could not be removed yet: %s", error)

    def finish(self, session: str) -> None:
        """Remove the session's turn if one is still to be removed. Raises StoreError if that is not possible yet."""
        if session in self._back_to:
            self._store.rewind(session, self._back_to[session])
            del self._back_to[session]

    def finish_all(self) -> None:
        """Remove what can be removed now."""
        for session in list(self._back_to):
            try:
                self.finish(session)
            except StoreError as error:
                if error.code != StoreError.code:  # the session is gone or closed
                    del self._back_to[session]

    def hide(self, session: StoredSession) -> StoredSession:
        """The session without the turn that is still to be removed."""
        turns = self._back_to.get(session.id)
        return session if turns is None else self.until(session, turns)

    def until(self, session: StoredSession, turns: int) -> StoredSession:
        """The session as it was after its first `turns` turns. Raises StoreError."""
        last = self._store.turns(session.id, turns, turns)
        return replace(session, turns=turns, character=last[0].character if last else CharacterState())
