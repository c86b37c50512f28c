"""The GPU benchmark: kernels, turns and peers on this machine's GPU."""
