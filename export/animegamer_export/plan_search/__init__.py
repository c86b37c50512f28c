"""`animegamer-rt search-plans`: cheaper denoise plans for a bundle, searched and measured against `exact`.

`trajectory` records what the exact plan's path is made of, `search` finds the steps that stay nearest to it for a
given cost, `measuring` plays what was found, `curve` draws it, `command` writes it into the bundle.
"""
