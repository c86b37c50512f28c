"""The GPU run: checks, kernels, turns and peers on the GPU that is there."""
