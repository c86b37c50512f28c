"""`animegamer-rt search-plans`: finds cheaper denoising plans for a bundle, and measures them against `exact`.

`trajectory` records the exact plan's predictions, `search` finds the best steps per cost, `guidance_reuse` derives
variants, `measure` plays the plans, `results` chooses, and `command` writes them into the bundle.
"""
