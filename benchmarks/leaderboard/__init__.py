"""A page of many machines' records."""
