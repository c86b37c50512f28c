"""Downloads the published checkpoints into the folder that `animegamer-rt export --checkpoints` reads."""
