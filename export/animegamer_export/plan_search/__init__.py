"""`animegamer-rt search-plans`: cheaper denoise plans for a bundle, searched and measured against `exact`.

`trajectory` records the exact plan's predictions, `search` finds the best steps for each cost, `guidance_reuse` and
`block_skips` derive variants, `measure` plays the plans, `results` chooses, and `command` writes them into the bundle.
"""
