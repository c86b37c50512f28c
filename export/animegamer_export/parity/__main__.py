"""`python -m animegamer_export.parity FOLDER`: the same as `animegamer-rt parity FOLDER`."""

from __future__ import annotations

import sys

from .report import main

sys.exit(main())
