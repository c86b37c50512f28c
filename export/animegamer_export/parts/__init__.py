"""The parts of a bundle as ONNX graphs."""
