"""The parts in PyTorch, on a CPU or an NVIDIA GPU."""
