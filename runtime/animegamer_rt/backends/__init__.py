"""The engines that run a bundle's parts: one contract (`contract`), one module per library."""
