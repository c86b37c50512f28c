"""The GPU benchmark: checks, kernels, turns and peers on this machine's GPU."""
