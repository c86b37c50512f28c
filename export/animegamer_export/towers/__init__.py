"""The full-size towers before the encoder: T5-v1.1 for the motion text, a CLIP vision transformer for the picture.

Read from the folders of transformers and open_clip without importing either, and written as the bundle's parts
`text_tower` and `image_tower`. Source: MODEL.md section 1.
"""
