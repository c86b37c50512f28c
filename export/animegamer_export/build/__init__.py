"""`animegamer-rt export`: from the release's checkpoints, or random weights, to a bundle.

`command` reads the options, `checkpoint_folders` finds the files, `weight_source` and `sizes` describe the model,
and `steps` does the work.
"""
