"""A bundle's data about its players' language: words, word patterns, phrases. Imports nothing but errors."""
