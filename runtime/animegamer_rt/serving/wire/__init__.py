"""Messages and their bytes: version 1 of the protocol in client/PROTOCOL.md.

protocol.json is the table of all messages; PROTOCOL.md, the schema and the vectors are generated from it.
`worker_messages`, between the server and its own workers, are not part of the protocol.
"""

from __future__ import annotations

from .codec import (
    CLIENT_LIMITS,
    FIRST_FRAME,
    MAGIC,
    MAJOR,
    SERVER_LIMITS,
    WORKER_LIMITS,
    WORKER_SECRET,
    WORKER_SERVER_KEY,
    Buffer,
    Limits,
    Message,
    decode,
    encode,
    minor_version,
)
from .schema import (
    CODECS,
    CODES,
    HEADER,
    MAX_FILES,
    MAX_LISTED,
    MAX_OFFERED,
    MESSAGES,
    STAGES,
    VERSION,
    Field,
    MessageType,
    Sender,
    allowed,
)

__all__ = [
    "CODECS",
    "CODES",
    "FIRST_FRAME",
    "CLIENT_LIMITS",
    "SERVER_LIMITS",
    "HEADER",
    "WORKER_LIMITS",
    "MAGIC",
    "MAJOR",
    "MESSAGES",
    "MAX_FILES",
    "MAX_LISTED",
    "MAX_OFFERED",
    "STAGES",
    "VERSION",
    "WORKER_SECRET",
    "WORKER_SERVER_KEY",
    "Buffer",
    "Field",
    "Limits",
    "Message",
    "MessageType",
    "Sender",
    "allowed",
    "decode",
    "encode",
    "minor_version",
]
