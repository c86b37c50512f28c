"""The onnxruntime backend: a bundle's ONNX parts on the CPU or on CUDA."""
