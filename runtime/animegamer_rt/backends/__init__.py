"""The engines that run a bundle's parts: one contract (`interface`), one module per library."""
