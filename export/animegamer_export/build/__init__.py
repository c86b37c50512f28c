"""`animegamer-rt export`: from the release's checkpoints, or random weights, to a bundle that plays.

`command` reads the options, `checkpoint_folders` finds the files, `weight_source` and `sizes` describe the model,
`steps` does the work, `state_file` records it, `check_part` checks each part, `carry_over` takes over from an earlier
manifest, and `hard_links` shares files with other bundles.
"""
