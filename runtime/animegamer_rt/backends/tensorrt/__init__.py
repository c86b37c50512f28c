"""The parts as TensorRT engines on an NVIDIA GPU."""
