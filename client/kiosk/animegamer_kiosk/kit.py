"""The kiosk kit's files and the commands that start it, as a list that can be printed first. Runs nothing itself."""

from __future__ import annotations

import hashlib
import json
import shutil
import string
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from animegamer_rt.bundle.files import read_bounded
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import ConfigError, OutputError
from animegamer_rt.serving.server.config_file import print_config
from animegamer_rt.serving.server.options import ServeOptions

from .config import CONFIG_FILE, KioskConfig

USER = "animegamer"
UNITS = ("animegamer-server.service", "animegamer-watch.service", "animegamer-browser.service")
SERVER_CONFIG = CONFIG_FILE.with_name("serve.toml")
SETTINGS = (CONFIG_FILE, CONFIG_FILE.with_name("block-list.txt"))
"""Files for staff to edit: written once, never replaced."""
RECEIPT = Path("/var/lib/animegamer-kiosk/installed.json")
"""What install has written: path -> SHA-256. Remove deletes only these files."""
FILES = Path(__file__).with_name("files")
"""The kit's templates, and the watcher's pages."""
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
POLICY_FOLDERS = ("/etc/chromium", "/etc/chromium-browser", "/etc/opt/chrome")
"""Where Debian's Chromium, Ubuntu's snap and Google Chrome read policies."""
MAX_RECEIPT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class KitFile:
    """A file to write. `path` is the one on the machine, without --root."""

    path: Path
    text: str

    @property
    def sha256(self) -> str:
        """Of the file's bytes, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def program() -> Path:
    """The program for the units: that of the environment which runs `install`."""
    return Path(sys.executable).with_name("animegamer-rt")


def missing_settings(root: Path) -> list[KitFile]:
    """The staff's files that do not exist yet, with their initial content."""
    missing = [path for path in SETTINGS if not under(root, path).exists()]
    return [KitFile(path, (FILES / path.name).read_text(encoding="utf-8")) for path in missing]


def kit_files(config: KioskConfig, config_path: Path) -> list[KitFile]:
    """Units and rules for these settings. config_path: of the settings once installed."""
    server = ServeOptions(
        bundle=config.bundle,
        engines=EngineConfig(config.device),
        state_dir=Path("/var/lib/animegamer/server"),
        web=f"127.0.0.1:{config.page_port}",
        ahead=3,
        keep_days=config.keep_days,
        block_list=config.block_list,
        allow_list=config.allow_list,
    )
    values = {
        "user": USER,
        "program": str(program()),
        "config": str(config_path),
        "cage": _program("cage"),
        "chromium": _program(*CHROMIUM),
        "server_config": str(SERVER_CONFIG),
        "page_port": str(config.page_port),
        "operator_port": str(config.operator_port),
        "devtools_port": str(config.devtools_port),
        "waiting_url": config.waiting_url,
    }
    places = {
        "sysusers.conf": "/etc/sysusers.d/animegamer-kiosk.conf",
        **{unit: f"/etc/systemd/system/{unit}" for unit in UNITS},
        "polkit.rules": "/etc/polkit-1/rules.d/49-animegamer-kiosk.rules",
        "journald.conf": "/etc/systemd/journald.conf.d/animegamer-kiosk.conf",
    }
    filled = [KitFile(Path(place), _filled(FILES / name, values)) for name, place in places.items()]
    policy = _filled(FILES / "chromium-policy.json", values)
    policies = [KitFile(Path(folder, "policies/managed/animegamer-kiosk.json"), policy) for folder in POLICY_FOLDERS]
    return [KitFile(SERVER_CONFIG, print_config(server)), *filled, *policies]


