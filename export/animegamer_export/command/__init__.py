"""`animegamer-rt export`: from the release's checkpoints, or random weights, to a bundle that plays.

One file a noun: `layout` (the folders of the release), `source` (sizes and weights), `journal` (what is done), `steps`
(what there is to do), `disk`, `plans`, `options` (the command itself).
"""
