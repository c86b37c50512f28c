"""A corpus of what people say to the pocket world, with labels.

`lexicon` reads the phrases of every concept from `phrases/`, `frames` the frames of every voice from `frames/`.
`sentences.say` puts the change between two scenes into words and labels them; `odd` asks for what pocket cannot draw.
`games` plays random games, and `python -m animegamer_pocket.language --games N --seed S` prints them.
It is for training alone: nothing that judges the model may come from here.
"""
