"""The same turns by this project and by the libraries that people use: transformers and diffusers, on a CPU."""
