"""From checkpoints to bundles: reading, checking, converting and training the parts that the runtime plays."""

import os

# onnxruntime reads this when it is imported: without it, it writes a store of telemetry under the home folder.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
