"""The settings of a kiosk: a file of `name = value` lines that staff can edit."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any

from animegamer_rt.bundle.files import read_bounded
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import ConfigError
from animegamer_rt.serving.server.options import PORT
from animegamer_rt.untrusted import bare_host, decimal_number, short, whole_number

CONFIG_FILE = Path("/etc/animegamer/kiosk.conf")
MAX_BYTES, MAX_KEY_BYTES, MIN_KEY = 64 * 1024, 1024, 12
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
ALWAYS, CLOSED = "always", "closed"
ADDRESSES = ("127.0.0.1", "0.0.0.0", "::")
"""Addresses for the staff page: only this machine, all its IPv4 addresses, all addresses."""
_COMMENT = re.compile(r"(?:^|\s)#.*|^\s*;.*")
_SETTING = re.compile(r"([^=:]*[^=:\s])\s*[=:]\s*(.*)")


@dataclass(frozen=True, slots=True)
class Hours:
    """When the screen is on during one day. `end` at or before `start` means the next day. None: never."""

    start: time | None = time(0)
    end: time = time(0)

    @classmethod
    def from_text(cls, text: str) -> Hours:
        """Parse `09:00-18:00`, `always` or `closed`; 24:00 is also midnight. Raises ValueError."""
        if text.lower() in (ALWAYS, CLOSED):
            return cls(time(0) if text.lower() == ALWAYS else None)
        start, _, end = (part.strip() for part in text.partition("-"))
        try:
            times = (start, "00:00" if end == "24:00" else end)
            return cls(*(datetime.strptime(part, "%H:%M").time() for part in times))
        except ValueError as error:
            raise ValueError("hours such as 09:00-18:00, always, or closed") from error

    def contain(self, day: datetime, now: datetime) -> bool:
        """Whether `now` is within the hours that begin on `day`."""
        if self.start is None:
            return False
        start = datetime.combine(day.date(), self.start)
        end = datetime.combine(day.date(), self.end)
        return start <= now < (end if end > start else end + timedelta(days=1))


@dataclass(frozen=True, slots=True)
class KioskConfig:
    """Settings of one screen; the comments of files/kiosk.conf describe them."""

    bundle: str = "pocket"
    device: str = "cpu"
    page_port: int = 8080
    operator_port: int = 8090
    operator_address: str = "127.0.0.1"
    operator_key: Path | None = None
    devtools_port: int = 9222
    daily: Hours = Hours()
    by_day: Mapping[str, Hours] = dataclasses.field(default_factory=dict)
    idle_seconds: int = 60
    keep_days: float = 1.0
    block_list: Path | None = None
    allow_list: Path | None = None
    frozen_seconds: int = 20

    @property
    def page_url(self) -> str:
        """The visitors' page."""
        return f"http://127.0.0.1:{self.page_port}/?kiosk"

    @property
    def waiting_url(self) -> str:
        """The animation shown until the page is available, served by the watcher."""
        return f"http://127.0.0.1:{self.operator_port}/waiting"

    def screen_on(self, now: datetime) -> bool:
        """Whether the screen should be on; now: local time."""
        for day in (now, now - timedelta(days=1)):
            if self.by_day.get(DAYS[day.weekday()], self.daily).contain(day, now):
                return True
        return False


def read_config(path: Path) -> KioskConfig:
    """The settings in a file. Raises ConfigError with the line and setting, what was found and what is expected."""
    do = "create one with: animegamer-rt kiosk install"
    try:
        text = read_bounded(path, MAX_BYTES).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or str(error)
        raise ConfigError("the settings cannot be read", where=path, found=found, do=do) from error
    values: dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), 1):
        where, setting = f"{path}, line {number}", _COMMENT.sub("", line).strip()
        if not setting:
            continue
        if (parts := _SETTING.fullmatch(setting)) is None:
            raise ConfigError("not `name = value`", where=where, found=short(setting), do="correct or delete the line")
        name, written = parts[1].lower(), parts[2]
        read = _READ.get(name)
        if read is None:
            near = difflib.get_close_matches(name, _READ, 1)
            expected = near[0] if near else ", ".join(_READ)
            raise ConfigError("unknown setting", where=where, found=short(name), expected=expected)
        if name in values:
            raise ConfigError("the setting occurs twice", where=where, found=name, do="delete one of the two lines")
        try:
            values[name] = read(written)
        except ValueError as error:
            what, found = f"not a value of {name}", short(written) if written else "nothing"
            raise ConfigError(what, where=where, found=found, expected=error) from error
    config = KioskConfig(by_day={day: values.pop(day) for day in DAYS if day in values}, **values)
    _check_together(config, path)
    return config


def read_key(path: Path) -> str:
    """The staff page's key: the first line of a file. Raises ConfigError."""
    do = f"write at least {MIN_KEY} characters into its first line, readable by the units' user"
    try:
        lines = read_bounded(path, MAX_KEY_BYTES).decode("utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or error
        raise ConfigError("the key cannot be read", where=path, found=found, do=do) from error
    key = lines[0].strip() if lines else ""
    if len(key) < MIN_KEY:
        raise ConfigError("the key is too short", where=path, found=f"{len(key)} characters", do=do)
    return key


def _check_together(config: KioskConfig, path: Path) -> None:
    """Raises ConfigError for conflicting settings."""
    if config.operator_address != ADDRESSES[0] and config.operator_key is None:
        do = "write a long key into a file and set operator_key to its path"
        raise ConfigError("a staff page beyond this machine needs a key", where=path, do=do)
    taken = dict.fromkeys((PORT, PORT + 1, PORT + 2), "the server")
    for name in ("page_port", "operator_port", "devtools_port"):
        port = getattr(config, name)
        if (other := taken.setdefault(port, name)) != name:
            do = "use a different port for each"
            raise ConfigError(f"{name} is also the port of {other}", where=path, found=port, do=do)


def _between(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            return whole_number(text, low, high)
        except ValueError as error:
            raise ValueError(f"a whole number from {low} to {high}") from error

    return read


def _days(text: str) -> float:
    try:
        number = decimal_number(text)
    except ValueError:
        number = -1
    if not 0 <= number <= 36_500:
        raise ValueError("a number of days")
    return number


def _path(text: str) -> Path | None:
    if text and not text.startswith("/"):
        raise ValueError("an absolute path, beginning with /")
    return Path(_word(text)) if text else None


def _address(text: str) -> str:
    if (host := bare_host(text)) not in ADDRESSES:
        raise ValueError(f"{' or '.join(ADDRESSES)}: the screen itself uses {ADDRESSES[0]}")
    return host


def _device(text: str) -> str:
    try:
        return EngineConfig(_word(text)).device
    except ConfigError as error:
        raise ValueError(error.expected) from error


def _word(text: str) -> str:
    if not text or any(letter.isspace() or letter in "\"'\\%$" for letter in text):
        raise ValueError("a value without blanks, quotes, %, $ or backslashes")
    return text


_PORT = _between(1, 65535)
_READ: Mapping[str, Callable[[str], Any]] = {
    "bundle": _word,
    "device": _device,
    "page_port": _PORT,
    "operator_port": _PORT,
    "operator_address": _address,
    "operator_key": _path,
    "devtools_port": _PORT,
    "daily": Hours.from_text,
    **dict.fromkeys(DAYS, Hours.from_text),
    "idle_seconds": _between(0, 86_400),
    "keep_days": _days,
    "block_list": _path,
    "allow_list": _path,
    "frozen_seconds": _between(5, 3600),
}
