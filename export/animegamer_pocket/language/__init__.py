"""A labelled corpus of what people type in the pocket world.

`lexicon` reads the phrases of every concept from `phrases/`, `frames` the sentence frames of every voice from
`frames/`. `sentences.say` verbalises and labels the change between two scenes; `odd` asks for what pocket cannot draw;
`classes` has what else players say (`about_people`, `about_things`, `about_nothing`), `cjk` Chinese and Japanese.
`games` plays random games, and `python -m animegamer_pocket.language --games N --seed S` prints them. For training
only: never evaluate a model on it.
"""
