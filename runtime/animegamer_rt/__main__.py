"""`python -m animegamer_rt` is the command `animegamer-rt`.

Knows Ctrl-C alone: importing takes a moment, and is part of the command like all the rest.
"""

import sys

INTERRUPTED = 130


def main() -> int:
    """Import the command and run it; returns the exit code."""
    try:
        from .cli import main as run

        return run()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
