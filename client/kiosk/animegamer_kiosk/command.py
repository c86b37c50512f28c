"""`animegamer-rt kiosk`: installs the kit on a machine, removes it, and watches the screen."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Sequence
from pathlib import Path

from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.errors import ConfigError
from animegamer_rt.profiling.host import build

from . import kit
from .config import CONFIG_FILE, KioskConfig, read_config, read_key
from .machine import Machine

FAILED = 1


def add_kiosk(kiosk: argparse.ArgumentParser) -> None:
    """`animegamer-rt kiosk`."""
    verbs = kiosk.add_subparsers(required=True)

    install = verbs.add_parser("install", help="write units and settings, and start them")
    _add_changes(install, _install)
    status = verbs.add_parser("status", help="show what is installed and running")
    status.set_defaults(run=_status)
    _add_root(status)
    remove = verbs.add_parser("remove", help="stop the kiosk and delete what install wrote")
    _add_changes(remove, _remove)
    watch = verbs.add_parser("watch", help="run the service that watches the screen")
    watch.set_defaults(run=_watch)
    watch.add_argument(
        "--config", type=Path, default=CONFIG_FILE, metavar="FILE", help="settings (default: %(default)s)"
    )
    doctor = verbs.add_parser("doctor", help="check whether this machine has what a kiosk needs")
    doctor.set_defaults(run=_doctor)


def _add_root(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--root",
        type=Path,
        default=Path("/"),
        metavar="DIR",
        help="root of another system; runs no command (default: /)",
    )


def _add_changes(verb: argparse.ArgumentParser, run: object) -> None:
    verb.set_defaults(run=run)
    verb.add_argument("--dry-run", action="store_true", help="only print what would be done")
    verb.add_argument("--yes", action="store_true", help="do not ask")
    _add_root(verb)


def _watch(options: argparse.Namespace) -> int:
    from .watcher import watch

    return watch(read_config(options.config))


def _doctor(options: argparse.Namespace) -> int:
    from rich.console import Console

    from .needs import report

    return report(Console())


def _install(options: argparse.Namespace) -> int:
    root: Path = options.root
    config_path = kit.under(root, CONFIG_FILE)
    config = read_config(config_path if config_path.exists() else kit.FILES / CONFIG_FILE.name)
    _check_named(config, root, config_path)
    files = kit.kit_files(config, CONFIG_FILE)
    commands = kit.INSTALL_COMMANDS if root == Path("/") else ()
    for verb, file in kit.planned([*kit.missing_settings(root), *files], root):
        print(f"{verb:<7} {file.path}")
        if options.dry_run and verb != "keep":
            print("".join(f"    {line}\n" for line in file.text.splitlines()), end="")
    _print_commands(commands)
    place = kit.program()
    if commands and place.parts[1] in ("home", "root"):  # last, so that the list is printed anyway
        do = "install animegamer-rt into /opt/animegamer and run it from there (docs/KIOSK.md)"
        raise ConfigError("systemd units must not read a home folder", found=place, do=do)
    if options.dry_run:
        print("nothing was changed: this was a dry run")
    if options.dry_run or not _agreed(options.yes):
        return 0
    kit.write_settings(root)
    kit.write_files(files, root)
    return _run(commands)


def _check_named(config: KioskConfig, root: Path, where: Path) -> None:
    """Raises AnimeGamerError if a configured file or bundle is missing: the units would fail one by one."""
    for name in ("block_list", "allow_list", "operator_key"):
        path = getattr(config, name)
        if path is None or path in kit.SETTINGS:
            continue
        if not (there := kit.under(root, path)).is_file():
            do = "create the file, or leave the setting empty"
            raise ConfigError(f"the file of {name} is missing", where=where, found=path, do=do)
        if not there.stat().st_mode & 0o044 and there.owner() != kit.USER:
            raise ConfigError(f"the user {kit.USER} cannot read it", where=path, do=f"run: chown {kit.USER}: {path}")
    if config.operator_key is not None:
        read_key(kit.under(root, config.operator_key))
    if root == Path("/"):
        open_bundle(config.bundle)


def _remove(options: argparse.Namespace) -> int:
    root: Path = options.root
    found = kit.installed(root)
    if not found:
        print("nothing is installed")
        return 0
    before, after = (kit.REMOVE_COMMANDS, kit.AFTER_REMOVE) if root == Path("/") else ((), ())
    _print_commands(before)
    for path, state in found:
        print({"ok": f"delete {path}", "changed": f"keep {path}, which was changed"}.get(state, f"{path} is missing"))
    _print_commands(after)
    print(f"keep {', '.join(map(str, kit.SETTINGS))}, the games in /var/lib/animegamer, and the environments in /opt")
    if options.dry_run:
        print("nothing was changed: this was a dry run")
    if options.dry_run or not _agreed(options.yes):
        return 0
    code = _run(before)
    kit.delete_files(root)
    return _run(after) or code


def _status(options: argparse.Namespace) -> int:
    root: Path = options.root
    found = kit.installed(root)
    if not found:
        print("not installed; run: sudo animegamer-rt kiosk install")
        return FAILED
    wrong = [(path, state) for path, state in found if state != "ok"]
    for path, state in wrong:
        print(f"{state:<10}{path}")
    if wrong:
        print("to restore them, run: sudo animegamer-rt kiosk install")
    states = Machine().states() if root == Path("/") else {}
    for unit, state in states.items():
        print(f"{state:<10}{unit}")
    print(f"{'build':<10}{build()}")
    return FAILED if wrong or any(state != "active" for state in states.values()) else 0


def _print_commands(commands: Sequence[Sequence[str]]) -> None:
    for command in commands:
        print(f"run     {' '.join(command)}")


def _agreed(yes: bool) -> bool:
    if yes:
        return True
    try:
        return input("Do this? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError as error:
        raise ConfigError("stdin is not a terminal, so nobody can confirm", do="use --yes, or --dry-run") from error


def _run(commands: Sequence[Sequence[str]]) -> int:
    for command in commands:
        try:
            code = subprocess.run(command, check=False).returncode
        except OSError as error:
            raise ConfigError("the command cannot be run", where=command[0], found=error.strerror) from error
        if code:
            print(f"`{' '.join(command)}` ended with code {code}; fix that, and run this again")
            return FAILED
    return 0
