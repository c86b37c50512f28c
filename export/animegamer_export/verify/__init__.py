"""`animegamer-rt verify`: a bundle's parts against PyTorch and against each other."""
