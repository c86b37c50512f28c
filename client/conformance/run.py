"""Play the scenarios with a client, and print what failed: `python -m client.conformance.run [DRIVER ..]`.

DRIVER: the command that starts the client's driver; without one, Python's is played.
"""

from __future__ import annotations

import sys
from pathlib import Path

from client.conformance.suite import HERE, SCENARIOS, Suite

PYTHON = [sys.executable, str(HERE / "python_driver.py")]


def play(driver: list[str], cwd: Path | None = None) -> dict[str, str]:
    """The scenarios that failed, and what went wrong."""
    with Suite() as suite:
        return suite.play(driver, cwd)


def main() -> int:
    """Returns 1 if a scenario failed."""
    failed = play(sys.argv[1:] or PYTHON)
    for name, fault in failed.items():
        print(f"{name}: {fault}")
    print(f"{len(SCENARIOS) - len(failed)} of {len(SCENARIOS)} scenarios passed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
