"""`python -m animegamer_export.tensorrt`: the command without its parent."""

from __future__ import annotations

import sys

from animegamer_export.tensorrt import main
from animegamer_rt.errors import AnimeGamerError

try:
    sys.exit(main())
except AnimeGamerError as error:
    sys.exit(f"error: {error}")
