"""Measures of clips: how much they move, how much the VAE keeps of them; and contact sheets."""
