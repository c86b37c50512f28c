"""The stages of a turn: prompt, predictor, denoiser, vae; and the start from an image."""
