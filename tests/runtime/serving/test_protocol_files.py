"""PROTOCOL.md is made from the table of messages, is current, and describes all of it."""

from __future__ import annotations

import re
import subprocess
import sys

import golden_messages as golden

from animegamer_rt.serving.wire.codec import decode
from animegamer_rt.serving.wire.schema import CODES, MESSAGES

CLIENT = golden.ROOT / "client"
PROTOCOL = (CLIENT / "PROTOCOL.md").read_text(encoding="utf-8")


def test_the_made_parts_are_current() -> None:
    command = [sys.executable, str(CLIENT / "vectors" / "make.py"), "--check"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert found.returncode == 0, found.stderr


def test_protocol_describes_every_message_field_and_code() -> None:
    for sender, kinds in MESSAGES.items():
        part = PROTOCOL.split(f"## Messages from the {sender}")[1]
        for kind in kinds.values():
            section = part.split(f"\n### {kind.type}\n")[1].split("\n### ")[0]
            assert all(f"| `{field.name}` |" in section for field in kind.fields), kind.type
            assert f"since {kind.since}" in section
    assert all(f"| `{code}` |" in PROTOCOL for code in CODES)


def test_bytes_shown_in_the_protocol_are_a_message() -> None:
    rows = re.search(r"```\nframe 0, 5 bytes\n(.*?)```", PROTOCOL, re.DOTALL)
    assert rows is not None
    frames: list[bytes] = [b""]
    for line in rows[1].splitlines():
        if line.startswith("frame"):
            frames.append(b"")
        else:
            frames[-1] += bytes.fromhex(line[8:55])
    assert decode(frames).type == "turn"
