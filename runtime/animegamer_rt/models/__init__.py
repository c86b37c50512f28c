"""The four networks in PyTorch, with state-dict names of our own; imported by backends/torch and by export only."""
