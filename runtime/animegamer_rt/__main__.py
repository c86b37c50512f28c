"""`python -m animegamer_rt` is the command `animegamer-rt`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
