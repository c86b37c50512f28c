"""The full-size towers in front of the encoder: T5-v1.1 for the motion text, a CLIP vision transformer for the picture.

Read from the folders in which transformers and open_clip keep them, neither of which is imported; written as the
bundle's `text_tower` and `image_tower`, behind the contract of pocket's. Source: MODEL.md section 1.
"""

from animegamer_export.towers.parts import IMAGE, MOTION_MODEL, TEXT, Towers, open_towers

__all__ = ["IMAGE", "MOTION_MODEL", "TEXT", "Towers", "open_towers"]
