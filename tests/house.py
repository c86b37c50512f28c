"""The house rules as code: who may import what, what no file may say, how big things may be. `python tests/house.py`.

Knows file names and syntax trees only; it imports nothing of the project.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "animegamer_rt": "runtime",
    "animegamer_export": "export",
    "animegamer_kernels": "kernels",
    "animegamer_client": "client/python",
}
RT = "animegamer_rt"
# Rooms that must stay readable and testable with nothing installed but numpy and the message codec.
PURE = ("state", "story", "schedule", "coarse", "manifest", "bundle", "wire", "config", "errors")
PURE_LIBRARIES = {"numpy", "msgpack"}
PARTS = ("predictor", "denoiser", "vae")
MOST_LINES = 400
LONG_LINES = 250
MOST_MIB = {"engines/pocket": 24.0, "tests/golden": 12.0}


@dataclass(frozen=True)
class Rule:
    """Modules under `only` (all, if empty) may import names under `banned` only if they are under `but`."""

    banned: tuple[str, ...]
    why: str
    only: tuple[str, ...] = ()
    but: tuple[str, ...] = ()


RULES = (
    Rule(
        ("torch", "torchvision", "safetensors.torch"),
        "torch lives under models/, backends/torch and export",
        but=(f"{RT}.models", f"{RT}.backends.torch", "animegamer_export"),
    ),
    Rule(
        (f"{RT}.models",),
        "the networks are for backends/torch and export",
        but=(f"{RT}.models", f"{RT}.backends.torch", "animegamer_export"),
    ),
    Rule(
        ("animegamer_kernels",),
        "the kernels are for backends/torch; doctor says whether they are there",
        but=("animegamer_kernels", f"{RT}.backends.torch", f"{RT}.doctor"),
    ),
    Rule(
        ("zmq",),
        "only server, worker and clients hold sockets",
        but=(f"{RT}.server", f"{RT}.worker", "animegamer_client"),
    ),
    Rule((f"{RT}.server",), "nobody imports server but the command", but=(f"{RT}.server", f"{RT}.cli")),
    Rule((f"{RT}.worker",), "the worker is a process of its own", but=(f"{RT}.worker",)),
    Rule((f"{RT}.store",), "only the front keeps sessions", but=(f"{RT}.store", f"{RT}.server")),
    Rule(
        (f"{RT}.pipeline",),
        "pipeline is for the worker and the command",
        but=(f"{RT}.worker", f"{RT}.cli", f"{RT}.play", f"{RT}.bench", f"{RT}.selftest", "animegamer_export"),
    ),
    Rule(
        (f"{RT}.pipeline", f"{RT}.backends", f"{RT}.session", *(f"{RT}.{part}" for part in PARTS)),
        "the front process never touches an engine",
        only=(f"{RT}.server", f"{RT}.store"),
    ),
    Rule(("animegamer_export",), "the runtime and the client never import export", only=(RT, "animegamer_client")),
    Rule(
        (RT,),
        "the client and the kernels stand alone",
        only=("animegamer_client", "animegamer_kernels"),
    ),
    *(
        Rule(
            tuple(f"{RT}.{other}" for other in PARTS if other != part),
            "the parts do not know each other",
            (f"{RT}.{part}",),
        )
        for part in PARTS
    ),
)

# Assembled from pieces, so that this file does not say what it forbids.
BANNED_TEXT = {
    "a path of one machine": re.compile(
        r"(?<![\w.}*/])/(?:" + "|".join(("wo" + "rk", "ro" + "ot", "ho" + "me", "Us" + "ers")) + r")/\w"
    ),
    "unfinished work": re.compile(
        r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error")) + r")\b"
    ),
    "a skipped test": re.compile(
        r"pytest\." + r"skip\(|pytest\.mark\." + "skip|pytest\\.x" + "fail|pytest\\.mark\\.x" + "fail"
    ),
}
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".json", ".yml", ".cfg", ".sh", ".cu", ".cpp", ".h", ".cs", ".ts", ""}


def below(name: str, roots: tuple[str, ...]) -> bool:
    """Whether a dotted name is one of the roots or inside one."""
    return any(name == root or name.startswith(root + ".") for root in roots)


def imports(source: str, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Every (line, absolute dotted name) a module imports, lazily or not; type-checking blocks included."""
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            yield node.lineno, base
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def modules(root: Path) -> Iterator[tuple[Path, str]]:
    """Every source file of our packages with its dotted module name."""
    for package, folder in PACKAGES.items():
        for path in sorted((root / folder / package).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            yield path, ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_breaches(root: Path) -> list[str]:
    """Imports that the layout forbids, a line each: file, line, what, why."""
    found = []
    pure = tuple(f"{RT}.{name}" for name in PURE)
    for path, module in modules(root):
        for line, name in imports(path.read_text(encoding="utf-8"), module, path.name == "__init__.py"):
            where = f"{path.relative_to(root)}:{line}: {module} imports {name}"
            for rule in RULES:
                applies = not rule.only or below(module, rule.only)
                if applies and below(name, rule.banned) and not below(module, rule.but):
                    found.append(f"{where}: {rule.why}")
            top = name.split(".")[0]
            known = top in sys.stdlib_module_names or top in PURE_LIBRARIES or below(name, pure) or name == RT
            if below(module, pure) and not known:
                found.append(f"{where}: {module.split('.')[-1]} takes the standard library, numpy and the codec only")
    return sorted(set(found))


def tracked(root: Path) -> list[Path]:
    """The files of the project: those git knows or would add; without git, all outside the folders of .gitignore."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        names = subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0")
    except (FileNotFoundError, subprocess.CalledProcessError):
        names = _outside_ignored(root)
    return [root / name for name in names if name and (root / name).is_file()]


def _outside_ignored(root: Path) -> list[str]:
    lines = (root / ".gitignore").read_text(encoding="utf-8").splitlines()
    folders = [".git/", *(line for line in lines if line.endswith("/") and not line.startswith("!"))]

    def ignored(parts: tuple[str, ...]) -> bool:
        places = [(folder, parts[:1] if folder.startswith("/") else parts) for folder in folders]
        return any(fnmatch(part, folder.strip("/")) for folder, where in places for part in where)

    names = (path.relative_to(root) for path in root.rglob("*"))
    return sorted(str(name) for name in names if not ignored(name.parts))


def text_breaches(root: Path, files: list[Path]) -> list[str]:
    """Lines that say what no file of the project may say."""
    found = []
    for path in files:
        if path.suffix not in TEXT_SUFFIXES or path.stat().st_size > 500_000:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            found += [
                f"{path.relative_to(root)}:{number}: {what}" for what, text in BANNED_TEXT.items() if text.search(line)
            ]
    return found


def size_breaches(root: Path, files: list[Path]) -> list[str]:
    """Source files with two nouns in one room, and folders over their budget."""
    found = []
    for path in files:
        if path.suffix in {".py", ".cu", ".cpp", ".cs"} and "tests" not in path.relative_to(root).parts:
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if lines > MOST_LINES:
                found.append(f"{path.relative_to(root)}: {lines} lines, at most {MOST_LINES}: two nouns in one room?")
    for folder, most in MOST_MIB.items():
        mib = sum(path.stat().st_size for path in files if path.is_relative_to(root / folder)) / 2**20
        if mib > most:
            found.append(f"{folder}: {mib:.1f} MiB, at most {most:.0f}")
    return found


def long_files(root: Path, files: list[Path]) -> list[str]:
    """Source files worth a hard look; printed, not refused."""
    sizes = [(len(path.read_text(encoding="utf-8").splitlines()), path) for path in files if path.suffix == ".py"]
    return [
        f"{path.relative_to(root)}: {lines} lines" for lines, path in sorted(sizes, reverse=True) if lines > LONG_LINES
    ]


def main() -> int:
    """Print every breach; 1 if there is one."""
    files = tracked(ROOT)
    breaches = import_breaches(ROOT) + text_breaches(ROOT, files) + size_breaches(ROOT, files)
    for note in long_files(ROOT, files):
        print(f"note: {note}")
    for breach in breaches:
        print(f"error: {breach}", file=sys.stderr)
    print(f"house: {len(files)} files, {len(breaches)} breaches")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
