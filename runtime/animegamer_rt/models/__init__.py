"""The four networks in PyTorch, with our own state-dict names; only backends/torch and export import them."""
