"""The scriptable server, a separate process: it starts and ends servers on command, in lines of JSON on standard input.

`{"start": {...}}` is answered by `{"id": 1, "address": "tcp://127.0.0.1:40123"}`; the map holds attributes of
`FakeServer` (`faults`, `refusals`, `minor`, ..), `"secret_key"`, or `"program"`: one of `other_programs`.
`{"set": 1, "faults": {..}}` changes attributes of a running server and is answered by `{}`. `{"end": 1}` is answered by
`{"seen": {"hello": 1, "turn": 2}}`, the requests it received. The process ends with its standard input.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

from client.conformance.fake_server import FakeServer
from client.conformance.other_programs import OtherProgram


def start(script: dict[str, Any]) -> FakeServer | OtherProgram:
    """Start the scripted server."""
    if "program" in script:
        return OtherProgram(script["program"])
    key = script.pop("secret_key", None)
    server = FakeServer(key.encode() if key else None, script.pop("minor", 0))
    change(server, script)
    return server


def change(server: FakeServer, attributes: dict[str, Any]) -> None:
    """Set attributes; the keys of `faults` are numbers."""
    for name, value in attributes.items():
        if not hasattr(server, name):
            raise ValueError(f"a server has no {name!r}; see client/conformance/fake_server.py")
        setattr(server, name, {int(seq): fault for seq, fault in value.items()} if name == "faults" else value)


def main() -> None:
    """Carry out each line of the standard input."""
    servers: list[FakeServer | OtherProgram] = []
    try:
        for line in sys.stdin:
            order = json.loads(line)
            if "start" in order:
                servers.append(start(order["start"]))
                answer: dict[str, Any] = {"id": len(servers) - 1, "address": servers[-1].address}
            elif "set" in order:
                server, answer = servers[order.pop("set")], {}
                assert isinstance(server, FakeServer)
                change(server, order)
            else:
                server = servers[order["end"]]
                server.close()
                answer = {"seen": Counter(server.kinds()) if isinstance(server, FakeServer) else {}}
            print(json.dumps(answer), flush=True)
    finally:
        for server in servers:
            server.close()


if __name__ == "__main__":
    main()
