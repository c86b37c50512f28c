"""Which clients can be built on this machine, and what the others need. Uses only the standard library.

python client/tools.py             list clients, and the tools they lack; exit code 1 if one cannot be built
python client/tools.py packages    Debian packages of missing tools, for apt-get install
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class ClientTools:
    """programs: called by its build. packages: Debian's, which contain them. tests: files of tests/client."""

    title: str
    programs: tuple[str, ...]
    packages: tuple[str, ...]
    tests: tuple[str, ...]

    @property
    def missing(self) -> list[str]:
        """The missing programs."""
        return [program for program in self.programs if shutil.which(program) is None]

    @property
    def lack(self) -> str:
        """What is missing, and how to get it."""
        missing, packages = ", ".join(self.missing), " ".join(self.packages)
        return f"{self.title}: {missing} not found; on Debian: apt-get install {packages}"


CLIENTS = (
    ClientTools("Python", (), (), ()),
    ClientTools("C and C++", ("cmake", "c++", "pkg-config"), ("cmake", "g++", "pkg-config"), ("test_native.py",)),
    ClientTools("C#, Unity", ("mcs", "mono", "node"), ("mono-mcs", "mono-runtime", "nodejs"), ("test_unity.py",)),
    ClientTools("Unreal", ("cmake", "c++", "clang++"), ("cmake", "g++", "clang"), ("test_unreal.py",)),
    ClientTools("Web page", ("node",), ("nodejs",), ("test_web.py",)),
)
"""All clients but Python, whose tests need no tools and so always run."""


def ignored_tests() -> list[str]:
    """Names of the test files of clients that cannot be built here, for pytest's `collect_ignore`."""
    return [test for client in CLIENTS if client.missing for test in client.tests]


def main() -> int:
    """List the clients, or print packages; returns 1 if a client cannot be built."""
    lacking = [client for client in CLIENTS if client.missing]
    if "packages" in sys.argv:
        print(*(package for client in lacking for package in client.packages))
        return 0
    for client in lacking:
        print(f"skipped: {client.lack}")
    print("built and tested here:", ", ".join(client.title for client in CLIENTS if client not in lacking))
    return int(bool(lacking))


if __name__ == "__main__":
    sys.exit(main())
