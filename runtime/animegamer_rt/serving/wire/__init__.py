"""The wire: messages <-> bytes, version 1 of the protocol that client/PROTOCOL.md describes.

Knows no socket. `MESSAGES` is the one table of every message; PROTOCOL.md, schema and vectors are made from it.
"""

from __future__ import annotations

from .codec import (
    FIRST_FRAME,
    FROM_CLIENT,
    FROM_SERVER,
    INSIDE,
    MAGIC,
    MAJOR,
    MESSAGES,
    VERSION,
    WORKER_SECRET,
    Buffer,
    Limits,
    Message,
    decode,
    encode,
)
from .error_codes import CODES
from .fields import CODECS, HEADER, MOST_FILES, MOST_LISTED, STAGES
from .schema import Field, MessageKind, Sender, allowed

__all__ = [
    "CODECS",
    "CODES",
    "FIRST_FRAME",
    "FROM_CLIENT",
    "FROM_SERVER",
    "HEADER",
    "INSIDE",
    "MAGIC",
    "MAJOR",
    "MESSAGES",
    "MOST_FILES",
    "MOST_LISTED",
    "STAGES",
    "VERSION",
    "WORKER_SECRET",
    "Buffer",
    "Field",
    "Limits",
    "Message",
    "MessageKind",
    "Sender",
    "allowed",
    "decode",
    "encode",
]
