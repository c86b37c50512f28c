"""`animegamer-rt kiosk install|status|remove|update|watch`: puts the kit on a machine, takes it away, renews it.

Knows the command line and what is printed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from animegamer_rt import untrusted
from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.errors import ConfigError
from animegamer_rt.profiling.host import build

from . import kit
from .config import CONFIG_FILE, KioskConfig, read_config, read_key
from .machine import Machine
from .update_record import RECORD, Phase, read_record
from .versions import Versions, find_wheel, own_folder

ACTIONS = ("install", "status", "remove", "update", "watch")
FAILED = 1


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `kiosk` to its parser."""
    command.add_argument(
        "action",
        choices=ACTIONS,
        help="install: write units and settings and start them; status: what runs; remove: undo install; "
        "update: try another version, and go back if it does not play; watch: the service that watches the screen",
    )
    command.add_argument(
        "wheel",
        nargs="?",
        type=untrusted.path,
        metavar="WHEEL_OR_FOLDER",
        help="of update: the version; none: go on with the one that is on trial",
    )
    command.add_argument("--back", action="store_true", help="of update: use the version before the one on trial")
    command.add_argument("--dry-run", action="store_true", help="print all that would be done")
    command.add_argument("--yes", action="store_true", help="do not ask")
    command.add_argument(
        "--root", type=Path, default=Path("/"), metavar="DIR", help="of another system; runs no command (default: /)"
    )
    command.add_argument(
        "--config", type=Path, default=CONFIG_FILE, metavar="FILE", help="settings, of watch (default: %(default)s)"
    )


def kiosk(options: argparse.Namespace) -> int:
    """Run one of ACTIONS; returns the exit code."""
    if options.action == "watch":
        from .watcher import watch

        return watch(read_config(options.config))
    if options.action == "status":
        return _status(options.root)
    if options.action == "update":
        return _update(options)
    return (_install if options.action == "install" else _remove)(options.root, options.dry_run, options.yes)


def _install(root: Path, dry_run: bool, yes: bool) -> int:
    config_path = root / CONFIG_FILE.relative_to("/")
    source = config_path if config_path.exists() else kit.templates() / CONFIG_FILE.name
    config = read_config(source)
    _check_named(config, root, config_path)
    files = kit.kit_files(config, CONFIG_FILE)
    commands = kit.INSTALL_COMMANDS if root == Path("/") else ()
    versions, own = Versions(root), own_folder()
    used, record = versions.current, read_record(kit.under(root, RECORD))
    if used not in (None, own) and record is not None and record.phase is Phase.TRIAL:
        do = f"run: sudo {kit.program()} kiosk install; or go back first: kiosk update --back"
        raise ConfigError("another version is on trial", where=versions.folder, found=used, expected=own, do=do)
    for file in [*kit.missing_settings(root), *files]:
        print(f"write {file.path}")
        if dry_run:
            print("".join(f"    {line}\n" for line in file.text.splitlines()), end="")
    if own is not None:
        print(f"use   {own}" + (f" in place of {used}" if used not in (None, own) else ""))
    _print_commands(commands)
    place = own or kit.program()
    if commands and place.parts[1] in ("home", "root"):  # said last, so that the list is seen all the same
        do = "install animegamer-rt into /opt/animegamer and run that one (docs/KIOSK.md)"
        raise ConfigError("the units may not read a home folder", found=place, do=do)
    if dry_run or not _agreed(yes):
        return 0
    kit.write_settings(root)
    kit.write_files(files, root)
    if own is not None:
        versions.use(own)
    return _run(commands)


