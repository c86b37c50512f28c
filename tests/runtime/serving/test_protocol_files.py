"""PROTOCOL.md, schema and vectors are made from the table of messages, are current, and agree with each other."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import golden_messages as golden
import msgpack
from jsonschema import Draft202012Validator

from animegamer_rt.serving import wire

CLIENT = golden.ROOT / "client"
PROTOCOL = (CLIENT / "PROTOCOL.md").read_text(encoding="utf-8")
SCHEMA = json.loads((CLIENT / "schema" / "messages.json").read_text(encoding="utf-8"))


def test_made_files_are_current() -> None:
    command = [sys.executable, str(CLIENT / "vectors" / "make.py"), "--check"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert found.returncode == 0, found.stderr


def test_golden_headers_satisfy_the_schema() -> None:
    for vector in golden.MESSAGES:
        kind = f"{vector['sender']}.{vector['header']['type']}"
        errors = list(Draft202012Validator(SCHEMA["$defs"][kind]).iter_errors(vector["header"]))
        assert not errors, (vector["name"], errors[0].message)


def test_schema_refuses_what_the_table_refuses() -> None:
    """Bytes, buffers and NaN are beyond a JSON Schema; everything else in the fields is not."""
    checked = 0
    for vector in golden.REFUSED:
        frames = golden.frames(vector)
        if vector["layer"] != "fields" or vector["code"] == "unknown_type" or "deadline that" in vector["name"]:
            continue
        header = msgpack.unpackb(frames[1])
        kind = f"{vector['sender']}.{header['type']}"
        if "frame" in kind and vector["code"] == "bad_field":
            continue
        assert list(Draft202012Validator(SCHEMA["$defs"][kind]).iter_errors(header)), vector["name"]
        checked += 1
    assert checked >= 10


def test_protocol_describes_every_message_field_and_code() -> None:
    for sender, kinds in wire.MESSAGES.items():
        part = PROTOCOL.split(f"## Messages from the {sender}")[1]
        for kind in kinds.values():
            section = part.split(f"\n### {kind.type}\n")[1].split("\n### ")[0]
            assert all(f"| `{field.name}` |" in section for field in kind.fields), kind.type
            assert f"since {kind.since}" in section
    assert all(f"| `{code}` |" in PROTOCOL for code in wire.CODES)


def test_bytes_shown_in_the_protocol_are_a_message() -> None:
    rows = re.search(r"```\nframe 0, 5 bytes\n(.*?)```", PROTOCOL, re.DOTALL)
    assert rows is not None
    frames: list[bytes] = [b""]
    for line in rows[1].splitlines():
        if line.startswith("frame"):
            frames.append(b"")
        else:
            frames[-1] += bytes.fromhex(line[8:55])
    assert wire.decode(frames).type == "turn"
