"""A corpus of what people say to the pocket world, with labels: words, sentences and games."""
