"""`kiosk doctor`: whether this machine has what a kiosk needs, and the commands that install it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

from animegamer_rt.diagnose.doctor import print_sections
from animegamer_rt.diagnose.machine_checks import CheckResult, State

from .display import CONNECTORS, connectors
from .kit import CHROMIUM

PROGRAMS: Mapping[str, tuple[State, str]] = {
    "systemctl": ("broken", "the kit needs systemd: use a system with it, such as Debian"),
    "cage": ("broken", "run: sudo apt install cage"),
    "Xwayland": ("broken", "cage exits at once without it; run: sudo apt install xwayland"),
    "chromium": ("broken", "run: sudo apt install chromium, or install Google Chrome"),
    "pkaction": ("broken", "the watcher restarts the units through polkit; run: sudo apt install polkitd"),
}
"""Program -> state of the check without it, and what to do."""
LANGUAGES: Mapping[str, str] = {"en": "fonts-liberation", "zh": "fonts-noto-cjk", "ja": "fonts-noto-cjk"}
"""Language of the page -> Debian's package of a font for it."""
SESSIONS = ("lib/*/security/pam_systemd.so", "lib/security/pam_systemd.so", "lib64/security/pam_systemd.so")
FONT_TIMEOUT_S = 20.0
SECTIONS = {"broken": "Broken: required for a kiosk", "ok": "Found", "limited": "Missing: optional for a kiosk"}
"""State of a check -> its heading, in printing order."""


def report(console: Console) -> int:
    """Print the verdict and its reasons; 1 if a kiosk cannot work here, else 0."""
    checks = list(check_kiosk())
    works = all(check.state != "broken" for check in checks)
    verdict = "A kiosk works here." if works else "A kiosk does not work here yet."
    console.print(Text(verdict, "bold green" if works else "bold red"))
    print_sections(checks, SECTIONS, console)
    return 0 if works else 1


def check_kiosk() -> Iterator[CheckResult]:
    """All checks of a kiosk."""
    if sys.platform != "linux":
        yield CheckResult("kiosk", "broken", f"this is {sys.platform}", "the kit runs on Linux")
        return
    for name, (state, do) in PROGRAMS.items():
        names = CHROMIUM if name == "chromium" else (name,)
        found = next((one for one in map(shutil.which, names) if one), None)
        if found and Path(found).is_relative_to("/snap"):
            do = "a snap may be kept from its profile in /run; if the screen stays dark, install Google Chrome"
            yield CheckResult(name, "limited", found, do)
            continue
        yield CheckResult(name, "ok", found, "") if found else CheckResult(name, state, "not found", do)
    yield check_session(Path("/"))
    yield check_fonts()
    yield _check_monitor(connectors(CONNECTORS))


def _check_monitor(states: Mapping[str, bool]) -> CheckResult:
    if plugged := sorted(name for name, connected in states.items() if connected):
        return CheckResult("monitor", "ok", ", ".join(plugged), "")
    if states:
        found = f"none of {len(states)} connectors has a monitor"
        return CheckResult("monitor", "limited", found, "plug it in and turn it on")
    do = "is there a GPU with a driver? Without one the watcher assumes that a monitor is plugged in"
    return CheckResult("monitor", "limited", f"no connectors in {CONNECTORS}", do)


def check_session(root: Path) -> CheckResult:
    """Whether the browser's unit gets a login session, without which cage may not open a GPU."""
    if any(True for pattern in (*SESSIONS, *(f"usr/{one}" for one in SESSIONS)) for _ in root.glob(pattern)):
        return CheckResult("login session", "ok", "pam_systemd", "")
    do = "cage gets access to screen and touch through it; run: sudo apt install libpam-systemd dbus"
    return CheckResult("login session", "broken", "no pam_systemd", do)


def check_fonts() -> CheckResult:
    """Whether fonts cover all languages of the page: otherwise Chromium draws empty boxes."""
    if shutil.which("fc-list") is None:
        return CheckResult("fonts", "limited", "no fc-list", "run: sudo apt install fontconfig fonts-noto-cjk")
    missing = {}
    for language, package in LANGUAGES.items():
        try:
            listed = subprocess.run(["fc-list", f":lang={language}"], capture_output=True, timeout=FONT_TIMEOUT_S)
        except (OSError, subprocess.SubprocessError) as error:
            return CheckResult("fonts", "limited", str(error), "run fc-list by hand")
        if not listed.stdout.strip():
            missing[language] = package
    if not missing:
        return CheckResult("fonts", "ok", f"for {', '.join(LANGUAGES)}", "")
    packages = " ".join(sorted(set(missing.values())))
    return CheckResult("fonts", "limited", f"none for {', '.join(missing)}", f"run: sudo apt install {packages}")
