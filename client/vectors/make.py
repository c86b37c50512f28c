"""Write what describes the protocol in any language: `python client/vectors/make.py`.

Writes the generated parts of client/PROTOCOL.md from animegamer_rt.serving.wire, and the bytes of messages that were
added to client/vectors/vectors.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from animegamer_rt.serving.wire.codec import Message, encode
from animegamer_rt.serving.wire.schema import VERSION
from tables import parts

CLIENT = Path(__file__).resolve().parent.parent
VECTORS = CLIENT / "vectors" / "vectors.json"
COMMAND = "python client/vectors/make.py"


def vectors() -> dict[str, Any]:
    """The golden messages; one that was added without its `frames` gets them, and no other changes."""
    known: dict[str, Any] = json.loads(VECTORS.read_text(encoding="utf-8"))
    for vector in known["messages"]:
        if "frames" not in vector:
            vector["frames"] = [bytes(frame).hex() for frame in encode(Message(**vector["header"]))]
    return {**known, "protocol": VERSION}


def protocol(text: str, golden: dict[str, Any]) -> str:
    """PROTOCOL.md with its generated parts updated. Raises SystemExit if a part has no place in it."""
    for name, part in parts(golden["messages"]).items():
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
    document, golden = CLIENT / "PROTOCOL.md", vectors()
    files = {
        VECTORS: json.dumps(golden, indent=1, ensure_ascii=True) + "\n",
        document: protocol(document.read_text(encoding="utf-8"), golden),
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