def _check_named(config: KioskConfig, root: Path, where: Path) -> None:
    """Raises AnimeGamerError if the settings name what is not there: the units would fail one after the other."""
    for name in ("block_list", "allow_list", "operator_key"):
        path = getattr(config, name)
        if path is None or path in kit.SETTINGS:
            continue
        if not (there := kit.under(root, path)).is_file():
            do = "write that file, or leave the setting empty"
            raise ConfigError(f"{name} is not there", where=where, found=path, do=do)
        if not there.stat().st_mode & 0o044 and there.owner() != kit.USER:
            raise ConfigError(f"the user {kit.USER} cannot read it", where=path, do=f"run: chown {kit.USER}: {path}")
    if config.operator_key is not None:
        read_key(kit.under(root, config.operator_key))
    if config.osc_port and importlib.util.find_spec("pythonosc") is None:
        do = "run: pip install 'animegamer-rt[osc]'; or osc_port = 0"
        raise ConfigError("OSC needs another package", where=where, found="no python-osc", do=do)
    if root == Path("/") and not config.bundle.startswith("hf:"):
        open_bundle(config.bundle)


def _remove(root: Path, dry_run: bool, yes: bool) -> int:
    found = kit.installed(root)
    if not found:
        print("nothing is installed")
        return 0
    before, after = (kit.REMOVE_COMMANDS, kit.AFTER_REMOVE) if root == Path("/") else ((), ())
    _print_commands(before)
    for path, state in found:
        print({"ok": f"delete {path}", "changed": f"keep {path}, which was changed"}.get(state, f"{path} is gone"))
    _print_commands(after)
    print(f"keep {', '.join(map(str, kit.SETTINGS))}, the games in /var/lib/animegamer, and the versions in /opt")
    if dry_run or not _agreed(yes):
        return 0
    code = _run(before)
    kit.delete_files(root)
    return _run(after) or code


def _status(root: Path) -> int:
    found = kit.installed(root)
    if not found:
        print("not installed; run: sudo animegamer-rt kiosk install")
        return FAILED
    wrong = [(path, state) for path, state in found if state != "ok"]
    for path, state in wrong:
        print(f"{state:<10}{path}")
    if wrong:
        print("to write them again, run: sudo animegamer-rt kiosk install")
    states = Machine().states() if root == Path("/") else {}
    for unit, state in states.items():
        print(f"{state:<10}{unit}")
    if (record := read_record(kit.under(root, RECORD))) is not None:
        print(f"{'update':<10}{record.said()}")
    print(f"{'build':<10}{build()}")
    return FAILED if wrong or any(state != "active" for state in states.values()) else 0


def _update(options: argparse.Namespace) -> int:
    from .first_turn import first_turn
    from .update import Updater
    from .watcher import page_ready

    config = read_config(options.root / CONFIG_FILE.relative_to("/"))
    updater = Updater(config, lambda: page_ready(config), lambda: first_turn(config.page_port), root=options.root)
    if options.wheel is None and not options.back:
        went_on = updater.check()
        print(went_on.said() if went_on else "no version is on trial")
        return 0
    wheel = None if options.wheel is None else find_wheel(options.wheel.absolute())
    for step in updater.steps(wheel) if wheel else ():
        print(step.text)
    if options.dry_run or options.root != Path("/") or not _agreed(options.yes):
        return 0
    if hasattr(os, "geteuid") and os.geteuid() != 0:
        raise ConfigError("an update needs root", do="run: sudo animegamer-rt kiosk update ...")
    record = updater.update(wheel) if wheel else updater.take_back("it was asked for")
    print(record.said())
    return 0 if record.phase is Phase.TRIAL or options.back else FAILED


def _print_commands(commands: Sequence[Sequence[str]]) -> None:
    for command in commands:
        print(f"run   {' '.join(command)}")


def _agreed(yes: bool) -> bool:
    if yes:
        return True
    try:
        return input("Do this? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError as error:
        raise ConfigError("nobody is there to agree", do="give --yes, or --dry-run to look only") from error


def _run(commands: Sequence[Sequence[str]]) -> int:
    for command in commands:
        try:
            code = subprocess.run(command, check=False).returncode
        except OSError as error:
            raise ConfigError("the command cannot be run", where=command[0], found=error.strerror) from error
        if code:
            print(f"`{' '.join(command)}` ended with code {code}; mend that, and run it again")
            return FAILED
    return 0
