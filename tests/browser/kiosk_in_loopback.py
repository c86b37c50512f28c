"""Plays the whole kiosk kit where only loopback exists: watch, server, gateway, page and Chromium.

`make kiosk` runs it. It makes a network namespace of its own with a loopback interface alone, stands in for systemd,
and reports whatever asked for an address beyond loopback. It is no part of `make test`, because it needs Chromium.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from animegamer_kiosk.browser import Browser, BrowserError
from animegamer_kiosk.kit import POLICY_FOLDERS
from animegamer_rt.cli import main as animegamer_rt

INSIDE = "ANIMEGAMER_LOOPBACK_ONLY"
PAGE, OPERATOR, DEVTOOLS = 8080, 8090, 9222
IDLE_S = 8
SYSTEMCTL = """#!/bin/sh
echo "$*" >> "$KIOSK_CALLS"
case "$*" in *MainPID*) cat "$KIOSK_SERVER_PID" ;; *ActiveState*) echo active ;; esac
"""
SAY = """(text) => {
  const field = document.getElementById("text");
  field.value = text;
  field.dispatchEvent(new Event("input"));
  dispatchEvent(new Event("keydown"));
  if (document.getElementById("draw").ariaDisabled === "true") { field.value = ""; return false; }
  document.getElementById("sheet").requestSubmit();
  return true;
}"""
AUDIT = """
import os, sys
def hook(event, args):
    if event == "socket.connect": address = args[1]
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"): address = args
    else: return
    host = address[0] if isinstance(address, tuple) else ""
    if isinstance(host, str) and host and not host.startswith("127.") and host not in ("localhost", "::1"):
        os.write(int(os.environ["KIOSK_ASKED"]), (event + " " + repr(address) + chr(10)).encode())
sys.addaudithook(hook)
"""


def enter_namespace() -> None:
    """Run this program again where no network but loopback exists, and bring loopback up there."""
    if INSIDE not in os.environ:
        command = ["unshare", "--map-root-user", "--net", "--mount", sys.executable, *sys.argv]
        sys.exit(subprocess.run(command, env={**os.environ, INSIDE: "1"}, check=False).returncode)
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        up = struct.pack("16sh14x", b"lo", 1 | 64)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(any_socket, 0x8914, up)  # SIOCSIFFLAGS
    states = {name: Path(f"/sys/class/net/{name}/operstate").read_text().strip() for _, name in socket.if_nameindex()}
    assert [name for name, state in states.items() if name != "lo" and state == "up"] == []


def wait_for(what: str, check: Callable[[], Any], limit_s: float = 150.0) -> Any:
    """The first true answer; ends the program with what was waited for, and the last error, when there is none."""
    print(f"wait  {what}", flush=True)
    end, last = time.monotonic() + limit_s, "no error"
    while time.monotonic() < end:
        try:
            if answer := check():
                print(f"ok    {what}", flush=True)
                return answer
        except (OSError, ValueError, KeyError, BrowserError) as error:
            last = f"{type(error).__name__}: {error}"
        time.sleep(0.3)
    sys.exit(f"failed: {what}, within {limit_s:g} s; last: {last}")


class Kit:
    """The installed kit in a folder, with this program in systemd's place."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "root"
        settings = self.root / "etc/animegamer/kiosk.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(f"idle_seconds = {IDLE_S}\nfrozen_seconds = 20\n")
        assert animegamer_rt(["kiosk", "install", "--yes", "--root", str(self.root)]) == 0
        server = settings.with_name("serve.toml")
        text = server.read_text().replace("/var/lib/animegamer", str(self.folder / "state"))
        server.write_text(text.replace("/etc/animegamer", str(settings.parent)))
        # The policy is in force in this namespace only.
        for policies in filter(os.path.isdir, POLICY_FOLDERS):
            subprocess.run(["mount", "--bind", self.root / policies[1:], policies], check=True)
        programs = folder / "bin"
        programs.mkdir()
        (programs / "systemctl").write_text(SYSTEMCTL)
        (programs / "systemctl").chmod(0o755)
        (folder / "sitecustomize.py").write_text(AUDIT)
        self.calls, self.server_pid, self.asked = folder / "calls", folder / "pid", folder / "asked"
        self.calls.touch()
        self._asked = os.open(self.asked, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.set_inheritable(self._asked, True)
        self.environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}",
            "OMP_NUM_THREADS": "1",
            "KIOSK_CALLS": str(self.calls),
            "KIOSK_SERVER_PID": str(self.server_pid),
            "KIOSK_ASKED": str(self._asked),
        }
        self.settings = settings
        self.net_logs: list[Path] = []
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, unit: str) -> None:
        """Start what a unit's ExecStart says, as far as this machine has it."""
        text = (self.root / f"etc/systemd/system/animegamer-{unit}.service").read_text()
        line = next(line.partition("=")[2] for line in text.splitlines() if line.startswith("ExecStart="))
        words = shlex.split(line)
        if unit == "browser":
            words = words[words.index("--") + 1 :]  # without cage: there is no display
            words = [word for word in words if not word.startswith(("--ozone", "--user-data-dir", "--kiosk"))]
            words[1:1] = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"]
            self.net_logs.append(self.folder / f"net-{len(self.net_logs)}.json")
            words[1:1] = [f"--user-data-dir={self.folder}/profile", f"--log-net-log={self.net_logs[-1]}"]
        else:
            words[:1] = [sys.executable, "-m", "animegamer_rt"]
            words = [word.replace("/etc/animegamer", str(self.settings.parent)) for word in words]
        log = open(self.folder / f"{unit}.log", "ab")
        self.running[unit] = subprocess.Popen(
            words, env=self.environment, stdout=log, stderr=log, close_fds=False, start_new_session=True
        )
        if unit == "server":
            self.server_pid.write_text(str(self.running[unit].pid))

    def signal(self, unit: str, number: int) -> None:
        """Send a signal to all processes of a unit."""
        os.killpg(self.running[unit].pid, number)

    def end(self, unit: str) -> None:
        """End a unit and wait for it."""
        number = signal.SIGTERM if self.running[unit].poll() is None else 0
        if number:
            self.signal(unit, number)
            self.running[unit].wait(60)

    def called(self, words: str) -> bool:
        """Whether the watch has asked systemd for this."""
        return words in self.calls.read_text()


