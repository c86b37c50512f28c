"""Reads, writes and runs ONNX files."""
