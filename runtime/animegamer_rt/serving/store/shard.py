"""Which of n servers a new session belongs to, so that a router finds it by its token alone.

Knows tokens; nothing of servers. A session that was opened without a shard, or has moved, is found by asking them all.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from animegamer_rt.errors import ConfigError

MAX_SHARDS = 256


@dataclass(frozen=True, slots=True)
class Shard:
    """The server `number` of `count`, from 1."""

    number: int = 1
    count: int = 1

    def new_token(self) -> str:
        """A session's secret, drawn until it is one of this shard's."""
        while True:
            token = secrets.token_urlsafe(24)
            if shard_of(token, self.count) == self.number:
                return token


ONLY_SHARD = Shard()


def shard_of(token: str, count: int) -> int:
    """The number, from 1 to `count`, of the server whose token this is."""
    return int.from_bytes(hashlib.sha256(token.encode()).digest()[:8], "big") % count + 1


def read_shard(text: str) -> Shard:
    """`k/n`. Raises ConfigError."""
    number, _, count = text.partition("/")
    whole = all(part.isascii() and part.isdigit() and len(part) < 4 for part in (number, count))
    if not whole or not 1 <= int(number) <= int(count) <= MAX_SHARDS:
        expected, do = f"k/n with k from 1 to n, and n at most {MAX_SHARDS}", "the first of two servers is 1/2"
        raise ConfigError("no such shard", where="--shard", found=text, expected=expected, do=do)
    return Shard(int(number), int(count))