def state() -> dict[str, Any]:
    """What the page for staff is told."""
    with urlopen(f"http://127.0.0.1:{OPERATOR}/state.json", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def evaluate(script: str) -> Any:
    """A script's value in the page that is shown."""
    with Browser(DEVTOOLS, "", "")._connection() as ask:
        return ask("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")


def say(text: str) -> bool:
    """Have a visitor play an instruction; returns whether the page could."""
    return bool(evaluate(f"({SAY})({json.dumps(text)})"))


def play(kit: Kit) -> None:
    """From an empty machine to a visitor's game and its end, over a frozen browser and a gateway that hangs."""
    kit.start("watch")
    kit.start("browser")
    wait_for("a clip moves before there is a server", lambda: state()["picture"] == "moves")
    kit.start("server")
    wait_for("the page comes by itself", lambda: f":{PAGE}/?kiosk" in evaluate("location.href"))
    wait_for("its picture moves", lambda: state()["picture"] == "moves" and state()["server"] == "ready")
    wait_for("a visitor plays", lambda: say("Tofi waves gently in the meadow."))
    wait_for("the turn is drawn", lambda: evaluate("document.querySelectorAll('#turns li').length"))
    token = evaluate("localStorage.getItem('animegamer.token')")
    wait_for("the idle page is emptied", lambda: state()["resets"] >= 1)
    wait_for("nothing of the visitor is left", lambda: evaluate("localStorage.getItem('animegamer.token')") != token)
    assert not evaluate("document.querySelectorAll('#turns li').length")
    emptied = state()["resets"]
    time.sleep(3 * IDLE_S)
    assert state()["resets"] == emptied, "an empty page is left alone"
    print("ok    the empty page is left alone")
    assert not kit.called("restart"), kit.calls.read_text()
    kit.signal("browser", signal.SIGSTOP)
    wait_for("a browser that hangs is restarted", lambda: kit.called("restart animegamer-browser.service"))
    wait_for("then the gateway", lambda: kit.called("MainPID"))
    wait_for("then the server", lambda: kit.called("restart animegamer-server.service"))
    kit.signal("browser", signal.SIGKILL)
    kit.running["browser"].wait(20)
    kit.start("browser")
    wait_for("the picture moves again", lambda: state()["picture"] == "moves")
    request = Request(f"http://127.0.0.1:{OPERATOR}/do/reset", method="POST", headers={"X-Animegamer": "1"})
    with urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def net_events(log: Path) -> list[dict[str, Any]]:
    """The events of a network log, of a Chromium that was killed, too. Ends the program if there is none."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    if '"events": [' not in lines:
        sys.exit(f"failed: Chromium wrote no network log that this reads: {log}")
    found = []
    for line in lines[lines.index('"events": [') + 1 :]:
        try:
            found.append(json.loads(line.rstrip().rstrip(",")))
        except ValueError:  # the last one, or the end of the list
            continue
    return found


def outside(kit: Kit) -> list[str]:
    """All that asked for an address beyond loopback: our processes by Python's audit, Chromium by its network log."""
    asked = kit.asked.read_text().splitlines()
    for event in [event for log in kit.net_logs for event in net_events(log)]:
        host = str(event.get("params", {}).get("host", "") or event.get("params", {}).get("url", ""))
        inside = ("http://127.0.0.1", "ws://127.0.0.1", "127.0.0.1", "data:", "blob:", "about:", "chrome", "devtools:")
        if host and not host.startswith(inside):
            asked.append(f"chromium: {host}")
    return sorted(set(asked))


def main() -> int:
    """Returns the exit code."""
    enter_namespace()
    with tempfile.TemporaryDirectory(prefix="kiosk-", ignore_cleanup_errors=True) as folder:
        kit = Kit(Path(folder))
        try:
            play(kit)
        except BaseException:
            for log in Path(folder).glob("*.log"):
                print(f"--- {log.name}", log.read_text(errors="replace")[-2500:], sep="\n")
            raise
        finally:
            for unit in ("browser", "watch", "server"):
                if unit in kit.running:
                    kit.signal(unit, signal.SIGCONT)
                    kit.end(unit)
        asked = outside(kit)
        verdict = ["failed: these were asked for:", *asked] if asked else ["ok    nothing asks for anything outside"]
        print("\n".join(verdict))
        return 1 if asked else 0


if __name__ == "__main__":
    sys.exit(main())
