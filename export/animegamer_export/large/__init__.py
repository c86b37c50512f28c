"""ONNX parts of any size without holding the model: graphs traced on stand-ins, weights written one after the other.

The graphs are those of the ordinary road (`animegamer_export.predictor`, `.denoiser`, `.vae`, `.encoder`); only where
the weights come from, and when, differs.
"""