INSTALL_COMMANDS: Sequence[Sequence[str]] = (
    ("systemd-sysusers",),
    ("systemctl", "daemon-reload"),
    ("systemctl", "restart", "systemd-journald.service"),
    ("systemctl", "enable", *UNITS),
    ("systemctl", "--no-block", "restart", *UNITS),
)
REMOVE_COMMANDS: Sequence[Sequence[str]] = (("systemctl", "disable", "--now", *reversed(UNITS)),)
AFTER_REMOVE: Sequence[Sequence[str]] = (
    ("systemctl", "daemon-reload"),
    ("systemctl", "restart", "systemd-journald.service"),
    ("systemctl", "--no-block", "start", "getty@tty1.service"),
)


def planned(files: Sequence[KitFile], root: Path) -> list[tuple[str, KitFile]]:
    """What writing the kit does to each file: `write`, `replace`, or `keep` for one that is the same already.

    Raises ConfigError for an existing file that no earlier install wrote.
    """
    before, plan = read_receipt(root), []
    for file in files:
        path = under(root, file.path)
        same = path.exists() and _sha256(path) == file.sha256
        if path.exists() and not same and str(file.path) not in before:
            do = "move it away if it is not needed, and install again"
            raise ConfigError("another file is in the way", where=path, do=do)
        plan.append(("keep" if same else "replace" if path.exists() else "write", file))
    return plan


def write_files(files: Sequence[KitFile], root: Path) -> None:
    """Write the kit and record what was written. Raises what `planned` does, OutputError for an unwritable file."""
    planned(files, root)
    before = read_receipt(root)
    _write(under(root, RECEIPT), json.dumps(before | {str(file.path): file.sha256 for file in files}, indent=1) + "\n")
    for file in files:
        _write(under(root, file.path), file.text)


def write_settings(root: Path) -> None:
    """Write the staff's files that do not exist yet."""
    for file in missing_settings(root):
        _write(under(root, file.path), file.text)


def read_receipt(root: Path) -> dict[str, str]:
    """What earlier installs wrote; empty if there were none. Raises ConfigError for an invalid receipt."""
    path = under(root, RECEIPT)
    try:
        receipt = json.loads(read_bounded(path, MAX_RECEIPT_BYTES))
        if not isinstance(receipt, dict) or not all(isinstance(one, str) for one in receipt.values()):
            raise ValueError("not an object of texts")
        if not all(name.startswith("/") and ".." not in Path(name).parts for name in receipt):
            raise ValueError("a file name that does not begin with /, or contains ..")
    except FileNotFoundError:
        return {}
    except ValueError as error:
        do = "delete it and the files of the kit by hand: animegamer-rt kiosk install --dry-run lists them"
        raise ConfigError("not a receipt of an install", where=path, found=error, do=do) from error
    return receipt


def installed(root: Path) -> list[tuple[Path, str]]:
    """Each file of the last install and its state: `ok`, `changed` or `missing`."""
    found = []
    for name, expected in read_receipt(root).items():
        path = under(root, Path(name))
        state = "missing" if not path.exists() else "ok" if _sha256(path) == expected else "changed"
        found.append((Path(name), state))
    return found


def delete_files(root: Path) -> None:
    """Delete the files that install recorded, and the record. Files changed since are kept."""
    for path, state in installed(root):
        if state == "ok":
            under(root, path).unlink()
    under(root, RECEIPT).unlink(missing_ok=True)


def under(root: Path, path: Path) -> Path:
    """A path of the machine, under the folder `root` of another system."""
    return root / path.relative_to("/")


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(path.name + ".new")
        new.write_text(text, encoding="utf-8")
        new.chmod(0o644)
        new.replace(path)
    except OSError as error:
        do = "run it as root: sudo animegamer-rt kiosk install"
        raise OutputError("the file cannot be written", where=path, found=error.strerror, do=do) from error


def _filled(path: Path, values: Mapping[str, str]) -> str:
    return string.Template(path.read_text(encoding="utf-8")).substitute(values)


def _program(*names: str) -> str:
    """The path of the first of these programs, or where it will be once installed."""
    return next((found for name in names if (found := shutil.which(name))), f"/usr/bin/{names[0]}")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
