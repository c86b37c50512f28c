"""`python -m animegamer_export.build`: the export without the installed entry point."""

import sys

from animegamer_rt.errors import AnimeGamerError

from .command import main

if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except AnimeGamerError as error:
        sys.exit(f"error: {error}")
