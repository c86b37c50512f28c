"""ONNX files: reading, writing, and sessions over them."""
