"""The instruction reader of pocket: a small network that reads everyday English into a scene.

`samples` turns games of the language corpus into arrays, `model` is the network, `training` trains it (`python -m
animegamer_pocket.reader train`), `accuracy` evaluates it on labelled files.
"""
