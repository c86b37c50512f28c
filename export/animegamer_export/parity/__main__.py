"""`python -m animegamer_export.parity DIR`."""

from __future__ import annotations

import sys

from animegamer_export.parity.report import main

sys.exit(main())
