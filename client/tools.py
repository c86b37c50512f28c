"""Which clients can be built on this machine, and what the others need. Uses only the standard library.

python client/tools.py             list clients, and the tools they lack
python client/tools.py packages    Debian packages of missing tools, for apt-get install
python client/tools.py test        build and test the clients that can be built; explain why others are skipped
python client/tools.py require     fail if a client cannot be built
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class ClientTools:
    """programs: called by its build. packages: Debian's, which contain them. tests: files of tests/client.

    library: one that it links, by its pkg-config name.
    """

    title: str
    programs: tuple[str, ...]
    packages: tuple[str, ...]
    tests: tuple[str, ...]
    library: str = ""

    @property
    def missing(self) -> list[str]:
        """The missing programs, or the missing library."""
        programs = [program for program in self.programs if shutil.which(program) is None]
        asked = self.library and not programs and subprocess.run(["pkg-config", "--exists", self.library]).returncode
        return [self.library] if asked else programs


CLIENTS = (
    ClientTools("Python", (), (), ()),
    ClientTools("C and C++", ("cmake", "c++", "pkg-config"), ("cmake", "g++", "pkg-config"), ("test_native.py",)),
    ClientTools("Keys for C, C++, C# and Unreal", ("pkg-config",), ("pkg-config", "libsodium-dev"), (), "libsodium"),
    ClientTools("C#, Unity", ("mcs", "mono"), ("mono-mcs", "mono-runtime"), ("test_unity.py",)),
    ClientTools("Unreal", ("cmake", "c++"), ("cmake", "g++"), ("test_unreal.py",)),
    ClientTools("Web page", ("node",), ("nodejs",), ("test_web.py",)),
)
"""All clients but Python, whose tests need no tools and so always run."""


def can_build(title: str) -> bool:
    """Whether everything that this client needs is installed."""
    return not any(client.missing for client in CLIENTS if client.title == title)


def ignored_tests() -> list[str]:
    """Names of the test files of clients that cannot be built here, for pytest's `collect_ignore`."""
    return [test for client in CLIENTS if client.missing for test in client.tests]


def show() -> None:
    """One line per client."""
    for client in CLIENTS:
        if client.missing:
            apt = "on Debian: apt-get install " + " ".join(client.packages)
            print(f"skipped: {client.title}: {', '.join(client.missing)} not found; {apt}")
        else:
            print(f"built and tested here: {client.title}")


def main() -> int:
    """Returns the exit code."""
    what = sys.argv[1] if len(sys.argv) > 1 else "show"
    if what == "packages":
        print(*(package for client in CLIENTS if client.missing for package in client.packages))
        return 0
    show()
    if what == "require":
        return int(any(client.missing for client in CLIENTS))
    if what == "test":
        environment = {**os.environ, "ANIMEGAMER_CLIENT_BUILDS": str(ROOT / "build")}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "--numprocesses",
            "2",
            "--dist",
            "loadfile",
            "tests/client",
            *sys.argv[2:],
        ]
        code = subprocess.run(command, cwd=ROOT, env=environment).returncode
        show()
        return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
