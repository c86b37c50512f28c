"""The same turns by this project and by transformers and diffusers, on a CPU."""
