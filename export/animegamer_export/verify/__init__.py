"""`animegamer-rt verify`: compares a bundle's parts with PyTorch, or with another bundle."""
