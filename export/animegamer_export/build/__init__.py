"""`animegamer-rt export`: from the release's checkpoints, or random weights, to a bundle that plays.

One file a noun: `options` (the command itself), `layout` (the folders of the release), `source` (weights) and `sizes`,
`steps` (what there is to do), `journal` (what is done), `verify` (of each part), `kept` (of an earlier manifest),
`sharing` (with other bundles), `plans`, `disk`, `progress`.
"""
