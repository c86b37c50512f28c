"""`python -m animegamer_rt` is the command `animegamer-rt`. Ctrl-C is handled even while it is being imported."""

import os
import sys

INTERRUPTED = 130


def main() -> int:
    """Import the command and run it; returns the exit code."""
    _leave_current_folder()
    try:
        from .cli import main as run

        return run()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return INTERRUPTED
    except (ImportError, MemoryError, OSError) as error:  # for example too little memory to load a library
        from .failures import report

        return report(error)


def _leave_current_folder() -> None:
    """Remove the current folder from the path, where `python -m` has put it first: its files are not our modules."""
    try:
        here = os.getcwd()
    except OSError:
        return
    if sys.path[:1] in ([""], [here]):
        del sys.path[0]


if __name__ == "__main__":
    sys.exit(main())
