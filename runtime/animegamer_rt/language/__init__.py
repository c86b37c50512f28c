"""What a bundle says of its players' language: words, word patterns, phrases. Imports nothing but errors."""
