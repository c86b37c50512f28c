"""The settings of a kiosk: a TOML file that staff can edit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from pathlib import Path

from animegamer_rt.bundle.config import check_range, read_record
from animegamer_rt.bundle.files import read_bounded
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import ConfigError
from animegamer_rt.serving.server.config_file import read_toml
from animegamer_rt.serving.server.options import PORT

CONFIG_FILE = Path("/etc/animegamer/kiosk.toml")
MAX_KEY_BYTES, MIN_KEY = 1024, 12
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
DAILY, ALWAYS, CLOSED = "daily", "always", "closed"
ADDRESSES = ("127.0.0.1", "0.0.0.0", "::")
"""Addresses for the staff page: only this machine, all its IPv4 addresses, all addresses."""
PORTS = ("page_port", "operator_port", "devtools_port")
RANGES: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(PORTS, (1024, 65535)),  # the units are not root
    "idle_seconds": (0, 86_400),
    "keep_days": (0, 36_500),
    "frozen_seconds": (5, 3600),
}


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
    """Settings of one screen; the comments of files/kiosk.toml describe them. hours: `daily` or a day -> its hours."""

    bundle: str = "pocket"
    device: str = "cpu"
    page_port: int = 8080
    operator_port: int = 8090
    operator_address: str = ADDRESSES[0]
    operator_key: Path | None = None
    devtools_port: int = 9222
    hours: Mapping[str, str] = dataclasses.field(default_factory=dict)
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
        return any(self._hours_of(day).contain(day, now) for day in (now, now - timedelta(days=1)))

    def _hours_of(self, day: datetime) -> Hours:
        return Hours.from_text(self.hours.get(DAYS[day.weekday()], self.hours.get(DAILY, ALWAYS)))


def read_config(path: Path) -> KioskConfig:
    """The settings in a file. Raises ConfigError that names the setting, what was found and what is expected."""
    config = read_record(KioskConfig, read_toml(path, "create one with: animegamer-rt kiosk install"), str(path))
    _check(config, path)
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


def _check(config: KioskConfig, path: Path) -> None:
    """Raises ConfigError for a value out of range, or for conflicting settings."""
    try:
        EngineConfig(config.device)
    except ConfigError as error:
        where = f"{path}: device"
        raise ConfigError(error.what, where=where, found=error.found, expected=error.expected, do=error.do) from error
    for name, (low, high) in RANGES.items():
        check_range(getattr(config, name), low, high, f"{path}: {name}")
    for day, text in config.hours.items():
        where = f"{path}: hours: {day}"
        if day not in (DAILY, *DAYS):
            raise ConfigError("not a day", where=where, expected=", ".join((DAILY, *DAYS)))
        try:
            Hours.from_text(text)
        except ValueError as error:
            raise ConfigError("not hours", where=where, found=text, expected=error) from error
    for name in ("operator_key", "block_list", "allow_list"):
        file = getattr(config, name)
        if file is not None and not file.is_absolute():
            raise ConfigError("not an absolute path", where=f"{path}: {name}", found=file)
    if config.operator_address not in ADDRESSES:
        expected = f"{' or '.join(ADDRESSES)}: the screen itself uses {ADDRESSES[0]}"
        where = f"{path}: operator_address"
        raise ConfigError(
            "not an address for the staff page", where=where, found=config.operator_address, expected=expected
        )
    if config.operator_address != ADDRESSES[0] and config.operator_key is None:
        do = "write a long key into a file and set operator_key to its path"
        raise ConfigError("a staff page beyond this machine needs a key", where=path, do=do)
    taken = dict.fromkeys((PORT, PORT + 1, PORT + 2), "the server")
    for name in PORTS:
        port = getattr(config, name)
        if (other := taken.setdefault(port, name)) != name:
            do = "use a different port for each"
            raise ConfigError(f"{name} is also the port of {other}", where=path, found=port, do=do)
