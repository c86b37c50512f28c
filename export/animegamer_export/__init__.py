"""From checkpoints to bundles: reads, checks and converts the parts that the runtime runs."""

import os

# onnxruntime reads this on import; without it, it stores telemetry in the home folder.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
