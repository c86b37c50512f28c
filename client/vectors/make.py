"""Write the test files for clients in any language: `python client/vectors/make.py`.

Writes client/vectors/vectors.json, client/schema/messages.json and the generated parts of client/PROTOCOL.md, all from
animegamer_rt.serving.wire.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from animegamer_rt.serving.wire import FIRST_FRAME, VERSION, Message, encode
from broken import BROKEN
from samples import SAMPLES
from schema import schema
from tables import parts

CLIENT = Path(__file__).resolve().parent.parent
COMMAND = "python client/vectors/make.py"


def header_of(message: Message) -> dict[str, Any]:
    """Frame 1 as JSON."""
    keys = ("type", "id", "parent", "session", "turn", "seq")
    header = {key: getattr(message, key) for key in keys if getattr(message, key) is not None}
    return {**header, "fields": dict(message.fields)}


def vectors() -> dict[str, Any]:
    """Golden messages, and broken ones with their error codes; PROTOCOL.md describes the file."""
    messages = []
    for sample in SAMPLES:
        frames = encode(sample.message)
        if sample.frame_1 is not None:
            frames = [FIRST_FRAME, sample.frame_1, *frames[2:]]
        messages.append(
            {
                "name": sample.name,
                "sender": sample.sender,
                "canonical": sample.frame_1 is None,
                "header": header_of(sample.message),
                "frames": [bytes(frame).hex() for frame in frames],
            }
        )
    refused = [
        {
            "name": broken.name,
            "sender": broken.sender,
            "code": broken.code,
            "layer": broken.layer,
            "frames": [
                frame.hex() if isinstance(frame, bytes) else {"hex": frame[0].hex(), "times": frame[1]}
                for frame in broken.frames
            ],
        }
        for broken in BROKEN
    ]
    return {"made_by": COMMAND, "protocol": VERSION, "messages": messages, "refused": refused}


def protocol(text: str) -> str:
    """PROTOCOL.md with its generated parts updated. Raises SystemExit if a part has no place in it."""
    for name, part in parts().items():
        start, end = f"<!-- made: {name} -->\n", "<!-- end -->"
        if text.count(start) != 1:
            raise SystemExit(f"PROTOCOL.md has {text.count(start)} places for '{name}'; expected one")
        before, _, rest = text.partition(start)
        text = f"{before}{start}\n{part}\n\n{end}{rest.partition(end)[2]}"
    return text


def main() -> int:
    """Write the files, or with --check print the outdated ones and return 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is outdated")
    check = parser.parse_args().check
    document = CLIENT / "PROTOCOL.md"
    files = {
        CLIENT / "vectors" / "vectors.json": json.dumps(vectors(), indent=1, ensure_ascii=True) + "\n",
        CLIENT / "schema" / "messages.json": json.dumps(schema(), indent=1, ensure_ascii=True) + "\n",
        document: protocol(document.read_text(encoding="utf-8")),
    }
    old = [path for path, text in files.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in old:
        if check:
            print(f"{path.relative_to(CLIENT.parent)} is outdated; run: {COMMAND}", file=sys.stderr)
        else:
            path.write_text(files[path], encoding="utf-8", newline="\n")
            print(f"wrote {path.relative_to(CLIENT.parent)}")
    return 1 if check and old else 0


if __name__ == "__main__":
    sys.exit(main())
