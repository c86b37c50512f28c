"""The training of pocket's networks: VAE, denoiser with shot encoder, predictor."""
